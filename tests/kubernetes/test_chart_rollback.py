"""A release that an upgrade has left failed, at whatever stage, goes back to the revision before it at once."""

import json
import sys

import pytest
import yaml

from tests.waiting import together

from .conftest import CHART, Helm
from .standing_node import StandingNode
from .tools import tool

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
MIGRATION = [sys.executable, "-c", "import os, sys; sys.exit('FAIL' in os.environ)"]
COMMANDS = {"driftline": MIGRATION, "sh": [sys.executable, "-c", "pass"], "python": [sys.executable, "-c", "pass"]}
STAGES = {
    "migration": "extraEnv[0].name=FAIL,extraEnv[0].value=yes,migrations.deadlineSeconds=5",
    "image of a hook": "image.tag=missing",
    "readiness": "image.tag=missing,postgresql.image.tag=missing,migrations.enabled=false",
    "admission": "image.tag=next,api.resources.requests.memory=4Gi,api.resources.limits.memory=1Gi",
}
ENOUGH = ("--wait", "--timeout", "120s")
VAIN = ("--wait", "--timeout", "12s")
VAIN_AND_BACK = ("--wait", "--timeout", "40s")  # Helm gives its rollback as long as the upgrade
VALUES = {
    "image": {"tag": "first"},
    "postgresql": {"persistence": {"enabled": False}},
    "mlflow": {"artifacts": {"persistence": {"enabled": False}}},
}
DATA = {"enabled": True, "download": {"url": "https://example.org/d.tar", "sha256": "a" * 64}}


def volume(namespace, claim):
    """A volume that the claim takes: there is no storage class."""
    name = f"r-driftline-{claim}"
    spec = {"capacity": {"storage": "100Gi"}, "accessModes": ["ReadWriteMany"], "hostPath": {"path": f"/tmp/{name}"}}
    spec["claimRef"] = {"namespace": namespace, "name": name}
    about = {"name": f"{namespace}-{claim}"}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": about, "spec": spec}


def test_a_failed_upgrade_is_rolled_back_at_the_first_try(plane, kubectl, tmp_path):
    """With both versions of Helm at the same time, since they wait most of it."""
    with StandingNode(plane, COMMANDS, missing="missing"):
        together(
            [
                lambda: life_of_a_release(plane, kubectl, tmp_path, "helm", "--rollback-on-failure", shared=False),
                lambda: life_of_a_release(plane, kubectl, tmp_path, "helm3", "--atomic", shared=True),
            ]
        )


def life_of_a_release(plane, kubectl, folder, program, option, shared):
    """Installs a release and lets its upgrades fail, with and without the option that rolls back.

    Args:
        plane: The control plane.
        kubectl: Runs kubectl.
        folder: For the release's values.
        program: helm or helm3.
        option: Has Helm roll a failed upgrade back by itself.
        shared: Whether studies are in the release's own namespace, not in one that the chart makes.
    """
    helm = Helm(tool(program), {"KUBECONFIG": str(plane.kubeconfig)})
    namespace = plane.namespace()
    studies = namespace if shared else f"{namespace}-r-driftline-studies"
    claims = ("checkpoints", "data") if shared else ("checkpoints",)
    where = ("--namespace", namespace)
    for claim in claims:
        plane.send("POST", "/api/v1/persistentvolumes", volume(studies, claim), ok=(201,))
    settings = folder / f"{program}.yaml"
    settings.write_text(
        yaml.safe_dump({**VALUES, **({"studies": {"namespace": namespace}, "data": DATA} if shared else {})})
    )

    def state():
        """The release's status, and the images and names of all Jobs, Deployments and StatefulSets."""
        status = json.loads(helm("status", "r", *where, "-o", "json").stdout)["info"]["status"]
        items = [
            item
            for place in {namespace, studies}
            for item in json.loads(kubectl("get", "jobs,deployments,statefulsets", "--namespace", place, "-o", "json"))[
                "items"
            ]
        ]
        steady = [item for item in items if not item["metadata"]["name"].endswith("migration")]
        return status, {
            (item["kind"], item["metadata"]["name"]): item["spec"]["template"]["spec"]["containers"][0]["image"]
            for item in steady
        }

    helm("install", "r", str(CHART), *where, "-f", str(settings), *ENOUGH)
    status, objects = state()
    assert status == "deployed"
    assert objects.keys() == {
        *(("Job", f"r-driftline-{claim}") for claim in claims),
        *(("Deployment", f"r-driftline-{part}") for part in ("api", "scheduler", "mlflow")),
        ("StatefulSet", "r-driftline-postgresql"),
    }
    upgrade = ("upgrade", "r", str(CHART), *where, "-f", str(settings))
    for stage, change in STAGES.items():
        assert helm(*upgrade, "--set", change, *VAIN, ok=False).returncode != 0, stage
        assert state()[0] == "failed", stage
        helm("rollback", "r", *where, *ENOUGH)  # to the last one that was deployed
        assert state() == ("deployed", objects), stage

        done = helm(*upgrade, "--set", change, *VAIN_AND_BACK, option, ok=False)
        assert done.returncode != 0, stage
        assert "error occurred while rolling back" not in done.stderr, stage
        assert state() == ("deployed", objects), stage
    next_tags = "image.tag=next,postgresql.image.tag=next"
    helm(*upgrade, "--set", next_tags, *ENOUGH)
    status, later = state()
    assert status == "deployed"
    assert later.keys() == objects.keys()
    assert {image.rpartition(":")[2] for image in later.values()} == {"next"}
    helm("rollback", "r", *where, *ENOUGH)
    assert state() == ("deployed", objects)
    helm("uninstall", "r", *where, *ENOUGH)
    for claim in claims:
        plane.send("DELETE", f"/api/v1/persistentvolumes/{studies}-{claim}", ok=(200, 404))
