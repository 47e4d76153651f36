"""The engine: trains a pack of trials of one structure, with all clients of a round at once.

Packages, each above those that it uses:

    packs         a pack from its first round to its last: plan, schedule, progress, checkpoints, report lines
    evaluation    measurements of a model: reports, adaptation of held-out clients, floating-point operations
    rounds        what a method works with: cohort, server state, client memory, the server's own data and branch
    local         the local steps of clients
    batches       which examples a step sees
    oracles       gradients, and the contract of a model
    layout, randomness, memory    flat parameters; draws as functions of (seed, round, client, step); memory limits
    products      whether a GPU rounds the factors of products in single precision

Shapes everywhere: T trials of a pack, M clients of a cohort, P numbers of a flat model.
"""
