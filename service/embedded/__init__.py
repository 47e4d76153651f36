"""Runs studies entirely in this process, for `driftline run` and a local `Client`.

`local_studies` is the entry point `driftline.local`, `embedded_run` runs one study with a real API under a real server
in a thread, `thread_launcher` runs its driver in a thread, `timing` trains for a few seconds to estimate what a study
will cost, `folder` and `folder_results` read and write the output folder. `moved_folder`, `joined_folders` and
`joined_mlflow` open folders in MLflow.
"""
