"""Tasks, one module each: a model, a loss and federated data. The contract is `trainers.problem.Task`."""
