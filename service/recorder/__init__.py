"""Studies in MLflow: `all_studies` goes over all studies, `study_recorder` writes one, `tracking` talks to MLflow.

`recorder_loop` runs `all_studies` in a child process while there is something to record.

`bulk_runs` writes many runs into MLflow's SQLite database at once. `run_contents`, `curve_rows` and `chart_view` say
what is written (pure), `links` where people find it. `logged_models` trains what a study recommends again, on request.
"""
