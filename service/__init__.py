"""The service: API, scheduler, store, launchers, driver and recorder.

    cli -> server, embedded -> api -> store <- scheduler -> launchers -> driver -> packs on GPUs
                               ^                                           |
                               +--------- driftline.client <- reports -----+     store -> driftline.results -> api
                                                                                 store -> recorder -> MLflow

The API stores what owners want and serves results. The scheduler decides which study gets a driver. Only the driver
changes that study's trials, and it talks only to the API, with a token for that study. `web` adds pages for people to
the API. `embedded` runs everything in one process, on a laptop. `samplers` propose configurations, `replay` simulates
studies on recorded curves. `settings` reads the environment, `bucket` limits rates, `file_locks` locks files,
`child_process` runs what needs much memory in processes that end when idle, `pauses` spaces attempts, `garbage` sets
how often Python looks for garbage.
"""
