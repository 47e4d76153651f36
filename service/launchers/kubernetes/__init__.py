"""Drivers as RayJobs on Kubernetes.

    launcher                     creates, watches and deletes the RayJob of each study
    config                       settings of the launcher, as in its YAML file
    manifests, naming            the objects that a driver needs; their names and labels
    pod_patch                    changes of pods for which there is no setting
    rayjob_status, pod_problems  interpret RayJobs and pods (pure)
    kueue                        RayJobs that wait in a queue of Kueue
    api_server, informer         the Kubernetes API as JSON; a copy of its objects, kept up to date
    namespaces                   the namespaces in which studies start
    doctor                       checks a cluster before any of these is used there

The package kubernetes is imported here only.
"""

from service.launchers.kubernetes.launcher import Config, build

__all__ = ["Config", "build"]
