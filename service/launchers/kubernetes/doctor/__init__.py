"""Checks of a cluster before Driftline is installed there, or when something does not work.

    checks          all checks, in order, for `driftline doctor kubernetes`
    chart_release   what is to run on the cluster: the chart's objects and settings
    cluster_access  read access to the cluster for checks, and their findings
    kuberay         versions, CRDs, the operator, and whether a RayJob is accepted
    rights          rights of Helm or of the launcher
    storage         storage classes for the chart's claims
    nodes           room for heads and workers, and GPUs
    backups         what a restored database brings back
    study_images    images and Secrets that studies may bring for their programs
    addons          network policies, Kueue, metrics for autoscaling

It imports the launcher, never the reverse.
"""

from service.launchers.kubernetes.doctor.chart_release import ChartRelease, read_manifest, read_settings
from service.launchers.kubernetes.doctor.checks import diagnose
from service.launchers.kubernetes.doctor.cluster_access import Finding

__all__ = ["ChartRelease", "Finding", "diagnose", "read_manifest", "read_settings"]
