"""Studies in MLflow.

    recorder_loop                         runs `all_studies` in a child process while there is something to record
    all_studies                           keeps MLflow up to date with all studies
    study_recorder, trial_runs            writes one study; the runs of its trials
    study_lease, study_artifacts          who may write it; its files, whose store may be unreachable
    run_contents, curve_rows, chart_view  what is written of runs, curves and charts (pure)
    tracking, bulk_runs                   talks to MLflow; writes many runs into its SQLite database at once
    database_client, empty_database       that database without MLflow's client; without its migrations
    links                                 links to a study in MLflow
    mlflow_pages, own_artifacts           MLflow's web app for reading, behind a token or its accounts
    logged_models                         trains what a study recommends again, on request

MLflow is imported in this package only. Studies are read from the store.
"""
