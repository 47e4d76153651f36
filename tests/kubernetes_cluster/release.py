"""A release of the chart on the test node, made as docs/kubernetes.md says, and how tests speak to it."""

import base64
import contextlib
import hashlib
import shlex
import sys
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import urllib3
import yaml

from driftline import Client, Study
from tests.kubernetes_cluster.node import KUBE, ROOT, VERSION, Node, say
from tests.kubernetes_cluster.page import PAGE, Change, Page, Shell, values
from tests.kubernetes_cluster.rest import Rest

NAMESPACE = "driftline"
REGISTRY = "localhost:5080"  # the page forwards port 5000 to MLflow
CORE = f"/api/v1/namespaces/{NAMESPACE}"
PODS = f"{CORE}/pods"
STUDIES = "driftline-studies"
STUDIES_CORE = f"/api/v1/namespaces/{STUDIES}"
RAY = f"/apis/ray.io/v1/namespaces/{STUDIES}"
HOST, FILES_PORT = "10.77.0.1", 8899
"""Where the node's own computer serves files; pods reach it as they reach the API server."""
DATA_URL = f"http://{HOST}:{FILES_PORT}/data.tar.gz"


def version():
    """The chart's version."""
    return yaml.safe_load((ROOT / "helm/driftline/Chart.yaml").read_text())["version"]


def publish(node, folder):
    """Packages the chart with the image that is in the registry, and pushes it, as the release's workflow does."""
    image = [f"{REGISTRY}/driftline", node.registry.digest("driftline", VERSION)]
    script = [sys.executable, str(ROOT / ".ci/release.py")]
    packaged = node.run(*script, "chart", *image, "--out", str(folder))
    node.run("helm", "push", packaged.strip(), f"oci://{REGISTRY}/charts", "--plain-http")


def changes(folder):
    """All that is done differently from the page."""
    crds = " ".join(f"-f {KUBE}/crds/{name}.stripped.yaml" for name in ("rayjobs", "rayclusters"))
    operator = (
        f"kubectl apply --server-side --validate=false {crds}\n"
        f"kubectl delete --ignore-not-found -f {folder}/volume.yaml && kubectl create -f {folder}/volume.yaml\n"
        f"{sys.executable} -m tests.kubernetes_cluster.kuberay > {folder}/operator.log 2>&1 &"
    )
    files = f"-f tests/kubernetes_cluster/values.yaml -f {folder}/data.yaml"
    checkpoints = f"--set checkpoints.volume.source.hostPath.path={folder}/checkpoints"
    chart = f"oci://{REGISTRY}/charts/driftline --version {version()} --plain-http"
    without = "no Docker: buildah has built the images, and the tests have pushed them"
    return [
        Change("docker build", None, without),
        Change("docker push", None, without),
        Change("helm install kuberay-operator", operator, "KubeRay cannot be had here: a stand-in of the tests"),
        Change(" kuberay-operator --repo https://ray-project.github.io/kuberay-helm/", "", "the same"),
        Change(" --namespace kuberay --create-namespace --version 1.7.0", "", "the same"),
        Change(
            "helm install driftline helm/driftline",
            f"helm install driftline {chart} {files} {checkpoints}",
            "the chart as it is released; two cores, no storage class: small requests, folders of the node; data",
        ),
        Change(
            "--set image.repository=REGISTRY/driftline --set image.tag=0.3.0",
            "",
            "a released chart names its image, by digest",
        ),
        Change("helm upgrade driftline helm/driftline", f"helm upgrade driftline {chart}", "the same"),
        Change("REGISTRY/", f"{REGISTRY}/", "the node's own registry"),
        Change("image.tag=NEW", "image.tag=0.1.0", "there is one version: the upgrade changes nothing but runs whole"),
        Change("workers.max=4", "workers.max=2", "two cores"),
        Change("driftline.dump", f"{folder}/driftline.dump", "not into the repository"),
        Change("examples/digits.yaml", f"{folder}/digits.yaml", "the same study with a smaller budget"),
    ]


@dataclass
class Deployed:
    """A release of the chart, and how to speak to it.

    Attributes:
        at_rest: MiB that each pod of the service uses before the first study.
        read: What the commands of the page printed that are followed beside the first tests, as futures.
    """

    node: Node
    rest: Rest
    client: Client
    page: Page
    shell: Shell
    folder: Path
    addresses: dict
    login: str
    token: str
    at_rest: dict
    read: dict

    def submit(self, spec, **changes):
        return self.client.submit(Study(**{**spec, **changes}))

    def pods(self, kind, study):
        """The living Ray pods of a study."""
        return [pod["metadata"]["name"] for pod in self._living(kind, study)]

    def running(self, kind, study):
        """Those of them whose containers run."""
        return [pod["metadata"]["name"] for pod in self._living(kind, study) if pod["status"]["phase"] == "Running"]

    def _living(self, kind, study):
        selector = f"driftline.io/study%3D{study},ray.io/node-type%3D{kind}"
        found = self.rest.items(f"{STUDIES_CORE}/pods?labelSelector={selector}")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def kill(self, name, core=STUDIES_CORE):
        """Ends a pod at once, as a node that goes away does."""
        say(f"kill {name}")
        self.rest.send("DELETE", f"{core}/pods/{name}", {"gracePeriodSeconds": 0})

    def starve(self, name):
        """Takes all memory of a worker's pod, so that its container ends as a whole.

        By itself it does so since Kubernetes 1.28, with cgroup v2: before, the kernel ends one process. So the first
        process is made the one to be ended first, and those that take the memory are many and small.
        """
        say(f"starve {name}")
        take = "python -Sc \"import time; taken = b'x' * (64 << 20); time.sleep(60)\""
        script = f"echo 1000 > /proc/1/oom_score_adj; for n in $(seq 64); do {take} & done; wait"
        command = ["kubectl", "-n", STUDIES, "exec", name, "-c", "ray-worker", "--", "bash", "-c", script]
        self.node.run("bash", "-c", f"{shlex.join(command)} || true")

    def data_logs(self):
        """The log of the data Job's first pod; "" before it runs."""
        for pod in self.rest.items(f"{PODS}?labelSelector=app.kubernetes.io/component%3Ddata"):
            if pod["status"]["phase"] == "Pending":
                return ""
            return self.rest.send("GET", f"{CORE}/pods/{pod['metadata']['name']}/log")
        return ""

    def rayjobs(self, study):
        return self.rest.items(f"{RAY}/rayjobs?labelSelector=driftline.io/study%3D{study}")

    def raycluster(self, study):
        """The newest RayCluster of a study, or None."""
        found = self.rest.items(f"{RAY}/rayclusters?labelSelector=driftline.io/study%3D{study}")
        return max(found, key=lambda one: one["metadata"]["creationTimestamp"], default=None)

    def runs_in_mlflow(self, name):
        """How many finished runs MLflow holds for a study."""
        headers = urllib3.make_headers(basic_auth=self.login) | {"Host": f"driftline-mlflow.{NAMESPACE}.svc:5000"}
        ask = urllib3.PoolManager(headers=headers, retries=False)
        api = f"{self.addresses['mlflow']}/api/2.0/mlflow"
        answer = ask.request("POST", f"{api}/experiments/search", json={"max_results": 100})
        if answer.status != 200:
            return 0
        ids = [one["experiment_id"] for one in answer.json().get("experiments", []) if name in one["name"]]
        if not ids:
            return 0
        body = {"experiment_ids": ids, "max_results": 1000}
        runs = ask.request("POST", f"{api}/runs/search", json=body).json().get("runs", [])
        return sum(run["info"]["status"] == "FINISHED" for run in runs)


def until(true, what, seconds=240.0):
    """Waits until something holds; gives it."""
    say(f"wait: {what}")
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.5)
    return found


def prepare(folder, data):
    """Puts what the release needs into a folder: volumes, the data set's archive, values, the first study."""
    for name in ("checkpoints", "data", "files", "postgresql"):
        (folder / name).mkdir()
        (folder / name).chmod(0o777)
    archive = folder / "files" / DATA_URL.rpartition("/")[2]
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(data / "fashion_mnist_900", "fashion_mnist_900")
    [shown] = [one for one in values(PAGE.read_text()) if "data" in one]
    wanted = shown["data"]
    assert wanted.keys() == {"enabled", "existingClaim", "download"}
    assert wanted["download"].keys() == {"url", "sha256"}
    del wanted["existingClaim"]
    wanted["source"] = {"hostPath": {"path": str(folder / "data")}}
    wanted["download"] = {"url": DATA_URL, "sha256": hashlib.sha256(archive.read_bytes()).hexdigest()}
    (folder / "data.yaml").write_text(yaml.safe_dump(shown))
    claim = {"namespace": NAMESPACE, "name": "driftline-postgresql"}
    place = {"hostPath": {"path": str(folder / "postgresql")}}  # for the claim: there is no storage class
    spec = {"capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "claimRef": claim, **place}
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "postgresql"}, "spec": spec}
    (folder / "volume.yaml").write_text(yaml.safe_dump(volume))
    study = yaml.safe_load((ROOT / "examples" / "digits.yaml").read_text())
    study |= {"budget": {"trials_per_method": 2, "rounds": 10, "seeds": 1}}
    (folder / "digits.yaml").write_text(yaml.safe_dump(study))


@contextlib.contextmanager
def installed(node, folder, data):
    """The chart, installed with the page's two commands; call it inside the node's network."""
    prepare(folder, data)
    publish(node, folder)
    shell = Shell(node.command("bash"), {"OMP_NUM_THREADS": "1"})
    shell.run(f"{sys.executable} -m http.server {FILES_PORT} -d {folder}/files > {folder}/files.log 2>&1 &")
    page = Page(shell, changes(folder))
    with contextlib.ExitStack() as stack:
        reader = stack.enter_context(ThreadPoolExecutor(1))
        stack.callback(shell.close)
        stack.callback(show, node, folder)
        page.follow("The image")
        page.follow("Two commands", stop="helm test")
        rest = Rest(node.kubeconfig)
        addresses = {}
        for service in rest.items(f"{CORE}/services"):
            part = service["metadata"].get("labels", {}).get("app.kubernetes.io/component")
            addresses[part] = f"http://{service['spec']['clusterIP']}:{service['spec']['ports'][0]['port']}"
        secret = rest.get(f"{CORE}/secrets/driftline")["data"]
        told = {key: base64.b64decode(value).decode() for key, value in secret.items()}
        client = stack.enter_context(Client(addresses["api"], told["admin-token"]))
        login = f"{told['mlflow-username']}:{told['mlflow-password']}"
        at_rest = until(lambda: memory(rest), "the kubelet has measured the memory of all pods", 120)
        read = {  # while the tests of the cluster run: a study on the node leaves room for another one
            "helm test": reader.submit(lambda: page.follow("Two commands")),
            "The first study": reader.submit(lambda: page.follow("The first study")),
        }
        yield Deployed(node, rest, client, page, shell, folder, addresses, login, told["admin-token"], at_rest, read)


def memory(rest):
    """MiB that each running pod of the service uses, its working set; {} until the kubelet has measured all."""
    stats = rest.get("/api/v1/nodes/node-0/proxy/stats/summary")["pods"]
    used = {pod["podRef"]["name"]: pod.get("memory", {}).get("workingSetBytes", 0) / 2**20 for pod in stats}
    pods = [pod["metadata"]["name"] for pod in rest.items(f"{PODS}?fieldSelector=status.phase%3DRunning")]
    return {name: round(used[name]) for name in pods} if all(used.get(name) for name in pods) else {}


def show(node, folder):
    """What a failure is understood from."""
    with contextlib.suppress(Exception):
        for namespace in (NAMESPACE, STUDIES):
            print(node.run("kubectl", "-n", namespace, "get", "pods,rayjobs", "-o", "wide"))
        for part in ("scheduler", "api"):
            labels = f"app.kubernetes.io/component={part}"
            print(node.run("kubectl", "-n", NAMESPACE, "logs", "-l", labels, "--tail", "60", "--prefix"))
    with contextlib.suppress(FileNotFoundError):
        print((folder / "operator.log").read_text()[-12_000:])
