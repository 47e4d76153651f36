"""What the chart's accounts and a study's account may do, asked of a real Kubernetes API."""

import pytest
import yaml

from driftline.errors import Forbidden, NotFound
from service.launchers.kubernetes.config import Config
from service.launchers.kubernetes.launcher import KubernetesLauncher
from service.launchers.kubernetes.naming import job_name
from tests.kubernetes_cluster.rayclusters import RayClusters
from tests.kubernetes_cluster.rayjobs import RayJobs
from tests.kubernetes_cluster.rest import Refused, Rest
from tests.kubernetes_launcher.made import STUDY, launch
from tests.kubernetes_launcher.plane import OWN_CERTIFICATE
from tests.waiting import until

from .conftest import CHART, KINDS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), OWN_CERTIFICATE]
OTHER = "01k6vq8r9s2t3v4w5x6y7z8zzz"
RAYJOBS = tuple(f"{verb} rayjobs.ray.io" for verb in ("get", "list", "watch", "create", "patch", "delete"))
SCHEDULER = (
    *(*RAYJOBS, "create secrets", "patch secrets", "list pods", "watch pods"),
    *(
        f"{verb} {what}"
        for verb in ("create", "patch")
        for what in ("serviceaccounts", "networkpolicies.networking.k8s.io")
    ),
)
ALWAYS_NO = (
    *("get secrets", "list secrets", "delete secrets", "get configmaps", "list nodes", "create roles"),
    *("create rolebindings", "create pods", "delete pods", "create pods/exec", "get pods/log", "update pods"),
    *(
        "update rayjobs.ray.io",
        "deletecollection rayjobs.ray.io",
        "create rayclusters.ray.io",
        "create deployments.apps",
    ),
    *("get serviceaccounts", "create serviceaccounts/token", "delete networkpolicies.networking.k8s.io"),
    *("impersonate serviceaccounts", "get persistentvolumeclaims", "create deployments.apps"),
)
SCALING = (
    *("get pods", "list pods", "watch pods", "patch pods", "patch pods/resize"),
    *("get rayclusters.ray.io", "patch rayclusters.ray.io"),
)
"""What KubeRay's Role gives a head's account, in its namespace, where Ray's autoscaler runs."""
EVERYTHING = tuple(dict.fromkeys((*SCHEDULER, *SCALING, *ALWAYS_NO)))


@pytest.fixture
def can(plane):
    """Which of these an account may do in a namespace, as `kubectl auth can-i` asks it."""

    def ask(account, namespace, rights):
        allowed = set()
        for right in rights:
            verb, what = right.split()
            kind, _, sub = what.partition("/")
            resource, _, group = kind.partition(".")
            asked = {"namespace": namespace, "verb": verb, "group": group, "resource": resource, "subresource": sub}
            groups = ["system:serviceaccounts", f"system:serviceaccounts:{account[0]}", "system:authenticated"]
            who = {"user": f"system:serviceaccount:{':'.join(account)}", "groups": groups}
            review = {"spec": {**who, "resourceAttributes": asked}}
            if plane.send("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)[1]["status"]["allowed"]:
                allowed.add(right)
        return allowed

    return ask


def test_rights_are_given_and_withheld(plane, cluster_helm, can):
    home = plane.namespace()
    cluster_helm("install", "r", str(CHART), "--namespace", home, "--no-hooks")
    studies = f"{home}-r-driftline-studies"
    scheduler = (home, "r-driftline-scheduler")
    assert can(scheduler, studies, EVERYTHING) == set(SCHEDULER)
    assert can(scheduler, home, EVERYTHING) == set()
    for account in ((home, "r-driftline-service"), (home, "r-driftline-mlflow"), (studies, "r-driftline-studies")):
        for namespace in (home, studies):
            assert can(account, namespace, EVERYTHING) == set(), account
    assert can(scheduler, "default", ("create rayjobs.ray.io", "patch secrets")) == set()
    cluster_helm("uninstall", "r", "--namespace", home, "--no-hooks")


def test_a_study_reaches_neither_the_service_nor_other_studies(plane, cluster_helm, kubectl, can):
    """An attack that worked while studies ran in the release's namespace, step by step.

    From a worker into the head's container with Ray's token; there the account's token; with that the worker template
    of the RayCluster, with a reference to the service's Secret.
    """
    home, team = plane.namespace(), plane.namespace()
    settings = ("--set", f"studies.workers.max=2,studies.projects.team.namespace={team}")
    cluster_helm("install", "r", str(CHART), "--namespace", home, "--no-hooks", *settings)
    studies = f"{home}-r-driftline-studies"
    text = yaml.safe_load(kubectl("get", "configmap", "r-driftline", "--namespace", home, "-o", "yaml"))["data"]
    read = Config.from_json(yaml.safe_load(text["launcher.yaml"]))
    scheduler = plane.api_of(home, "r-driftline-scheduler")
    launcher = KubernetesLauncher(read, scheduler.within(studies), url="http://a", folder="/checkpoints")
    launcher.start(launch())
    launcher.start(launch(OTHER))
    launcher.start(launch("01k6zzzzzzzzzzzzzzzzzzzzzz", project="team"))

    rest = Rest(plane.kubeconfig)
    path = f"/apis/ray.io/v1/namespaces/{studies}"
    operator = RayJobs(rest)
    job = f"{path}/rayjobs/{job_name(STUDY, 1)}"
    for _ in range(2):
        operator.look(rest.send("GET", job))
    (cluster,) = rest.items(f"{path}/rayclusters")
    cluster |= {"apiVersion": "ray.io/v1", "kind": "RayCluster"}
    RayClusters(rest).look(cluster)
    found = rest.items(f"/api/v1/namespaces/{studies}/pods?labelSelector=ray.io/cluster")
    pods = {pod["metadata"]["labels"]["ray.io/node-type"]: pod for pod in found}
    assert pods.keys() == {"head", "worker"}
    mounted = {
        container["name"]
        for pod in pods.values()
        for container in [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]
        if any("kubernetes.io" in mount["mountPath"] for mount in container["volumeMounts"])
    }
    assert mounted == {"autoscaler"}, "what runs in the head's own container finds no token"

    name = job_name(STUDY, 1)
    account = (studies, name)
    assert {pod["spec"]["serviceAccountName"] for pod in pods.values()} == {name}
    assert can(account, studies, EVERYTHING) == set(SCALING)
    for namespace in (home, team):
        assert can(account, namespace, EVERYTHING) == set(), namespace
    assert can((studies, job_name(OTHER, 1)), studies, EVERYTHING) == set(), "that one does not scale yet"

    attacker = Rest(plane.kubeconfig_of(*account))  # who has the token all the same
    reference = {"secretKeyRef": {"name": "r-driftline", "key": "admin-token"}}
    assert rest.get(f"/api/v1/namespaces/{home}/secrets/r-driftline")["data"]["admin-token"]
    groups = cluster["spec"]["workerGroupSpecs"]
    groups[0]["template"]["spec"]["containers"][0]["env"].append({"name": "STOLEN", "valueFrom": reference})
    attacker.merge(f"{path}/rayclusters/{cluster['metadata']['name']}", {"spec": {"workerGroupSpecs": groups}})
    assert rest.get(f"/api/v1/namespaces/{studies}/secrets/r-driftline") is None, "no pod of a study can refer to it"
    for namespace in (home, team):
        for kind in ("secrets", "pods"):
            with pytest.raises(Refused, match="403"):
                attacker.items(f"/api/v1/namespaces/{namespace}/{kind}")

    for namespace in (home, "default"):
        with pytest.raises(Forbidden):
            scheduler.within(namespace).merge("secrets", "r-driftline", {})
    with pytest.raises(NotFound):
        scheduler.within(studies).merge("secrets", "r-driftline", {})
    launcher.close()
    cluster_helm("uninstall", "r", "--namespace", home, "--no-hooks")

    def left(namespace):
        found = kubectl("get", KINDS, "--namespace", namespace, "-o", "name", "-l", "app.kubernetes.io/instance=r")
        return set(found.split()) - {"persistentvolumeclaim/r-driftline-checkpoints"}

    until(lambda: not left(studies) | left(team), 60, lambda: (left(studies), left(team)))
