"""Samplers, one module each; `base` has the contract, `build` makes one.

`optuna_base` and `optuna_parameters` serve those that stand on Optuna; `given_points` are a study's own first points.
A sampler is made from the rows of the store, which are the only truth.
"""
