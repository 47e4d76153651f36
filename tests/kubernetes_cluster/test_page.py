"""docs/kubernetes.md, word for word, after its two commands, which the fixture runs. Its tests build on each other."""

import json
import shlex
from collections import Counter

import pytest
import urllib3

from driftline.errors import NotFound
from tests.kubernetes_cluster.node import say
from tests.kubernetes_cluster.release import CORE, NAMESPACE, PODS, RAY, REGISTRY, STUDIES, until, version
from tests.kubernetes_cluster.studies import SPEC, TRIALS
from tests.kubernetes_launcher.plane import OWN_CERTIFICATE

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(900), OWN_CERTIFICATE]
PARTS = ("api", "scheduler", "mlflow", "postgresql")
FIRST = "digits-fedavg-vs-fedprox"


def test_the_service_is_small_at_rest(deployed):
    say(f"MiB at rest: {deployed.at_rest}")
    of = {part: [mib for name, mib in deployed.at_rest.items() if f"-{part}-" in name] for part in PARTS}
    assert [len(of[part]) for part in PARTS] == [1, 2, 1, 1]
    by_default = 2 * of["api"][0] + sum(of["scheduler"]) + of["mlflow"][0] + of["postgresql"][0]
    assert by_default < 1024  # 0.78 GiB; the sum with the chart's own number of replicas, file caches included


def test_the_charts_own_test_runs_a_study(deployed):
    said = deployed.read["helm test"].result()
    assert "passed" in said
    assert "MLflow has the study" in said


def test_the_first_study_is_submitted_and_watched_through_a_forwarded_port(deployed):
    said = deployed.read["The first study"].result()
    say(said)
    assert deployed.client.job(FIRST).state == "SUCCEEDED"
    assert deployed.login.split(":")[1] in said  # the password of MLflow's account, as the page asks for it
    until(lambda: in_full(deployed), "MLflow has the first study", 120)
    port = deployed.shell.run("curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:5000/")
    assert port.endswith("401")  # MLflow's own door, through the other forwarded port


def in_full(deployed):
    """Whether MLflow shows all of the first study: its trials, its two labels and itself."""
    found, trials = deployed.runs_in_mlflow(FIRST), deployed.client.job(FIRST).trials()
    if found != len(trials) + 3:
        say(f"MLflow has {found} finished runs; trials: {Counter(trial.state for trial in trials)}")
    return found == len(trials) + 3


def test_a_derived_image_brings_its_own_task(deployed):
    said = deployed.page.follow("Data and code of your own")
    assert "Points around the directions of a compass" in said
    images = {
        container["image"]
        for pod in deployed.rest.items(f"{PODS}?labelSelector=app.kubernetes.io/component%3Dapi")
        if "deletionTimestamp" not in pod["metadata"]
        for container in pod["spec"]["containers"]
    }
    assert images == {"localhost:5080/driftline-compass:0.1.0"}
    own = {**SPEC, "name": "own-task", "task": {"name": "compass", "clients": 4}}
    own["objective"] = {"quality": "test_loss", "cost": "rounds"}
    url = f"{deployed.addresses['api']}/v1/studies?validate_only=true"
    headers = {"Authorization": f"Bearer {deployed.token}"}
    answer = urllib3.request("POST", url, json=own, headers=headers, timeout=60)
    assert answer.status == 200, answer.data
    assert answer.json()["estimate"]["trials"] == TRIALS


def test_an_upgrade_keeps_studies_and_secrets(deployed):
    secret = deployed.rest.get(f"{CORE}/secrets/driftline")["data"]
    said = deployed.page.follow("Upgrades")
    assert "has been upgraded" in said
    assert deployed.rest.get(f"{CORE}/secrets/driftline")["data"] == secret
    assert deployed.client.job(FIRST).state == "SUCCEEDED"


def test_an_upgrade_with_a_wrong_image_of_every_workload_rolls_back_with_one_command(deployed):
    wrong = {
        part: {"spec": {"containers": [{"name": part, "image": f"{REGISTRY}/driftline:missing"}]}} for part in PARTS
    }
    patches = [f"--set-json {shlex.quote(f'{part}.podPatch={json.dumps(patch)}')}" for part, patch in wrong.items()]
    rolled_back(deployed, f"{' '.join(patches)} --set migrations.enabled=false", PARTS)


def test_an_upgrade_whose_migration_has_a_wrong_image_rolls_back_with_one_command(deployed):
    """The image of this Job, which runs before the upgrade, is that of all of Driftline."""
    rolled_back(deployed, "--set image.tag=missing", ["migration"])
    deployed.shell.run(f"kubectl -n {NAMESPACE} delete job driftline-migration")  # kept for a look at it until here


def rolled_back(deployed, change, parts):
    """Upgrades with a change that leaves these parts without an image, and goes back."""
    chart = f"oci://{REGISTRY}/charts/driftline --version {version()} --plain-http"
    upgrade = f"helm upgrade driftline {chart} --namespace {NAMESPACE} --reset-then-reuse-values --wait"
    before = images(deployed)
    deployed.shell.run(f"{upgrade} --timeout 8s {change}", ok=False)
    for part in parts:
        until(lambda part=part: stuck(deployed, part), f"a pod of {part} with the wrong image is there", 120)
    deployed.shell.run(f"helm rollback driftline --namespace {NAMESPACE} --wait --timeout 4m")
    assert images(deployed) == before
    assert all(ready(deployed, one) for one in PARTS)
    assert deployed.client.job(FIRST).state == "SUCCEEDED"


def stuck(deployed, part):
    """Whether a pod of this part waits for an image that is not there."""
    return any(
        container["image"].endswith(":missing")
        for pod in deployed.rest.items(f"{PODS}?labelSelector=app.kubernetes.io/component%3D{part}")
        if "deletionTimestamp" not in pod["metadata"]
        for container in pod["spec"]["containers"]
    )


def images(deployed):
    """The image of each workload, as it is asked for."""
    apps = f"/apis/apps/v1/namespaces/{NAMESPACE}"
    found = [*deployed.rest.items(f"{apps}/deployments"), *deployed.rest.items(f"{apps}/statefulsets")]
    return {one["metadata"]["name"]: one["spec"]["template"]["spec"]["containers"][0]["image"] for one in found}


def test_a_backup_brings_back_what_a_lost_database_had(deployed):
    frontier = deployed.client.job(FIRST).frontier().data
    until(lambda: in_full(deployed), "MLflow has the first study", 120)
    deployed.page.follow("Backup and restore", stop="kubectl -n driftline scale")
    late = deployed.submit(SPEC, name="after-the-backup")
    late.cancel()
    until(lambda: late.state == "CANCELLED", "the later study is cancelled", 120)

    volume = deployed.folder / "postgresql"
    (volume / "pgdata").rename(volume / "lost")  # the server goes on in there until it ends
    deployed.kill("driftline-postgresql-0", CORE)
    until(lambda: ready(deployed, "postgresql"), "an empty PostgreSQL is there", 120)
    deployed.page.follow("Backup and restore")
    until(lambda: ready(deployed, "api"), "the API is back", 180)
    found = deployed.client.job(FIRST)
    assert found.state == "SUCCEEDED"
    assert found.frontier().data == frontier
    with pytest.raises(NotFound):
        deployed.client.job("after-the-backup")
    until(lambda: in_full(deployed), "MLflow is filled again", 240)


def ready(deployed, part):
    """Whether a pod of this part is ready."""
    return any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for pod in deployed.rest.items(f"{PODS}?labelSelector=app.kubernetes.io/component%3D{part}")
        if "deletionTimestamp" not in pod["metadata"]
        for condition in pod["status"].get("conditions", [])
    )


def test_an_uninstall_leaves_nothing_and_the_page_is_at_its_end(deployed):
    job = deployed.submit(SPEC, name="still-there")
    until(lambda: deployed.pods("head", job.id), "a study runs", 120)
    deployed.page.follow("Uninstall")
    until(lambda: not deployed.rest.items(PODS), "no pod is left", 120)
    for kind in ("services", "configmaps", "persistentvolumeclaims", "resourcequotas"):
        left = [one["metadata"]["name"] for one in deployed.rest.items(f"{CORE}/{kind}")]
        assert [name for name in left if name != "kube-root-ca.crt"] == [], kind
    secrets = [one["metadata"]["name"] for one in deployed.rest.items(f"{CORE}/secrets")]
    assert [name for name in secrets if not name.startswith("default-token-")] == []
    assert deployed.rest.items(f"{RAY}/rayjobs") == []
    assert deployed.rest.get(f"/api/v1/namespaces/{STUDIES}") is None
    deployed.page.finish()
