"""The local steps of clients, for all clients and trials at once.

`local_steps` has the hyperparameters that methods share, `work` says what a client does and answers, `loop` runs it.
`gradients` are the terms that may stand between the loop and an oracle. `client_optimizer` is what the loop asks of an
optimizer, `optimizer_steps` the steps of those that are more than SGD, `replicas` and `weighted_sums` hold running sums
of gradients, `meta_gradients` differentiates through the steps.
"""
