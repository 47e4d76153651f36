"""Optional metrics of report lines, one module each. The contract is `trainers.engine.evaluation.views.Report`."""
