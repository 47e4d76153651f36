"""Optional metrics of report lines, one module each.

`trainers.engine.evaluation.views.ReportModule` is the contract.
"""
