"""All checks of a cluster, in the order in which their results are worth reading."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from driftline.errors import DriftlineError, Forbidden
from service.launchers.kubernetes.api_server import Api
from service.launchers.kubernetes.doctor.addons import check_kueue, check_metrics, check_policies
from service.launchers.kubernetes.doctor.backups import check_backups
from service.launchers.kubernetes.doctor.chart_release import ChartRelease
from service.launchers.kubernetes.doctor.cluster_access import ClusterAccess, Finding
from service.launchers.kubernetes.doctor.kuberay import check_crds, check_kubernetes, check_operator, check_rayjob
from service.launchers.kubernetes.doctor.nodes import check_fit, check_gpus
from service.launchers.kubernetes.doctor.rights import check_kinds, check_rights
from service.launchers.kubernetes.doctor.storage import check_storage
from service.launchers.kubernetes.doctor.study_images import check_brought

_CHECKS: dict[str, Callable[[ClusterAccess, ChartRelease], Iterator[Finding]]] = {
    "kuberay crds": check_crds,
    "kuberay operator": check_operator,
    "kinds": check_kinds,
    "rights": check_rights,
    "rayjob": check_rayjob,
    "storage": check_storage,
    "gpus": check_gpus,
    "nodes": check_fit,
    "network policies": check_policies,
    "kueue": check_kueue,
    "metrics": check_metrics,
    "images of studies": check_brought,
    "restored backup": check_backups,
}


def diagnose(api: Api, release: ChartRelease) -> Iterator[Finding]:
    """Runs all checks; a check without an answer is unknown, with the reason.

    Args:
        api: Access to the cluster.
        release: What is to run there; `ChartRelease()` if nothing is known of it.

    Raises:
        Unauthorized: The cluster does not know the account.
        Unavailable: The API server does not answer the first question.
    """
    cluster = ClusterAccess(api)
    yield from check_kubernetes(cluster, release)
    for name, check in _CHECKS.items():
        try:
            yield from check(cluster, release)
        except Forbidden as error:
            yield Finding(name, "unknown", error.message, "run this with an account that may see it")
        except DriftlineError as error:
            yield Finding(name, "unknown", error.message, "run this again")
