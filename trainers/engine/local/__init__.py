"""The local steps of clients, for all clients and trials at once.

`loop` runs them. `client_optimizer` is what the loop asks of an optimizer, `optimizer_steps` the steps of those that
are more than SGD, `replicas` and `weighted_sums` hold running sums of gradients, `meta_gradients` differentiates
through the steps.
"""
