"""The checks of `driftline doctor kubernetes` against a real Kubernetes API server with KubeRay's CRDs."""

import pytest

from service.launchers.kubernetes.doctor import ChartRelease, diagnose
from tests.kubernetes_launcher.made import config
from tests.kubernetes_launcher.plane import OWN_CERTIFICATE
from tests.kubernetes_launcher.test_api import allow_scheduler
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), OWN_CERTIFICATE]


def seen(api, release):
    """check -> its status and text."""
    found = {finding.check: (finding.status, finding.text) for finding in diagnose(api, release)}
    api.close()
    return found


def kinds(plane, version):
    status, found = plane.send("GET", f"/apis/{version}", ok=(200, 404))
    return {one["kind"] for one in found["resources"]} if status == 200 else set()


@pytest.fixture(autouse=True)
def discovered(plane):
    """Discovery lags behind a new CRD."""
    until(lambda: {"RayJob", "RayCluster"} <= kinds(plane, "ray.io/v1"))


def test_an_administrator_sees_all_and_changes_nothing(plane):
    namespace = plane.namespace()
    found = seen(plane.api(namespace), ChartRelease(settings=config(namespace=namespace)))
    assert found["kuberay crds"] == ("ok", "those of KubeRay 1.6 or newer")
    assert {check: status for check, (status, _) in found.items()} == {
        "kubernetes": "problem",  # 1.20
        "kuberay crds": "ok",
        "kuberay operator": "problem",
        "rights": "ok",
        "rayjob": "ok",
        "storage": "problem",
        "gpus": "ok",
        "head nodes": "unknown",
        "worker nodes": "unknown",
        "network policies": "unknown",
    }
    assert "v1.20" in found["kubernetes"][1]
    assert plane.send("GET", f"/apis/ray.io/v1/namespaces/{namespace}/rayjobs")[1]["items"] == []


def test_a_rayjob_that_the_crd_refuses_is_a_problem(plane):
    namespace = plane.namespace()
    release = ChartRelease(settings=config(namespace=namespace, volumes=[{"name": "x", "emptyDir": "large"}]))
    assert "emptyDir" in seen(plane.api(namespace), release)["rayjob"][1]


def test_the_schedulers_account_may_run_studies_and_sees_little_else(plane):
    namespace = plane.namespace()
    allow_scheduler(plane, namespace, namespace)
    found = seen(plane.api_of(namespace, "scheduler"), ChartRelease(settings=config(namespace=namespace)))
    missing = f"missing for running studies: get rayjobs.ray.io in {namespace}"
    assert found["rights"] == ("problem", missing)  # allow_scheduler leaves it out
    assert found["rayjob"][0] == "ok"
    for check in ("kuberay crds", "kuberay operator", "storage", "gpus", "nodes", "network policies"):
        assert found[check][0] == "unknown", check
        assert "403" in found[check][1]
