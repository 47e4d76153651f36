"""The service: who decides and who remembers.

    cli -> server, embedded -> api -> store <- scheduler -> launchers -> driver -> packs on GPUs
                               ^                                           |
                               +--------- driftline.client <- reports -----+     store -> driftline.results -> api
                                                                                 store -> recorder -> MLflow

The API stores intent and serves results. The scheduler decides which study has a driver; only the driver moves that
study's trials, and it speaks only to the API, with a token for that study. `embedded` runs all of it in one process,
on a laptop. `settings` reads the environment, `bucket` limits rates, `file_locks` locks files.
"""
