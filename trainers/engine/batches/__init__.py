"""Which examples a step sees.

`examples` draws the clients' batches, `class_batches` with as many examples of each class, `mini_batches` holds those
of a round, and `with_central` adds the server's batches. `trainers.trial.passes` says how examples are cut into them.
"""
