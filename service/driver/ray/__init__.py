"""Packs on a Ray cluster.

`tune` hands packs to Ray Tune, `worker` trains one. `cluster` starts or joins Ray, `early_ray` starts it before it is
needed, `capacity` counts how many packs fit, `mutex` lets one study at a time use the cluster; `ray_variables` and
`environment` set Ray's environment variables, `worker_output` logs what workers print.
"""
