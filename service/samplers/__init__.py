"""Samplers propose the configurations of a search.

    random, quasi_random, grid   learn nothing: independent draws, a Sobol sequence, all grid points
    tpe, nsga2, gp               Optuna's Parzen estimator, genetic algorithm and Gaussian processes
    cmaes                        CMA-ES
    staged                       one group of hyperparameters after the other, on grids

    sampler, build               the contract of samplers; makes one by its name
    by_rung                      one sampler for each rung, for trials that may stop early
    given_points, informed       tries given configurations first; draws around a prior
    allowed, finite_spaces       keeps constraints; avoids repeats in small spaces
    optuna_base, optuna_history  what samplers with Optuna share; the trials that Optuna gets
    optuna_parameters            hyperparameters from Optuna's parameters, and back
    gp_within                    Gaussian processes among configurations that break no constraint

A sampler is rebuilt from the rows of the store, which are the only truth.
"""
