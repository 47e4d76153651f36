"""The theory of local update methods on quadratics, in closed form; `python -m trainers.theory` is its command line.

`clients` decomposes quadratic clients, `families` and `client_savings` have known problems. `weights` and `spectrum`
say what local work does to one eigenvalue, `interval` to all of them, `surrogate` what a method minimises instead,
`condition` and `distance_bounds` how well and how far away. `rates` and `stochastic_rates` say how fast servers
converge, `tradeoff` and `cusp` what that costs. `rounds` has a round of every method as an affine map; `prediction` and
`setting_point` follow it for a trial. `mass_constants`, `mass_settings`, `mixed_limits` and `one_way_bounds` belong to
MaSS and to mixed federated learning. `bound_checks` checks the papers' bounds, `counterexamples` what does not hold.
`figures` draws. `warning` is the warning of the theory.
"""
