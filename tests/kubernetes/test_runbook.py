"""The messages that docs/kubernetes.md explains are those that Driftline says."""

import re

import kubernetes_validate
import pytest
import yaml

from service.launchers.kubernetes.config import Config
from tests.kubernetes_cluster.page import values

from .conftest import CHART, ROOT

PAGE = (ROOT / "docs" / "kubernetes.md").read_text()
# Said by others: helm, Kubernetes, MLflow.
FOREIGN = {
    "values don't meet the specifications of the schema": "helm",
    "UPGRADE FAILED: pre-upgrade hooks failed": "helm",
    "...-postgresql-0": "a name",
    "original object ... not found": "helm",
    "no ... with the name ... found": "helm",
    "context deadline exceeded": "helm",
    "Job in progress": "helm",
    "Invalid Host header": "MLflow",
    "Conflict": "a kind of error",
}
FILLED = r"\.\.\.|\b\d+/\d+ nodes are available:.*|\d+Gi|\b\d+\b|\(ImagePullBackOff\)"
FILLED += r"|, (?=what|the most|got)|(?<=takes )a worker|(?<=of )the head|resources\.(?:gpu|pool):"
FILLED += r"|(?<=the last error: )|(?<=cannot be started at the moment: )"  # what follows is a message of its own


def messages():
    """What stands in backticks in the first column of the table."""
    table = PAGE[PAGE.index("| message | what to do |") :].splitlines()[2:]
    rows = [line.split(" | ")[0].removeprefix("| ") for line in table if line.startswith("| ")]
    assert len(rows) >= 15
    return [message for row in rows for message in re.findall("`([^`]+)`", row)]


def spoken():
    """All that Driftline's code and chart can say, without what is filled in."""
    files = [*(ROOT / "service").rglob("*.py"), *CHART.rglob("*.txt"), *CHART.rglob("*.tpl"), *CHART.rglob("*.yaml")]
    files += (CHART / "files").rglob("*.py")
    refusals = re.findall(r'fail \(?(?:printf )?"([^"]+)"', (CHART / "templates" / "validation.yaml").read_text())
    return "\n".join([*(re.sub(r"\{[^{}]*\}", "\0", path.read_text()) for path in files), *refusals])


SPOKEN = spoken()


@pytest.mark.parametrize("message", messages())
def test_a_message_of_the_runbook_is_said(message):
    if message in FOREIGN:
        return
    parts = [part.strip() for part in re.split(FILLED, message)]
    long = [part for part in parts if len(part) > 3]
    assert long, message
    for part in long:
        assert part in SPOKEN, f"nothing says {part!r}"


def test_the_projects_and_pools_of_the_page_are_accepted(helm):
    patch, shown, pools, urls = [one for one in values(PAGE) if "studies" in one]
    patched = helm.objects(patch)
    spec = patched["Deployment", "r-driftline-api"]["spec"]["template"]["spec"]
    kubernetes_validate.validate(patched["Deployment", "r-driftline-api"], "1.31", strict=True)
    assert [one["name"] for one in (*spec["initContainers"], *spec["containers"])] == ["proxy", "api"]
    launcher = yaml.safe_load(patched["ConfigMap", "r-driftline"]["data"]["launcher.yaml"])
    document = Config.from_json(launcher).workers.pod_patch.document()
    assert document == patch["studies"]["workers"]["podPatch"]
    launcher = helm.objects(pools)["ConfigMap", "r-driftline"]["data"]["launcher.yaml"]
    assert Config.from_json(yaml.safe_load(launcher)).pools.keys() == pools["studies"]["pools"].keys()
    objects = helm.objects(shown)
    roles = [item for (kind, name), item in objects.items() if kind == "Role" and name.endswith("-scheduler")]
    named = {project["namespace"] for project in shown["studies"]["projects"].values()}
    assert named < {item["metadata"]["namespace"] for item in roles}
    (api,) = helm.objects(urls)["Deployment", "r-driftline-api"]["spec"]["template"]["spec"]["containers"]
    named = {one["name"]: one.get("value") for one in api["env"]}
    assert named["DRIFTLINE_DATA_URLS"].split(",") == urls["studies"]["dataUrls"]
