"""The local steps of clients, for all clients and trials at once.

`work` has the hyperparameters that methods share, and describes a client's work and its result; `loop` runs it.
`gradients` adds terms between the loop and an oracle. `client_optimizer` is the contract of a client optimizer,
`optimizer_steps` runs client optimizers other than SGD, `mass_sequences` has those of MaSS, `replicas` and
`weighted_sums` hold running sums of gradients, `descent` moves the models of a single trial instead, `meta_gradients`
differentiates through the steps, `client_drift` measures how far they go.
"""
