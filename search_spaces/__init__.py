"""What may be tried: the default search spaces, and the papers' grids.

    parameters          `Float`, `Int` and `Choice`: the search space of one hyperparameter
    spaces              the default spaces, which the methods, optimizers and schedules of `trainers` state
    papers.yaml         the papers' grids
    presets             entries named in the literature; presets.yaml has those of low-communication training
    constraints         constraints between hyperparameters
    from_theory         ranges and first points from curvature and gradient noise
    values, neighbours  compares JSON values; values close to a given one

Imports `trainers` only.
"""
