"""The driver of a study: asks samplers for trials, trains them in packs on Ray, reports to the API.

`command_line` starts it, `lifecycle` runs a study from its lease to its release. `search` decides what to train next,
without Ray; `ray` runs packs on a cluster. `lease` renews the lease on the study, `job` and `checkpoints` are for the
workers, `log_shipping` sends logs, `preflight` checks that a cluster can run a driver. A driver never touches the
database, only the API.
"""
