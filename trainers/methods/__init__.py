"""Methods, one module each: what clients and server do in one round. The contract is `trainers.contracts.Method`."""
