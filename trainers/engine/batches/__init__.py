"""Which examples a step sees.

`examples` draws the clients' batches, `class_batches` draws them with equally many examples of each class,
`mini_batches` holds the batches of a round, `by_seed` those of trials with seeds of their own, and `with_central` adds
the server's batches. `trainers.trial.passes` says how examples are cut into batches.
"""
