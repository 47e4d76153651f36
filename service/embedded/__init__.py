"""Runs studies on this computer, for `driftline run` and a local `driftline.Client`; a second process records.

    local_studies                  studies of a local client: the entry point ``driftline.local``
    embedded_run                   one study: app, scheduler and driver of a service, over one output folder
    thread_launcher                the study's driver in a thread
    recorder_process               writes result files and MLflow's database, in a second process
    folder                         the output folder, its lock and its files
    folder_results                 reads the results of a folder, also while another process works in it
    moved_folder                   points the MLflow database of a moved folder to its artifacts
    joined_folders, joined_mlflow  studies of several folders in one MLflow database
    room                           whether this computer has CPU cores, GPUs and memory for a study
    program_files                  the copy of a program's files in the output folder
    program_probe                  tries a program for two rounds, for `driftline validate`
    timing, timing_process         estimates what a study will take; times packs in a process of its own

Uses the API, scheduler, driver, recorder and store of a service.
"""
