"""Settings of the Kubernetes launcher, as in its YAML file."""

from __future__ import annotations

import importlib.metadata
import math
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from kubernetes.utils.quantity import parse_quantity
from pydantic import BeforeValidator, Field, model_validator

from driftline.errors import InvalidSpec
from driftline.study.validation import Section, Whole
from service.launchers.kubernetes import kueue
from service.launchers.kubernetes.pod_patch import PodPatch
from service.launchers.worker_pools import Room, WorkerPools

DEFAULT_POOL = "default"
"""The name of the pool `workers`."""

GPU_LABELS = {
    "nvidia.com/gpu.present": "true",
    **dict.fromkeys(
        (
            "nvidia.com/gpu.product",
            "amd.com/gpu.product-name",
            "cloud.google.com/gke-accelerator",
            "kubernetes.azure.com/accelerator",
            "karpenter.k8s.aws/instance-gpu-count",
            "eks.amazonaws.com/instance-gpu-count",
        )
    ),
}
"""Labels that operators and clouds give to nodes with GPUs, with the value that says so; None is any value."""

_NO_GPUS = [
    {"key": key, "operator": "NotIn", "values": [value]} if value else {"key": key, "operator": "DoesNotExist"}
    for key, value in GPU_LABELS.items()
]
NO_GPU_NODES = {
    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": _NO_GPUS}]}
}

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def _quantity(value: Any) -> str:
    if not isinstance(value, int | float | str) or isinstance(value, bool):
        raise ValueError(f"must be a quantity such as 2, 500m or 8Gi, got {value!r}")
    try:
        amount = parse_quantity(value)
    except ValueError:
        raise ValueError(f"must be a quantity such as 2, 500m or 8Gi, got {value!r}") from None
    if amount <= 0:
        raise ValueError(f"must be a quantity above 0, got {value!r}")
    return str(value)


def _label(value: Any) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError(f"must be lower-case letters, digits and '-', at most 63, got {value!r}")
    return value


Quantity = Annotated[str, BeforeValidator(_quantity)]
"""An amount as Kubernetes writes it: 2, 500m, 8Gi."""
Name = Annotated[str, BeforeValidator(_label)]
"""A name as a label of RFC 1123."""


class Placement(Section):
    """Where pods may run.

    Attributes:
        node_selector: Labels that a node must have.
        tolerations: Tolerations of node taints, as in a pod.
        affinity: Affinity, as in a pod.
        runtime_class: RuntimeClass, such as nvidia; None is the cluster's default.
        pod_patch: Changes of the pods, with metadata and spec, for which there is no setting; see `pod_patch.patched`.
    """

    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: tuple[dict[str, Any], ...] = ()
    affinity: dict[str, Any] = Field(default_factory=dict)
    runtime_class: str | None = None
    pod_patch: PodPatch = PodPatch()

    def off_gpu_nodes(self) -> Self:
        """The settings, but with GPU nodes excluded; unchanged if the settings choose nodes themselves."""
        if self.node_selector or "nodeAffinity" in self.affinity:
            return self
        return self.model_copy(update={"affinity": {**self.affinity, "nodeAffinity": NO_GPU_NODES}})


class Head(Placement):
    """The pod with Ray's head and the study's driver; it trains nothing.

    Attributes:
        cpu: CPU cores that it requests.
        memory: Memory, both request and limit.
        limit_cpu: Whether it gets no more cores than it requests.
    """

    cpu: Quantity = "1"
    memory: Quantity = "4Gi"
    limit_cpu: bool = True


class Autoscaler(Section):
    """The container of Ray's autoscaler in the head's pod, where `workers` may scale.

    Attributes:
        cpu: CPU cores that it requests.
        memory: Memory, both request and limit.
        limit_cpu: Whether it gets no more cores than it requests.
    """

    cpu: Quantity = "500m"
    memory: Quantity = "512Mi"
    limit_cpu: bool = True


class Workers(Placement):
    """The pods that train.

    Attributes:
        min: Pods from the start. With 0, no pod is created until a pack waits for one.
        max: Most pods; with more than `min`, Ray's autoscaler adds and removes them.
        cpu: CPU cores that a pod requests; Ray rounds up to whole cores.
        memory: Memory of a pod, both request and limit.
        limit_cpu: Whether a pod gets no more cores than it requests.
        gpus: Whole GPUs of a pod; packs share them. 0 trains on CPU cores.
        gpu_resource: The cluster's resource name for a GPU.
        idle_seconds: A pod that has trained nothing for this long is removed, down to `min`.
    """

    min: Whole = Field(1, ge=0)
    max: Whole = Field(1, ge=1)
    cpu: Quantity = "4"
    memory: Quantity = "16Gi"
    limit_cpu: bool = True
    gpus: Whole = Field(0, ge=0)
    gpu_resource: str = "nvidia.com/gpu"
    idle_seconds: Whole = Field(300, ge=1)

    @property
    def cores(self) -> int:
        """CPU cores of a pod, as Ray counts them."""
        return math.ceil(float(parse_quantity(self.cpu)))

    def room(self, worker: str) -> Room:
        """The most that a pack can get, where messages call a pod `worker`."""
        return Room(cpus=self.cores, gpus=self.gpus, nodes=self.max, worker=worker)

    @model_validator(mode="after")
    def _ordered(self) -> Workers:
        if self.min > self.max:
            raise InvalidSpec("max", f"must be at least min={self.min}, got max={self.max}")
        return self


class WorkerPool(Workers):
    """A pool of workers for studies that name it.

    Attributes:
        image: Image of head and workers; None is that of all other studies.
        queue: Kueue's LocalQueue in the namespace of each project that uses the pool.
        queue_priority_class: Kueue's WorkloadPriorityClass.
        priority_class: PriorityClass of the pods.
    """

    image: str | None = Field(None, min_length=1)
    queue: Name | None = None
    queue_priority_class: Name | None = None
    priority_class: str | None = Field(None, min_length=1)


class Project(Section):
    """What differs for the studies of one project; the rest is as for all others.

    Attributes:
        pools: The pools that its studies may use, in order of preference; None is all.
        namespace: Namespace of its RayJobs.
        queue: Kueue's LocalQueue in that namespace.
        queue_priority_class: Kueue's WorkloadPriorityClass of its studies in the queue.
        checkpoints: URL of its folder for checkpoints, or a path on a volume that all pods mount.
    """

    pools: tuple[str, ...] | None = Field(None, min_length=1)
    namespace: Name | None = None
    queue: Name | None = None
    queue_priority_class: Name | None = None
    checkpoints: str | None = Field(None, min_length=1)


class Config(Section):
    """Settings of the Kubernetes launcher.

    Attributes:
        image: Image of head and workers: Driftline's own, or one derived from it with your methods and tasks.
        images: Patterns of images that studies may bring for the workers of their programs.
        images_pull_secrets: Names of further Secrets with credentials for these.
        secrets: Patterns of names of Secrets that studies may name for their programs.
        image_pull_policy: Always, IfNotPresent or Never.
        image_pull_secrets: Names of Secrets with registry credentials.
        namespace: Namespace of the RayJobs; None is the namespace of this pod, or of the kubeconfig.
        projects: Settings of projects that differ from these, by the project's name.
        instance: Distinguishes this Driftline's RayJobs from those of others in the namespace.
        kubeconfig: Path of a kubeconfig; None uses the pod's own access, and outside a cluster the usual kubeconfig.
        context: Context in the kubeconfig; None is its current one.
        service_account: ServiceAccount of head and workers, shared by all studies; "" makes one for each study. With
            autoscaling KubeRay lets it change pods and RayClusters of its namespace.
        service_account_annotations: Annotations of the accounts that are made, such as a role for an object store.
        network_policy: Whether each study gets a NetworkPolicy that admits its own pods. Another policy must admit
            KubeRay's operator on port 8265 of the heads.
        ray_version: Version of Ray in the image.
        head: The head's pod.
        autoscaler: Ray's autoscaler in that pod.
        workers: The pods that train, in the pool `default`.
        pools: Further pools of workers by name; what one leaves out has the default of its type, not of `workers`.
        env: Environment variables of all pods, such as DATA_DIR.
        env_from: Secrets and ConfigMaps whose keys become environment variables, as in a container.
        volumes: Volumes of all pods, as in a pod.
        volume_mounts: Where they are mounted, as in a container.
        queue: Kueue's LocalQueue in which studies wait for their turn; None uses no queue.
        queue_priority_class: Kueue's WorkloadPriorityClass of studies in the queue; None sets none.
        labels: Further labels of RayJobs and pods.
        annotations: Further annotations of RayJobs and pods.
        run_as_user: User id of the pods; None is the image's own, which must not be 0.
        run_as_group: Group id of the pods.
        fs_group: Group id that owns mounted volumes.
        scratch: Largest size of a pod's /tmp, which holds Ray's logs and spilled objects; a pod that exceeds it is
            evicted. None sets no limit.
        priority_class: PriorityClass of the pods; "" is the cluster's default.
        ttl_seconds: How long after its driver has ended a RayCluster is removed, unless that was done before.
        deadline_seconds: A driver that runs longer is ended, and its study fails; None sets no limit.
        unschedulable_seconds: A study fails if its pods find no node for this long.
        image_pull_seconds: A study fails if its image cannot be pulled for this long.
        orphan_seconds: Age from which a RayJob of an unknown study is deleted.
    """

    image: str = Field(min_length=1)
    images: tuple[str, ...] = ()
    images_pull_secrets: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    namespace: Name | None = None
    instance: Name = "driftline"
    kubeconfig: str | None = None
    context: str | None = None
    projects: dict[str, Project] = Field(default_factory=dict)
    service_account: str = ""
    service_account_annotations: dict[str, str] = Field(default_factory=dict)
    network_policy: bool = False
    ray_version: str = Field(default_factory=lambda: importlib.metadata.version("ray"))
    head: Head = Head()
    autoscaler: Autoscaler = Autoscaler()
    workers: Workers = Workers()
    pools: dict[Name, WorkerPool] = Field(default_factory=dict)
    env: dict[str, str] = Field(default_factory=dict)
    env_from: tuple[dict[str, Any], ...] = ()
    volumes: tuple[dict[str, Any], ...] = ()
    volume_mounts: tuple[dict[str, Any], ...] = ()
    queue: Name | None = None
    queue_priority_class: Name | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    run_as_user: Whole | None = Field(None, ge=1)
    run_as_group: Whole | None = Field(None, ge=1)
    fs_group: Whole | None = Field(None, ge=1)
    scratch: Quantity | None = None
    priority_class: str = ""
    ttl_seconds: Whole = Field(60, ge=0)
    deadline_seconds: Whole | None = Field(None, ge=1)
    unschedulable_seconds: Whole = Field(900, ge=1)
    image_pull_seconds: Whole = Field(300, ge=0)
    orphan_seconds: Whole = Field(120, ge=0)

    @model_validator(mode="after")
    def _known_pools(self) -> Config:
        if DEFAULT_POOL in self.pools:
            raise InvalidSpec(f"pools.{DEFAULT_POOL}", "must have another name: this is the pool of `workers`")
        for name, project in self.projects.items():
            for pool in project.pools or ():
                if pool != DEFAULT_POOL and pool not in self.pools:
                    rule = f"must be among {', '.join((DEFAULT_POOL, *self.pools))}"
                    raise InvalidSpec(f"projects.{name}.pools", f"{rule}, got {pool}")
        return self

    @model_validator(mode="after")
    def _patched(self) -> Config:
        self.head.pod_patch.check("head", "ray-head")
        self.workers.pod_patch.check("workers", "ray-worker")
        for name, pool in self.pools.items():
            pool.pod_patch.check(f"pools.{name}", "ray-worker")
        return self

    @model_validator(mode="after")
    def _queued(self) -> Config:
        variants = list(self.variants())
        queued = [(project, pool) for project, pool, config in variants if config.queue]
        sections: dict[str, tuple[Config | Project | WorkerPool, bool]] = {"": (self, bool(queued))}
        for name, project in self.projects.items():
            sections[f"projects.{name}."] = (project, name in {project_name for project_name, _ in queued})
        for name, pool in self.pools.items():
            sections[f"pools.{name}."] = (pool, name in {pool_name for _, pool_name in queued})
        for prefix, (section, waits) in sections.items():
            if section.queue_priority_class and not waits:
                raise InvalidSpec(f"{prefix}queue_priority_class", "must have queue set as well, got none")
        for key in (kueue.QUEUE, kueue.PRIORITY):
            if key in self.labels:
                raise InvalidSpec("labels", f"must not hold {key}: set queue and queue_priority_class instead")
        elastic = self.annotations.get(kueue.ELASTIC) == "true"
        for _, name, config in variants:
            if config.queue and config.workers.min != config.workers.max and not elastic:
                got = f"min={config.workers.min} and max={config.workers.max}"
                raise InvalidSpec(
                    "workers" if name == DEFAULT_POOL else f"pools.{name}",
                    f"must have min equal to max in a queue without the annotation {kueue.ELASTIC}: true, got {got}",
                )
        return self

    def bringing(self, image: str) -> Config:
        """The settings for workers in an image that a study brings.

        The image is pulled at each start, so that the registry decides each time who may have it.
        """
        pull_secrets = (*self.image_pull_secrets, *self.images_pull_secrets)
        return self.model_copy(
            update={"image": image, "image_pull_policy": "Always", "image_pull_secrets": pull_secrets}
        )

    def worker_pools(self) -> WorkerPools:
        """The pools among which studies choose."""
        workers = self._workers()
        return WorkerPools(
            gpus={name: pool.gpus for name, pool in workers.items()},
            projects={name: project.pools for name, project in self.projects.items() if project.pools},
            rooms={
                name: pool.room(f"a worker of the pool {name}" if self.pools else "a worker")
                for name, pool in workers.items()
            },
        )

    def variants(self) -> Iterator[tuple[str, str, Config]]:
        """Each project ("" is any without settings) with each pool that its studies may use, and their settings."""
        pools = self.worker_pools()
        for project in ("", *self.projects):
            for pool in pools.of(project):
                yield project, pool, self.of(project, pool)

    def of(self, project: str, pool: str = DEFAULT_POOL) -> Config:
        """The settings for the studies of a project in a pool; the project's settings override the pool's."""
        pools = self._workers()
        workers, head = pools[pool], self.head
        if not workers.gpus and any(other.gpus for other in pools.values()):
            workers, head = workers.off_gpu_nodes(), head.off_gpu_nodes()
        change: dict[str, Any] = {"workers": workers, "head": head}
        if isinstance(workers, WorkerPool):
            change |= workers.model_dump(
                include=WorkerPool.model_fields.keys() - Workers.model_fields.keys(), exclude_none=True
            )
        project_settings = self.projects.get(project, Project())
        change |= project_settings.model_dump(exclude={"checkpoints", "pools"}, exclude_none=True)
        return self.model_copy(update=change)

    def _workers(self) -> dict[str, Workers]:
        return {DEFAULT_POOL: self.workers, **self.pools}

    def namespaces(self, default: str) -> set[str]:
        """All namespaces of RayJobs; `default` is that of projects that name none."""
        return {default, *(project.namespace for project in self.projects.values() if project.namespace)}

    def folder(self, project: str, folder: str) -> str:
        """The folder for the checkpoints of a project; `folder` is that of projects that name none."""
        return self.projects.get(project, Project()).checkpoints or folder

    def check_folder(self, folder: str) -> None:
        """Checks that pods can reach all folders for checkpoints.

        Args:
            folder: Folder of projects that name none: a URL, or a path on a mounted volume.

        Raises:
            InvalidSpec: One is a path that lies on no mounted volume.
        """
        mounts = [str(mount.get("mountPath", "")).rstrip("/") for mount in self.volume_mounts]
        have = ", ".join(mounts) or "none"
        for path in (folder, *(self.folder(name, folder) for name in self.projects)):
            if "://" in path or any(path == mount or path.startswith(f"{mount}/") for mount in mounts if mount):
                continue
            raise InvalidSpec(
                "volume_mounts",
                f"must hold the folder for checkpoints, {path}, so that all pods see it; mounted: {have}",
            )
