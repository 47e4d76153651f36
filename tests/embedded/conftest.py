"""What is no module of this environment is not imported for its doctests."""

collect_ignore = ["flower_in_process.py"]  # flwr is in an environment of its own
