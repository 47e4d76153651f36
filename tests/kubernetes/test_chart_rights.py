"""What the chart's accounts may do, asked of a real Kubernetes API."""

import pytest

from .conftest import CHART, KINDS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
RAYJOBS = tuple(f"{verb} rayjobs.ray.io" for verb in ("get", "list", "watch", "create", "patch", "delete"))
NOBODY = ("get secrets", "list pods", "get configmaps", "create rayjobs.ray.io", "create secrets", "list nodes")
RIGHTS = {
    "scheduler": {
        "yes": (*RAYJOBS, "create secrets", "patch secrets", "list pods", "watch pods"),
        "no": (
            *("get secrets", "list secrets", "delete secrets", "get configmaps", "list nodes", "create roles"),
            *("get pods", "create pods", "delete pods", "create pods/exec", "get pods/log"),
            *("update rayjobs.ray.io", "deletecollection rayjobs.ray.io", "create rayclusters.ray.io"),
        ),
    },
    "service": {"yes": (), "no": NOBODY},
    "studies": {"yes": (), "no": NOBODY},
}


def test_rights_are_given_and_withheld(plane, cluster_helm, kubectl):
    namespace = plane.namespace()
    cluster_helm("install", "r", str(CHART), "--namespace", namespace, "--no-hooks")
    for account, rights in RIGHTS.items():
        who = f"system:serviceaccount:{namespace}:r-driftline-{account}"
        for answer, asked in rights.items():
            for right in asked:
                verb, what = right.split()
                what, _, sub = what.partition("/")
                options = (f"--subresource={sub}",) if sub else ()
                found = kubectl("auth", "can-i", verb, what, "--as", who, "--namespace", namespace, *options, ok=False)
                assert found.splitlines()[-1] == answer, f"{account}: {right}"
        elsewhere = kubectl(
            "auth", "can-i", "create", "rayjobs.ray.io", "--as", who, "--namespace", "default", ok=False
        )
        assert elsewhere.splitlines()[-1] == "no", account
    cluster_helm("uninstall", "r", "--namespace", namespace, "--no-hooks")


def test_studies_in_another_namespace_are_all_that_the_scheduler_touches(plane, cluster_helm, kubectl):
    home, away = plane.namespace(), plane.namespace()
    settings = ("--set", f"studies.namespace={away},checkpoints.volume.existingClaim=theirs")
    cluster_helm("install", "r", str(CHART), "--namespace", home, "--no-hooks", *settings)
    who = f"system:serviceaccount:{home}:r-driftline-scheduler"
    for namespace, answer in ((home, "no"), (away, "yes")):
        for right in (("create", "rayjobs.ray.io"), ("patch", "secrets")):
            assert (
                kubectl("auth", "can-i", *right, "--as", who, "--namespace", namespace, ok=False).splitlines()[-1]
                == answer
            )
    cluster_helm("uninstall", "r", "--namespace", home, "--no-hooks")
    assert kubectl("get", KINDS, "--namespace", away, "-o", "name", "-l", "app.kubernetes.io/instance=r") == ""
