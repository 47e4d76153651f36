"""Runs studies on this computer, for `driftline run` and a local `Client`: in this process, recorded by a second one.

`local_studies` is the entry point `driftline.local`, `embedded_run` runs one study with a real API under a real server
in a thread, `thread_launcher` runs its driver in a thread, `timing` trains for a few seconds to estimate what a study
will cost, in `timing_process`, `folder`, `folder_results` and `result_files` read and write the output folder,
`recorder_process` fills MLflow's database and draws. `moved_folder`, `joined_folders` and `joined_mlflow` open folders
in MLflow.
"""
