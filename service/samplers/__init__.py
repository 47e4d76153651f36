"""Samplers, one module each; `sampler` has the contract, `build` makes one.

`optuna_base` and `optuna_parameters` serve the samplers that use Optuna; `given_points` tries a study's start points
first, `informed` draws around a prior, `allowed` and `finite_spaces` keep constraints and avoid repeats. A sampler is
rebuilt from the rows of the store, which are the only truth.
"""
