"""The theory of local update methods on quadratics, in closed form; `python -m trainers.theory` is its command line.

    clients, families              quadratic clients, decomposed; problems with known solutions
    weights, spectrum, interval    gradient weights; effect of local work on one eigenvalue; on an interval of them
    surrogate                      the loss that a method actually minimizes
    condition, distance_bounds     condition number of the surrogate; distance of its optimum from the true one
    rates, stochastic_rates        convergence rates of servers; with noisy gradients
    tradeoff, cusp                 convergence against accuracy; the end of MAML's curve
    rounds                         a round of every method as an affine map
    prediction, setting_point      loss and distance of a trial, after every round and in the limit
    mass_constants, mass_settings  constants of MaSS; hyperparameters that follow from them
    mixed_limits                   step sizes of mixed federated learning
    counterexamples                statements of the papers that do not hold
    figures                        the papers' figures
    warning, __main__              the warning of the theory; the command line

Uses numpy, never torch.
"""
