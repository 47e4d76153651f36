"""Schedules of the rates, one module each. The contract is `trainers.contracts.Schedule`."""
