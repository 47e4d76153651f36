"""The service: API, scheduler, store, launchers, driver and recorder.

    cli -> server, embedded -> api -> store <- scheduler -> launchers -> driver -> packs on GPUs
                               ^                                           |
                               +--------- driftline.client <- reports -----+     store -> driftline.results -> api
                                                                                 store -> recorder -> MLflow

The API stores what owners want and serves results. The scheduler decides which study gets a driver. Only the driver
changes that study's trials, and it talks only to the API, with a token for that study. The packages:

    cli                   the command `driftline`
    server                a service: puts together store, API, scheduler, launcher and recorder
    embedded              runs everything in one process, on a laptop
    web                   pages for people, added to the API
    api, store            the HTTP API; persistent state
    scheduler, launchers  gives every study its driver; start drivers
    driver, samplers      trains a study's trials; propose configurations
    recorder              writes studies to MLflow
    replay                simulates studies on recorded curves

    settings              environment variables of services and drivers
    bucket, pauses        limits rates; spaces attempts
    file_locks, log_file  locks between processes and temporary folders; a log in an output folder
    child_process         runs memory-hungry work in processes that end when idle
    child_environment     the environment of child processes, without secrets
    code_digest           whether processes run the same code
    known_versions        versions of libraries for which shortcuts through private APIs are tested
    name_patterns         names that an operator allows
    cores, gpus           how many CPU cores a process may use; how many GPUs this machine has
    confined              runs code of plug-ins without access to files, sockets and processes
    garbage               how often Python's garbage collector runs
    sqlite_address        addresses of SQLite files
    signal_names          names of the signals that end processes
"""

import trainers as trainers  # `python -m service.driver`: takes the working directory off the search path
