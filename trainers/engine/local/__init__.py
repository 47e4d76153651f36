"""The local steps of clients, for all clients and trials at once.

`local_steps` has the hyperparameters that methods share, `work` describes a client's work and its result, `loop` runs
it. `gradients` adds terms between the loop and an oracle. `client_optimizer` is the contract of a client optimizer,
`optimizer_steps` runs client optimizers other than SGD, `replicas` and `weighted_sums` hold running sums of gradients,
`meta_gradients` differentiates through the steps.
"""
