"""What may be tried: the default search spaces, and the papers' grids.

`parameters` has `Float`, `Int` and `Choice`. `spaces` finds the default spaces by name: `methods`, `optimizers` and
`schedules` have one module for each. `rates`, `alignment` and `mixing` have what several of them share, `presets` the
entries with a name of their own in the literature. `constraints` relates hyperparameters to each other, `from_theory`
derives ranges from curvature and noise, `largest` finds the largest rate that does not diverge. `values` and
`neighbours` compare values. Imports `trainers` only.
"""
