"""The local steps of clients, for all clients and trials at once.

    work                     what clients do in a round, its hyperparameters, and the result
    step_plan                how many steps they take, at which rates, and with which weights
    loop                     what every client does between receiving a model and sending its answer
    gradients                terms between the loop and an oracle's gradients
    replicas, weighted_sums  running sums of gradients: one per client; weighted ones
    descent                  moves the models of a trial whose oracle takes steps itself
    optimizer_steps          the loop for work that needs each gradient: client optimizers, clipping
    client_optimizer         the contract of a client optimizer
    mass_sequences           the client optimizers of MaSS
    meta_gradients           exact gradients through the steps, for MAML
    client_drift             how far the steps move away from the broadcast model

Imports batches and oracles; `trainers.engine.rounds` runs it for a method.
"""
