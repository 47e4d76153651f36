"""Pure functions of stored curves: recommendations, frontiers, areas, comparison, ledgers, theory.

    study_result              the result of a study from its records and curves, and its files
    document, definitions     frontier.json, and the definitions written into it
    curves                    a trial's curve, smoothed, and the cost of its rounds
    runs, label_runs          a configuration on several seeds; the trials of a label, by search
    recommendation            the configuration to run and the round to stop at, for each cost
    cross_fitting             the quality of recommendations on seeds that did not choose them
    promise, test_metric      what to expect of a recommendation; its test metric, where validation examples choose
    objectives, targets       what the sampler maximises; what it costs a trial to reach a quality
    confirmation, pareto      which configurations are run again; non-dominated sorting, crowding distance
    scale, settling           the scale of qualities; where a configuration settles and where it ends
    comparison, paired_tests  whether one label is better than another; intervals and corrections
    t_distribution            tails and quantiles of Student's t, without SciPy
    statements                whether a study shows what a figure or table of a paper states
    headline                  the sentence about the methods, and then about the configurations found
    own_settings              entries whose trials have settings of their own
    search_effort             what to expect of a search of k trials, from all trials of random searches
    importance                how much each hyperparameter matters for quality and for speed
    inactive_values           values that change nothing, which results show as "any"
    ledger, trial_list        what a label was granted and has spent; a study's trials, and how two lists differ
    modelled_time             a cost from stored counters: time on a network of your choice
    space_edges               recommended values at the edge of what was searched
    theory                    predictions from trainers.theory beside the results, for quadratic tasks
    recorded_table            the curves of many configurations and seeds in one Parquet file
    show                      results as text, CSV, pictures and pages

The path of a curve: curves -> runs -> recommendation -> cross_fitting -> label_runs -> document -> study_result.
"""
