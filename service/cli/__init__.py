"""The command `driftline`: `main` has the commands, the other modules what they do."""
