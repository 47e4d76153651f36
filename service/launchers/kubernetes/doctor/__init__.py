"""Checks of a cluster before Driftline is installed there, or when something does not work.

`checks` runs them all, for `driftline doctor kubernetes`. `release` reads what is to run, `cluster` asks the cluster;
`kuberay`, `rights`, `storage`, `nodes` and `addons` have the checks.
"""

from service.launchers.kubernetes.doctor.checks import diagnose
from service.launchers.kubernetes.doctor.cluster import Finding
from service.launchers.kubernetes.doctor.release import Release, read_manifest, read_settings

__all__ = ["Finding", "Release", "diagnose", "read_manifest", "read_settings"]
