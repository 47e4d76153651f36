"""Launchers start drivers, one folder each: `local` processes, `ray_jobs`, `kubernetes`.

`base` has the contract, `worker_pools` the pools of workers among which studies choose. Packages add launchers of their
own through entry points of the group driftline.launchers.
"""
