"""End to end on a real node: the chart, its own test, and a study that outlives its worker, its head and a pause.

KubeRay's operator is stood in for by tests/kubernetes_cluster/kuberay.py; all else is what people run.
"""

import base64
import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import urllib3

from driftline import Client, Study
from service.sdk.job import StudyFailed
from tests.kubernetes_cluster import node as nodes
from tests.kubernetes_cluster.node import KUBE, ROOT, Node, say
from tests.kubernetes_cluster.rest import Rest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.cluster,
    pytest.mark.timeout(1500),
    pytest.mark.filterwarnings("ignore:Unverified HTTPS request"),  # the test server's certificate is its own
]
NAMESPACE = "driftline"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
RAYJOBS = f"/apis/ray.io/v1/namespaces/{NAMESPACE}/rayjobs"
ROUNDS = 12_000
SPEC = {
    "name": "on-kubernetes",
    "task": {"name": "quadratic", "problem": "random", "clients": 6, "dimension": 3},
    "methods": [
        {
            "label": "fedavg",
            "name": "fedavg",
            "space": {
                "client_lr": {"float": [1e-3, 0.1], "log": True},
                "server_lr": 0.05,
                "local_steps": {"choice": [1, 5]},
            },
        }
    ],
    "objective": {"quality": "train_loss", "cost": "rounds"},
    "budget": {"trials_per_method": 12, "rounds": ROUNDS, "seeds": 1, "front": 2},
    "resources": {"gpu": 0.5, "packs": 2},
}
TRIALS = 14


@dataclass
class Deployed:
    """A release of the chart, and how to speak to it."""

    node: Node
    rest: Rest
    client: Client
    mlflow: str
    login: str

    def submit(self, **changes):
        return self.client.submit(Study(**{**SPEC, **changes}))

    def pods(self, kind, study):
        """The living Ray pods of a study."""
        selector = f"driftline.io/study%3D{study},ray.io/node-type%3D{kind}"
        found = self.rest.items(f"{PODS}?labelSelector={selector}")
        return [pod["metadata"]["name"] for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def kill(self, name):
        """Ends a pod at once, as a node that goes away does."""
        say(f"kill {name}")
        self.rest.send("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})

    def rayjobs(self, study):
        return self.rest.items(f"{RAYJOBS}?labelSelector=driftline.io/study%3D{study}")


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    nodes.require()
    folder = tmp_path_factory.mktemp("node")
    checkpoints = folder / "checkpoints"
    checkpoints.mkdir()
    checkpoints.chmod(0o777)
    with contextlib.ExitStack() as stack:
        node = stack.enter_context(started(folder))
        stack.enter_context(node.inside())
        stack.enter_context(operator(node, folder / "operator.log"))
        stack.callback(show, node, folder / "operator.log")
        made = install(node, checkpoints)
        stack.callback(made.client.close)
        yield made


@contextlib.contextmanager
def started(folder):
    """A node with the images; DRIFTLINE_TEST_NODE names the folder of one that is kept between runs."""
    kept = os.environ.get("DRIFTLINE_TEST_NODE")
    node = Node(Path(kept) if kept else folder / "kube")
    with contextlib.ExitStack() as stack:
        if kept and node.kubeconfig.exists():
            node.run("helm", "uninstall", "driftline", "-n", NAMESPACE, "--ignore-not-found", "--wait")
        elif not kept:
            stack.callback(node.down)
        if not node.kubeconfig.exists():
            archives = nodes.images(folder / "images")
            node.up()
            for archive in archives:
                node.load(archive)
        yield node


@contextlib.contextmanager
def operator(node, log):
    """The stand-in for KubeRay, as a process beside the node."""
    crds = [option for name in ("rayjobs", "rayclusters") for option in ("-f", KUBE / "crds" / f"{name}.stripped.yaml")]
    node.run("kubectl", "apply", "--server-side", "--validate=false", *map(str, crds))
    with log.open("wb") as file:
        argv = node.command(sys.executable, "-m", "tests.kubernetes_cluster.kuberay")
        process = subprocess.Popen(argv, cwd=ROOT, stdout=file, stderr=file, start_new_session=True)
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(10)


def install(node, checkpoints):
    """Installs the chart with its built-in parts; the checkpoints lie on a folder of the node."""
    say("helm install")
    chart = ["driftline", str(ROOT / "helm/driftline"), "-n", NAMESPACE, "--create-namespace"]
    values = ["-f", str(ROOT / "tests/kubernetes_cluster/values.yaml")]
    folder = ["--set", f"checkpoints.volume.source.hostPath.path={checkpoints}"]
    node.run("helm", "install", *chart, *values, *folder, "--wait", "--timeout", "10m", timeout=660)
    say("the chart is installed")
    rest = Rest(node.kubeconfig)
    services = {}
    for service in rest.items(f"/api/v1/namespaces/{NAMESPACE}/services"):
        part = service["metadata"].get("labels", {}).get("app.kubernetes.io/component")
        services[part] = f"http://{service['spec']['clusterIP']}:{service['spec']['ports'][0]['port']}"
    secrets = {}
    for secret in rest.items(f"/api/v1/namespaces/{NAMESPACE}/secrets"):
        secrets |= {key: base64.b64decode(value).decode() for key, value in (secret.get("data") or {}).items()}
    login = f"{secrets['mlflow-username']}:{secrets['mlflow-password']}"
    return Deployed(node, rest, Client(services["api"], secrets["admin-token"]), services["mlflow"], login)


def show(node, log):
    """What a failure is understood from."""
    with contextlib.suppress(Exception):
        print(node.run("kubectl", "-n", NAMESPACE, "get", "pods,rayjobs", "-o", "wide"))
        for part in ("scheduler", "api"):
            labels = f"app.kubernetes.io/component={part}"
            print(node.run("kubectl", "-n", NAMESPACE, "logs", "-l", labels, "--tail", "60", "--prefix"))
    print(log.read_text()[-12_000:])


def until(true, what, seconds=240.0):
    """Waits until something holds; gives it."""
    say(f"wait: {what}")
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.5)
    return found


def done(job):
    """The share of the search's rounds that has been reported."""
    return job.record().progress["fedavg"].rounds_done / (TRIALS * ROUNDS)


def test_a_study_outlives_its_worker_its_head_and_a_pause(deployed):
    job = deployed.submit()
    say(f"submitted {job.id}")
    until(lambda: done(job) > 0.08, "the study trains", 420)
    [worker] = deployed.pods("worker", job.id)
    spec = deployed.rest.get(f"{PODS}/{worker}")["spec"]["containers"][0]
    assert spec["resources"]["limits"]["nvidia.com/gpu"] == "2"
    running = job.trials(state="RUNNING")
    assert len({trial.pack for trial in running}) <= 4  # packs of half a GPU on two GPUs

    deployed.kill(worker)
    at = done(job)
    until(lambda: done(job) > at + 0.08, "it goes on after its worker was killed", 420)
    assert worker not in deployed.pods("worker", job.id)

    attempt = attempts(deployed, job)
    [head] = deployed.pods("head", job.id)
    deployed.kill(head)
    later = until(
        lambda: [
            one for one in deployed.rayjobs(job.id) if int(one["metadata"]["labels"]["driftline.io/attempt"]) > attempt
        ],
        "another attempt is started after its head was killed",
        120,
    )
    assert later[0]["metadata"]["name"].startswith(f"driftline-{job.id}-")
    at = done(job)
    until(lambda: done(job) > at + 0.05, "it goes on after its head was killed", 420)

    job.pause()
    until(lambda: job.state == "PAUSED", "it is paused")
    until(lambda: not deployed.pods("head", job.id) + deployed.pods("worker", job.id), "its pods are gone", 180)
    assert all(one["spec"].get("suspend") for one in deployed.rayjobs(job.id))
    job.resume()
    job.wait(timeout_s=600)
    say("the study has finished")

    trials = job.trials()
    assert len(trials) == TRIALS
    assert {trial.state for trial in trials} == {"COMPLETE"}
    assert {trial.rounds_done for trial in trials} == {ROUNDS}
    for curve in job.curves().values():
        assert curve["round"] == sorted(set(curve["round"]))
        assert curve["round"][-1] == ROUNDS
    found = job.frontier().data["methods"]["fedavg"]
    assert found["points"]
    assert found["ledger"]["trials"] == TRIALS
    until(lambda: not deployed.pods("head", job.id), "its Ray cluster is gone", 180)
    until(lambda: not deployed.rayjobs(job.id), "its RayJob is gone", 180)
    until(lambda: runs_in_mlflow(deployed, SPEC["name"]) >= TRIALS, "MLflow has all trials", 180)


def attempts(deployed, job):
    """The newest attempt for which there is a RayJob."""
    return max((int(one["metadata"]["labels"]["driftline.io/attempt"]) for one in deployed.rayjobs(job.id)), default=0)


def runs_in_mlflow(deployed, name):
    """How many runs MLflow holds for a study."""
    headers = urllib3.make_headers(basic_auth=deployed.login) | {"Host": f"driftline-mlflow.{NAMESPACE}.svc:5000"}
    ask = urllib3.PoolManager(headers=headers)
    api = f"{deployed.mlflow}/api/2.0/mlflow"
    found = ask.request("POST", f"{api}/experiments/search", json={"max_results": 100}).json().get("experiments", [])
    ids = [one["experiment_id"] for one in found if name in one["name"]]
    if not ids:
        return 0
    body = {"experiment_ids": ids, "max_results": 1000}
    return len(ask.request("POST", f"{api}/runs/search", json=body).json().get("runs", []))


def test_a_study_that_fits_no_worker_fails_with_a_reason(deployed):
    job = deployed.submit(name="too-much", resources={"gpu": 3})
    with pytest.raises(StudyFailed, match=r"resources.gpu: must be at most the 2 of a worker, got 3"):
        job.wait(timeout_s=120)
    assert deployed.rayjobs(job.id) == []


def test_a_cancelled_study_leaves_nothing(deployed):
    job = deployed.submit(name="cancelled")
    until(lambda: deployed.rayjobs(job.id), "its RayJob is there", 60)
    job.cancel()
    until(lambda: job.state == "CANCELLED", "it is cancelled", 120)
    until(lambda: not deployed.rayjobs(job.id), "its RayJob is gone", 120)
    until(lambda: not deployed.pods("head", job.id), "its pods are gone", 120)


def test_the_charts_own_test_runs_a_study(deployed):
    say("helm test")
    print(deployed.node.run("helm", "test", "driftline", "-n", NAMESPACE, "--timeout", "10m", "--logs", timeout=660))
    say("helm test is green")
