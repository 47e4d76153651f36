"""Drivers as RayJobs on Kubernetes.

`launcher` starts, watches and deletes them. `manifests` writes them, with `naming` and what `config` says; `kueue`
adds queues. `api_server` talks to Kubernetes, `informer` keeps its objects; `rayjob_status` and `pod_problems` read
what became of them (pure).
"""

from service.launchers.kubernetes.launcher import Config, build

__all__ = ["Config", "build"]
