"""Pure functions of stored curves: points, frontiers, Pareto sets, comparison, ledgers, theory.

`study_result` makes the document of a study from its records and curves; `document` says what is in it, `definitions`
in words. `show/` draws it. Imports only `driftline.wire` and, for quadratic tasks, trainers.theory.
"""
