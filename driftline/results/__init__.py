"""Pure functions of stored curves: recommendations, frontiers, areas, comparison, ledgers, theory.

`study_result` computes a study's result from its records and curves. `document` describes its JSON, `definitions` its
terms; `show/` presents it. The path of a curve: `curves` smooths it, then `runs` (a configuration on several seeds),
`label_runs`, `recommendation`, `cross_fitting`, `scale`; `settling` for speed against final quality; `comparison` on
`paired_tests`. `confirmation` chooses what is run again; `modelled_time` is a cost from stored counters. For quadratic
tasks, `theory` adds predictions from trainers.theory.
"""
