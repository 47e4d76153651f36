"""What may be tried: the default search spaces, and the papers' grids.

    parameters                      `Float`, `Int` and `Choice`: the search space of one hyperparameter
    spaces                          finds the default spaces by name
    methods, optimizers, schedules  the default spaces, a module for each method, optimizer and schedule
    rates, alignment, mixing        ranges and grids that several methods share
    presets                         entries with their own name in the literature
    constraints                     constraints between hyperparameters
    from_theory                     ranges and first points from curvature and gradient noise
    largest                         finds the largest client_lr that does not diverge
    values, neighbours              compares JSON values; values close to a given one

Imports `trainers` only.
"""
