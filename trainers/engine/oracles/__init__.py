"""Gradients: `oracle` says what a model must offer, the other modules offer it for any torch module.

`autograd` differentiates one model, `one_by_one` loops over replicas, `vmapped` runs them at once; `frame` holds
coordinates in which a model may keep running sums of gradients more cheaply.
"""
