"""The command `driftline`: `main` and `remote` define the commands, the other modules implement them."""
