"""The driver of a study: asks samplers for trials, trains them in packs on Ray, reports to the API.

`main` is the process, `lifecycle` runs a study from its lease to its release. `search` decides what is trained next and
knows no Ray; `ray` runs packs on a cluster. `lease` keeps the study, `checkpoints` and `job` are what workers get,
`log_shipping` sends logs, `preflight` looks whether the cluster can do the work. It speaks to the API only.
"""
