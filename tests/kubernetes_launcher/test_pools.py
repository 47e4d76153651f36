"""Several pools of workers: which one a study gets, and that its pods fit the nodes of this pool and no others."""

import pytest

from driftline.errors import InvalidSpec
from service.launchers.kubernetes import manifests
from service.launchers.kubernetes.launcher import KubernetesLauncher
from service.launchers.worker_pools import Room, WorkerPools
from tests.kubernetes_launcher.fake_cluster import FakeNamespaces
from tests.kubernetes_launcher.made import MIG, MIXED, TOLERATION, config, launch

TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


# ---- which pool

THREE = WorkerPools(
    gpus={"default": 1, "a100": 4, "cpu": 0, "large": 0},
    projects={"vision": ("a100", "cpu"), "gpus": ("a100", "default")},
)


@pytest.mark.parametrize(
    ("project", "pool", "gpus", "chosen"),
    [
        ("speech", None, None, "default"),
        ("speech", None, 8, "default"),  # whose workers are too small: that is said when it starts
        ("speech", None, 0, "cpu"),
        ("speech", "a100", None, "a100"),
        ("speech", "large", 0, "large"),
        ("speech", "cpu", None, "cpu"),
        ("vision", None, 0.5, "a100"),
        ("vision", None, 0, "cpu"),
        ("gpus", None, 0, "a100"),  # no pool without GPUs
        ("gpus", "default", 0, "default"),
    ],
)
def test_the_pool_of_a_study(project, pool, gpus, chosen):
    assert THREE.choose(project, pool, gpus) == chosen


@pytest.mark.parametrize(
    ("project", "pool", "gpus", "said"),
    [
        ("speech", "h100", None, "must be one of default, a100, cpu, large, got h100"),
        ("vision", "default", None, "must be one of a100, cpu, got default"),
        ("speech", "a100", 0, "must be a pool without GPUs (cpu, large) for gpu: 0, got a100"),
    ],
)
def test_a_pool_that_a_study_may_not_use(project, pool, gpus, said):
    with pytest.raises(InvalidSpec) as caught:
        THREE.choose(project, pool, gpus)
    assert str(caught.value) == f"resources.pool: {said}"


def test_settings_say_which_pools_there_are():
    settings = config(**MIXED, projects={"vision": {"pools": ["mig", "cpu"]}, "speech": {"namespace": "x"}})
    pools = settings.worker_pools()
    assert pools.gpus == {"default": 1, "a100": 2, "mig": 1, "cpu": 0}
    assert pools.projects == {"vision": ("mig", "cpu")}
    assert pools.rooms["cpu"] == Room(
        cpus=16, gpus=0, nodes=settings.pools["cpu"].max, worker="a worker of the pool cpu"
    )
    assert config().worker_pools().rooms["default"].worker == "a worker"


# ---- what its pods ask for


def rayjob(settings, pool, project="default", **asked):
    return manifests.rayjob(
        settings.of(project, pool), launch(project=project, **asked), "n", "ns", url="http://a", folder="s3://b/x"
    )


def groups(job):
    cluster = job["spec"]["rayClusterSpec"]
    return cluster["headGroupSpec"], cluster["workerGroupSpecs"][0]


def test_a_pool_replaces_the_workers_and_what_it_names():
    settings = config(**MIXED, priority_class="small")
    head, worker = groups(rayjob(settings, "a100"))
    pod = worker["template"]["spec"]
    assert (worker["minReplicas"], worker["maxReplicas"]) == (1, 4)
    assert pod["containers"][0]["resources"]["limits"] == {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "2"}
    assert (pod["nodeSelector"], pod["tolerations"]) == ({"kind": "a100"}, [TOLERATION])
    assert pod["runtimeClassName"] == "nvidia"
    for group in (head, worker):
        spec = group["template"]["spec"]
        assert (spec["containers"][0]["image"], spec["priorityClassName"]) == ("driftline:cuda", "large")
    pod = groups(rayjob(settings, "default"))[1]["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": "1"}
    assert (pod["containers"][0]["image"], pod["priorityClassName"]) == ("driftline:test", "small")
    assert "nodeSelector" not in pod


def test_a_pool_takes_nothing_from_the_default_one():
    pod = groups(rayjob(config(**MIXED), "cpu"))[1]["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {"cpu": "16", "memory": "16Gi"}
    assert "tolerations" not in pod


def test_slices_of_a_gpu_are_requested_under_their_own_name():
    _, worker = groups(rayjob(config(**MIXED), "mig"))
    assert worker["template"]["spec"]["containers"][0]["resources"]["limits"][MIG] == "1"
    assert worker["rayStartParams"]["num-gpus"] == "1"


@pytest.mark.parametrize(
    ("project", "pool", "labels"),
    [
        ("other", "a100", {}),
        ("other", "mig", {"queue-name": "slices", "priority-class": "low"}),
        ("vision", "mig", {"queue-name": "slices", "priority-class": "high"}),
        ("speech", "mig", {"queue-name": "speech", "priority-class": "low"}),
        ("speech", "default", {"queue-name": "speech"}),
    ],
)
def test_queue_and_priority_are_the_projects_before_the_pools(project, pool, labels):
    projects = {"vision": {"queue_priority_class": "high"}, "speech": {"queue": "speech", "pools": ["mig", "default"]}}
    job = rayjob(config(**MIXED, projects=projects), pool, project)
    assert {key: value for key, value in job["metadata"]["labels"].items() if "kueue" in key} == {
        f"kueue.x-k8s.io/{key}": value for key, value in labels.items()
    }
    assert job["spec"]["suspend"] is bool(labels)


# ---- CPU studies in a mixed cluster


def takes(node, pod):
    """Whether a node takes a pod by labels and taints, as Kubernetes' scheduler decides it."""
    labels = node.get("labels", {})
    operators = {
        "DoesNotExist": lambda key, values: key not in labels,
        "NotIn": lambda key, values: labels.get(key) not in values,
    }
    required = pod.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms = required.get("nodeSelectorTerms", [{"matchExpressions": []}])
    return (
        pod.get("nodeSelector", {}).items() <= labels.items()
        and any(
            all(operators[one["operator"]](one["key"], one.get("values")) for one in term["matchExpressions"])
            for term in terms
        )
        and ("taint" not in node or TOLERATION in pod.get("tolerations", []))
    )


NODES = {
    "cpu": {},
    "tainted": {"taint": TAINT},
    "operator": {"labels": {"nvidia.com/gpu.present": "true"}},
    "empty": {"labels": {"nvidia.com/gpu.present": "false"}},  # NVIDIA's operator says so of a node whose GPU is gone
    "discovery": {"labels": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}},
    "gke": {"labels": {"cloud.google.com/gke-accelerator": "nvidia-l4"}},
    "aks": {"labels": {"kubernetes.azure.com/accelerator": "nvidia"}},
    "karpenter": {"labels": {"karpenter.k8s.aws/instance-gpu-count": "4"}},
    "eks": {"labels": {"eks.amazonaws.com/instance-gpu-count": "4"}},
    "amd": {"labels": {"amd.com/gpu.product-name": "AMD_Instinct_MI300X"}},
}


def nodes_for(settings, pool, **asked):
    """Names of the nodes that take the head, and of those that take a worker."""
    return [
        {name for name, node in NODES.items() if takes(node, group["template"]["spec"])}
        for group in groups(rayjob(settings, pool, **asked))
    ]


def test_no_pod_of_a_study_without_gpus_is_on_a_node_with_gpus():
    settings = config(**MIXED)
    pool = settings.worker_pools().choose("default", None, 0)
    assert nodes_for(settings, pool, gpus=0) == [{"cpu", "empty"}] * 2
    assert nodes_for(settings, "default") == [NODES.keys() - {"tainted"}, NODES.keys()]


def test_a_pool_that_chooses_its_nodes_itself_is_left_alone():
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    for own in ({"node_selector": {"kind": "big"}}, {"affinity": affinity}):
        settings = config(workers={"gpus": 1}, pools={"cpu": own}, head=own)
        for group in groups(rayjob(settings, "cpu", gpus=0)):
            pod = group["template"]["spec"]
            assert pod.get("affinity", {}) == own.get("affinity", {})
    elsewhere = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    settings = config(workers={"gpus": 1}, pools={"cpu": {"affinity": elsewhere}})
    pod = groups(rayjob(settings, "cpu", gpus=0))[1]["template"]["spec"]
    assert pod["affinity"].keys() == {"nodeAffinity", "podAntiAffinity"}


@pytest.mark.parametrize("values", [{}, {"workers": {"gpus": 2}}, {"pools": {"cpu": {}}}])
def test_without_both_kinds_of_pools_nodes_are_not_chosen(values):
    """Where all nodes have GPUs, a study without GPUs would otherwise find none."""
    assert nodes_for(config(**values), "default", gpus=0) == [NODES.keys() - {"tainted"}] * 2


# ---- the launcher


@pytest.fixture
def started():
    """Starts a study and returns its RayJob."""
    api = FakeNamespaces({"studies": {}})
    launcher = KubernetesLauncher(config(**MIXED), api, url="http://a", folder="s3://b/x")

    def start(**asked):
        launcher.start(launch(**asked))
        return api.created[-1]

    yield start
    launcher.close()


def test_a_study_starts_in_the_pool_that_it_names_or_needs(started):
    for asked, cores in (({}, "8"), ({"pool": "a100"}, "4"), ({"gpus": 0}, "16"), ({"gpus": 0, "pool": "cpu"}, "16")):
        assert groups(started(**asked))[1]["rayStartParams"]["num-cpus"] == cores


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"pool": "h100"}, "resources.pool: must be one of default, a100, mig, cpu, got h100"),
        ({"gpus": 2}, "resources.gpu: must be at most 1, what a worker of the pool default has, got 2"),
        ({"pool": "cpu", "cpus": 17}, "resources.cpus: must be at most 16, what a worker of the pool cpu has, got 17"),
    ],
)
def test_a_study_that_fits_no_worker_of_its_pool_fails_with_the_pool_named(started, asked, said):
    with pytest.raises(InvalidSpec) as caught:
        started(**asked)
    assert str(caught.value) == said


# ---- settings


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"pools": {"default": {}}}, "pools.default: must have another name"),
        ({"pools": {"A_B": {}}}, "pools.A_B[key]: must be lower-case letters"),
        ({"pools": {"a": {"min": 2}}}, "pools.a.max: must be at least min=2, got max=1"),
        ({"projects": {"p": {"pools": ["b"]}}}, "projects.p.pools: must be among default, got b"),
        ({"projects": {"p": {"pools": []}}}, "projects.p.pools: must not be empty"),
        ({"pools": {"a": {"max": 2, "queue": "q"}}}, "pools.a: must have min equal to max in a queue"),
        ({"pools": {"a": {"max": 2}}, "queue": "q"}, "pools.a: must have min equal to max in a queue"),
        ({"pools": {"a": {"queue_priority_class": "low"}}}, "pools.a.queue_priority_class: must have queue set"),
    ],
)
def test_wrong_pools_are_named(values, said):
    with pytest.raises(InvalidSpec) as caught:
        config(**values)
    assert str(caught.value).startswith(said)


def test_only_the_pools_of_a_queue_must_keep_their_size():
    projects = {"p": {"pools": ["a"], "queue": "own", "queue_priority_class": "high"}}
    settings = config(workers={"max": 8}, pools={"a": {"queue": "q"}}, projects=projects, queue_priority_class="low")
    queues = {(project, pool): one.queue for project, pool, one in settings.variants()}
    assert queues == {("", "default"): None, ("", "a"): "q", ("p", "a"): "own"}
