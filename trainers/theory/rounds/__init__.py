"""A round of each method on quadratics as an affine map.

    affine          the map, its fixed point and its rate
    methods         finds the map by a method's name and hyperparameters
    local           methods that are local work with gradient weights
    aligned         methods that align gradients or correct drift
    remembered      methods with memory between rounds
    mixed, central  mixed federated learning; the server's own loss

Uses the closed forms of `trainers.theory`.
"""
