"""Packs on a Ray cluster.

`tune` hands packs to Ray Tune, `worker` trains one. `cluster` starts or joins Ray, `early_ray` starts it before it is
needed, `lean_ray` leaves out what nobody needs here, `capacity` counts how many packs fit, `mutex` lets one study at a
time use the cluster; `ray_variables` and `environment` set Ray's environment variables, `start_worker` is the first
program of a worker, `worker_output` logs what workers print.
"""
