"""Gradients: `oracle` is the contract of a model, the other modules implement it for any torch module.

`autograd` is the reference, `one_by_one` loops over replicas, `vmapped` runs them at once, and `all_trials` lets an
oracle that takes trials one by one take them at once. `frame` is the contract for coordinates in which a model keeps
running sums of gradients more cheaply.
"""
