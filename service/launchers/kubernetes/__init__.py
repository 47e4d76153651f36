"""Drivers as RayJobs on Kubernetes.

`launcher` creates, watches and deletes them. `manifests` builds them from `config`, with names from `naming`; `kueue`
supports queues. `api_server` talks to Kubernetes, `informer` keeps a copy of its objects, and `namespaces` has both for
each namespace. `rayjob_status` and `pod_problems` interpret their status (pure).
`doctor` checks a cluster before any of them is used there.
"""

from service.launchers.kubernetes.launcher import Config, build

__all__ = ["Config", "build"]
