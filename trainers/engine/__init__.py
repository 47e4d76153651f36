"""The engine: trains a pack of trials of one structure, with all clients of a round at once.

Rooms, each above those that it uses:

    packs         a pack from its first round to its last: plan, schedule, progress, checkpoints, report lines
    evaluation    what is measured of a model: reports, adaptation of held-out clients, operations
    rounds        what a method works with: cohort, server's state, clients' states, the server's own data and branch
    local         the local steps of clients
    batches       which examples a step sees
    oracles       gradients, and what a model must offer
    layout, randomness, memory    flat parameters; draws as functions of (seed, round, client, step); limits

Shapes everywhere: T trials of a pack, M clients of a cohort, P numbers of a flat model.
"""
