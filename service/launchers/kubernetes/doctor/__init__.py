"""Checks of a cluster before Driftline is installed there, or when something does not work.

`checks` runs them all, for `driftline doctor kubernetes`. `chart_release` reads what is to run, `cluster_access` asks
the cluster; `kuberay`, `rights`, `storage`, `nodes` and `addons` have the checks.
"""

from service.launchers.kubernetes.doctor.chart_release import ChartRelease, read_manifest, read_settings
from service.launchers.kubernetes.doctor.checks import diagnose
from service.launchers.kubernetes.doctor.cluster_access import Finding

__all__ = ["ChartRelease", "Finding", "diagnose", "read_manifest", "read_settings"]
