"""Pure functions of stored curves: points, frontiers, Pareto sets, comparison, ledgers, theory.

`study_result` computes a study's result from its records and curves. `document` describes its JSON, `definitions` its
terms; `show/` presents it. For quadratic tasks, `theory` adds predictions from trainers.theory.
"""
