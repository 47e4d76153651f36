"""Settings, launches, RayJobs and pods, as tests need them."""

from datetime import UTC, datetime

from service.launchers.base import Launch
from service.launchers.kubernetes.config import Config

NOW = 1_800_000_000.0
STUDY = "01k6vq8r9s2t3v4w5x6y7z8abc"
FULL = {
    "image": "registry.example/driftline:0.1.0-cuda",
    "image_pull_policy": "Always",
    "image_pull_secrets": ["registry"],
    "instance": "team-a",
    "service_account": "driftline-study",
    "head": {"cpu": "500m", "memory": "2Gi", "node_selector": {"pool": "cpu"}},
    "workers": {
        "min": 1,
        "max": 8,
        "cpu": 8,
        "memory": "32Gi",
        "gpus": 2,
        "idle_seconds": 120,
        "node_selector": {"nvidia.com/gpu.present": "true"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {"nodeAffinity": {}},
        "runtime_class": "nvidia",
    },
    "env": {"DATA_DIR": "/data"},
    "env_from": [{"secretRef": {"name": "object-store"}}],
    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}}],
    "volume_mounts": [{"name": "data", "mountPath": "/data", "readOnly": True}],
    "labels": {"cost-centre": "research"},
    "annotations": {"example.org/note": "nightly"},
    "run_as_user": 1000,
    "run_as_group": 1000,
    "fs_group": 1000,
    "priority_class": "batch",
    "ttl_seconds": 30,
    "deadline_seconds": 86400,
}
TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
MIG = "nvidia.com/mig-1g.10gb"
MIXED = {
    "workers": {"gpus": 1, "cpu": 8, "tolerations": [TOLERATION]},
    "pools": {
        "a100": {
            "gpus": 2,
            "min": 1,
            "max": 4,
            "node_selector": {"kind": "a100"},
            "tolerations": [TOLERATION],
            "runtime_class": "nvidia",
            "image": "driftline:cuda",
            "priority_class": "large",
        },
        "mig": {"gpus": 1, "gpu_resource": MIG, "queue": "slices", "queue_priority_class": "low"},
        "cpu": {"cpu": 16, "max": 2},
    },
}
"""Pools of a cluster of which only some nodes have GPUs."""


def config(**values):
    return Config.from_json({"image": "driftline:test", "ray_version": "2.60.0", **values})


def launch(study=STUDY, attempt=1, project="default", **values):
    return Launch(study, "a study", project, f"driver.{study}.default.sig", attempt, **values)


def at(seconds):
    """The time `seconds` before NOW, as the API server writes it."""
    return datetime.fromtimestamp(NOW - seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def job(phase="Running", *, age=300, suspend=False, deleted=False, **status):
    status = {"jobDeploymentStatus": phase, "rayClusterName": "c", **status} if phase else status
    metadata = {"name": "driftline-x-1", "uid": "u", "creationTimestamp": at(age), "labels": {}}
    if deleted:
        metadata["deletionTimestamp"] = at(0)
    return {"metadata": metadata, "spec": {"suspend": suspend}, "status": status}


def pod(
    kind="head",
    phase="Running",
    *,
    age=200,
    cluster="c",
    waiting=None,
    ended=None,
    unplaced=None,
    placed=None,
    **status,
):
    """A pod of a RayCluster."""
    state = {}
    if waiting:
        state["waiting"] = dict(zip(("reason", "message"), waiting, strict=True))
    if ended:
        state["terminated"] = ended
    if unplaced is not None:
        condition = {"type": "PodScheduled", "status": "False", "lastTransitionTime": at(unplaced)}
        condition["message"] = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
        status["conditions"] = [condition]
    if placed is not None:
        status["conditions"] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at(placed)}]
    container = {"name": f"ray-{kind}", "image": "driftline:test", "state": state}
    return {
        "metadata": {
            "name": f"{kind}-1",
            "creationTimestamp": at(age),
            "labels": {"ray.io/node-type": kind, "ray.io/cluster": cluster},
        },
        "spec": {"containers": [{"name": f"ray-{kind}", "resources": {"limits": {"memory": "4Gi"}}}]},
        "status": {"phase": phase, "containerStatuses": [container], **status},
    }
