"""Packs on a Ray cluster.

`tune` hands packs to Ray Tune, `worker` trains one. `cluster` starts or joins Ray, `capacity` counts its nodes, `mutex`
lets one study at a time use it; `settings` and `environment` prepare its processes, `worker_output` reads their logs.
"""
