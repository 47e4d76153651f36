"""Which examples a step sees.

`examples` draws the clients' batches, `class_batches` with as many examples of each class, `passes` cuts the examples
of a client into them, `mini_batches` holds those of a round, and `with_central` adds the server's batches.
"""
