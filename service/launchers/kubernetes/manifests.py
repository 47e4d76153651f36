"""The objects that one driver needs: a RayJob, and the Secret, ServiceAccount and NetworkPolicy that it owns."""

from __future__ import annotations

import hashlib
import hmac
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from kubernetes.utils.quantity import parse_quantity

from driftline.errors import InvalidSpec
from service.child_environment import SECRET
from service.launchers.base import Launch
from service.launchers.kubernetes import kueue
from service.launchers.kubernetes.config import Autoscaler, Config, Head, Placement, Workers
from service.launchers.kubernetes.naming import ATTEMPT, OWN_POLICY, STUDY, common_labels, is_job_name, job_name
from service.launchers.kubernetes.pod_patch import patched
from service.name_patterns import matches

RAY_KEY = "auth_token"
"""The key under which KubeRay looks for Ray's token in a Secret."""
DRIVER_KEY = "driver_token"
_GROUP = "packs"
_SCRATCH = {"name": "scratch", "mountPath": "/tmp"}
_SCALER_SCRATCH = {"name": "autoscaler-scratch", "mountPath": "/tmp"}
_SCALER_TOKEN = {
    "name": "autoscaler-token",
    "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
    "readOnly": True,
}
_SECURITY = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def labels(config: Config, launch: Launch) -> dict[str, str]:
    """Labels of a study's objects."""
    study_labels = {**common_labels(config.instance), STUDY: launch.study_id, ATTEMPT: str(launch.attempt)}
    return {**config.labels, **study_labels}


def check(config: Config, launch: Launch, worker: str = "a worker") -> None:
    """Checks that a pack fits a worker, which messages call `worker`, and that image and Secrets are allowed.

    Raises:
        InvalidSpec: The pack does not fit (the message says what a worker has), or one of these is not allowed.
    """
    config.workers.room(worker).require(launch.cpus, launch.gpus, launch.nodes)
    images = () if launch.image is None else (launch.image,)
    for key, names, patterns in (("secrets", launch.secrets, config.secrets), ("image", images, config.images)):
        for name in names:
            if not matches(name, patterns) or is_job_name(name):
                rule = f"must match what this service allows: {', '.join(patterns) or 'none'}"
                raise InvalidSpec(f"program.{key}", f"{rule}, got {name}")


def rayjob(config: Config, launch: Launch, name: str, namespace: str, *, url: str, folder: str) -> dict[str, Any]:
    """The RayJob of one start.

    The head trains nothing (num-cpus 0); the workers share their GPUs between packs. KubeRay submits the driver itself
    (HTTPMode), so that no third kind of pod is needed, and submits it again to a head that had to be replaced. Only the
    Secret contains tokens, and only the head gets the driver's token. An image that a study brings, and the Secrets of
    its program, are for workers alone.

    Args:
        config: The launcher's settings.
        launch: The driver.
        name: The RayJob's name.
        namespace: The RayJob's namespace.
        url: Address of the service, as the driver reaches it.
        folder: URL or path of the folder for checkpoints.
    """
    gpus = 0 if launch.gpus == 0 else config.workers.gpus
    command = ["python", "-P", "-m", "service.driver", "--study", launch.study_id, "--url", url, "--folder", folder]
    command += ["--address", "auto", "--nodes-seconds", str(config.unschedulable_seconds + config.image_pull_seconds)]
    if gpus and launch.gpus is None:  # there may be no worker yet that shows its GPUs
        command += ["--worker-gpus", str(gpus)]
    least = max(config.workers.min, launch.nodes if launch.nodes > 1 else 0)
    if config.workers.max > config.workers.min:  # Ray's autoscaler rejects larger requests
        command += ["--most-nodes", str(config.workers.max)]
    spec: dict[str, Any] = {
        "entrypoint": shlex.join(command),
        "submissionMode": "HTTPMode",
        "suspend": bool(config.queue),  # in a queue, only Kueue changes it from here on
        "backoffLimit": 0,  # another attempt is the scheduler's decision
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": config.ttl_seconds,
        "rayClusterSpec": {
            "rayVersion": config.ray_version,
            "authOptions": {"mode": "token", "secretName": job_name(launch.study_id, launch.attempt)},
            "headGroupSpec": {
                "rayStartParams": {"num-cpus": "0", "num-gpus": "0", "dashboard-host": "0.0.0.0"},
                "template": _head(config, launch, name),
            },
            "workerGroupSpecs": [
                {
                    "groupName": _GROUP,
                    "replicas": least,
                    "minReplicas": least,
                    "maxReplicas": config.workers.max,
                    "rayStartParams": {"num-cpus": str(config.workers.cores), "num-gpus": str(gpus)},
                    "template": _worker(config, launch, name, gpus),
                }
            ],
            **_autoscaling(config),
        },
    }
    if config.deadline_seconds is not None:
        spec["activeDeadlineSeconds"] = config.deadline_seconds
    about = {"driftline.io/name": launch.name, "driftline.io/project": launch.project}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {**labels(config, launch), **kueue.labels(config.queue, config.queue_priority_class)},
            "annotations": {**config.annotations, **about},
        },
        "spec": spec,
    }


def secret(config: Config, launch: Launch, job: Mapping[str, Any]) -> dict[str, Any]:
    """The Secret with the tokens of one start; it is deleted with its RayJob.

    Ray's token is derived from the driver's, so that creating the Secret again changes nothing for pods that have it.

    Args:
        config: The launcher's settings.
        launch: The driver.
        job: The RayJob, as the API server returned it.
    """
    name = secret_name(job) or job_name(launch.study_id, launch.attempt)
    made_for_ray = hmac.new(launch.token.encode(), f"ray:{name}".encode(), hashlib.sha256).hexdigest()
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": _owned(config, launch, job, name),
        "stringData": {RAY_KEY: made_for_ray, DRIVER_KEY: launch.token},
    }


def owned(config: Config, launch: Launch, job: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """All that a RayJob owns, by kind, in the order in which its pods need it: an account, a policy, the Secret.

    Args:
        config: The launcher's settings.
        launch: The driver.
        job: The RayJob, as the API server returned it.
    """
    about = _owned(config, launch, job, job["metadata"]["name"])
    objects: dict[str, dict[str, Any]] = {}
    if not config.service_account:
        objects["serviceaccounts"] = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {**about, "annotations": dict(config.service_account_annotations)},
            "automountServiceAccountToken": False,
        }
    if config.network_policy:
        pods = {"matchLabels": {**common_labels(config.instance), STUDY: launch.study_id}}
        objects["networkpolicies"] = {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": about,
            "spec": {
                "podSelector": pods,
                "policyTypes": ["Ingress"],
                "ingress": [{"from": [{"podSelector": pods}]}],
            },
        }
    return {**objects, "secrets": secret(config, launch, job)}


def _owned(config: Config, launch: Launch, job: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Metadata of an object that is deleted with its RayJob."""
    owner = {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
    }
    return {
        "name": name,
        "namespace": job["metadata"]["namespace"],
        "labels": labels(config, launch),
        "ownerReferences": [owner],
    }


def secret_name(job: Mapping[str, Any]) -> str:
    """The name of the Secret that a RayJob's pods read; "" if it names none."""
    options = job.get("spec", {}).get("rayClusterSpec", {}).get("authOptions", {})
    return str(options.get("secretName", ""))


def _autoscaling(config: Config) -> dict[str, Any]:
    if config.workers.max == config.workers.min:
        return {}
    return {
        "enableInTreeAutoscaling": True,
        "autoscalerOptions": {
            "version": "v2",
            "idleTimeoutSeconds": config.workers.idle_seconds,
            "imagePullPolicy": config.image_pull_policy,
            "resources": _amounts(config.autoscaler),
            "securityContext": _SECURITY,
            "env": [{"name": "HOME", "value": _SCALER_SCRATCH["mountPath"]}],
            "volumeMounts": [_SCALER_SCRATCH, _SCALER_TOKEN],
        },
    }


def _scaler_volumes(config: Config) -> list[dict[str, Any]]:
    """Volumes that Ray's autoscaler mounts and the head's own container, which runs Ray's jobs, does not.

    Whoever has Ray's token, as workers do, can run commands in the head's container, and read its files. So the token
    of Kubernetes is not mounted there, and the autoscaler reads no files that such a command has written.
    """
    certificate = {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    sources = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},  # as Kubernetes mounts it by itself
        {"configMap": certificate},
        {"downwardAPI": {"items": [namespace]}},
    ]
    return [
        {"name": _SCALER_SCRATCH["name"], "emptyDir": _scratch(config)},
        {"name": _SCALER_TOKEN["name"], "projected": {"defaultMode": 0o644, "sources": sources}},
    ]


def _head(config: Config, launch: Launch, job: str) -> dict[str, Any]:
    amounts = _amounts(config.head)
    name = job_name(launch.study_id, launch.attempt)
    token = {"name": "DRIFTLINE_TOKEN", "valueFrom": {"secretKeyRef": {"name": name, "key": DRIVER_KEY}}}
    container = {
        **_container(config, "ray-head", amounts),
        "ports": [
            {"containerPort": 6379, "name": "gcs-server"},
            {"containerPort": 8265, "name": "dashboard"},
            {"containerPort": 10001, "name": "client"},
        ],
    }
    container["env"] = [*_no_gpus(config), *container["env"], token]
    volumes = _scaler_volumes(config) if config.workers.max > config.workers.min else []
    return _template(config, launch, job, config.head, container, volumes)


def _worker(config: Config, launch: Launch, job: str, gpus: int) -> dict[str, Any]:
    amounts = _amounts(config.workers)
    if launch.image is not None:
        config = config.bringing(launch.image)
    container = _container(config, "ray-worker", amounts)
    if launch.secrets:
        named = [{"prefix": SECRET, "secretRef": {"name": name}} for name in launch.secrets]
        container["envFrom"] = [*container.get("envFrom", ()), *named]
    if gpus:
        for part in amounts.values():
            part[config.workers.gpu_resource] = str(gpus)
    else:
        container["env"] = [*_no_gpus(config), *container["env"]]
    return _template(config, launch, job, config.workers, container)


def _scratch(config: Config) -> dict[str, str]:
    return {"sizeLimit": config.scratch} if config.scratch else {}


def _no_gpus(config: Config) -> list[dict[str, str]]:
    """Hides the GPUs from a pod that requests none, on nodes whose default runtime is NVIDIA's.

    Images based on NVIDIA's ask for all GPUs; NVIDIA's device plugin overrides that only for pods that request one.
    """
    name = "NVIDIA_VISIBLE_DEVICES"
    return [] if name in config.env else [{"name": name, "value": "void"}]


def _amounts(pods: Head | Autoscaler | Workers) -> dict[str, dict[str, str]]:
    requests = {"cpu": pods.cpu, "memory": pods.memory}
    return {"requests": requests, "limits": dict(requests) if pods.limit_cpu else {"memory": pods.memory}}


def _container(config: Config, name: str, amounts: Mapping[str, Any]) -> dict[str, Any]:
    env = {"HOME": _SCRATCH["mountPath"], "PYTHONUNBUFFERED": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    if config.scratch:  # a third each: cached data, data being added, Ray's files
        env["DRIFTLINE_CACHE_GIB"] = f"{float(parse_quantity(config.scratch)) / 3 / 2**30:.3g}"
    env |= config.env
    return {
        "name": name,
        "image": config.image,
        "imagePullPolicy": config.image_pull_policy,
        "env": [{"name": key, "value": value} for key, value in env.items()],
        **({"envFrom": list(config.env_from)} if config.env_from else {}),
        "resources": dict(amounts),
        "securityContext": _SECURITY,
        "volumeMounts": [_SCRATCH, *config.volume_mounts],
    }


def _template(
    config: Config,
    launch: Launch,
    job: str,
    placement: Placement,
    container: Mapping[str, Any],
    volumes: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    user = {"runAsUser": config.run_as_user, "runAsGroup": config.run_as_group, "fsGroup": config.fs_group}
    spec = {
        "restartPolicy": "Never",  # KubeRay makes a new pod; a restarted Ray would have forgotten its cluster
        "containers": [container],
        "volumes": [{"name": _SCRATCH["name"], "emptyDir": _scratch(config)}, *volumes, *config.volumes],
        "securityContext": {
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
            "fsGroupChangePolicy": "OnRootMismatch",  # do not go through a large volume at each start
            **{key: value for key, value in user.items() if value is not None},
        },
        "serviceAccountName": config.service_account or job,
        "imagePullSecrets": [{"name": name} for name in config.image_pull_secrets],
        "nodeSelector": dict(placement.node_selector),
        "tolerations": list(placement.tolerations),
        "affinity": dict(placement.affinity),
        "runtimeClassName": placement.runtime_class,
        "priorityClassName": config.priority_class,
    }
    pod_spec: dict[str, Any] = {key: value for key, value in spec.items() if value}
    pod_spec["enableServiceLinks"] = False  # variables of other Services, such as DRIFTLINE_API_PORT
    pod_spec["automountServiceAccountToken"] = False
    policy_label = {OWN_POLICY: "true"} if config.network_policy else {}
    about = {"labels": {**labels(config, launch), **policy_label}, "annotations": dict(config.annotations)}
    pod: dict[str, Any] = patched({"metadata": about, "spec": pod_spec}, placement.pod_patch.document())
    return pod
