"""What report lines may hold besides what they always do: `trainers.engine.evaluation.views.Report`."""
