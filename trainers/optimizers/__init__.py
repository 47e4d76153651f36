"""Optimizers, one module each, for clients, server, central data and merge: `trainers.optimizer_contract.Optimizer`."""
