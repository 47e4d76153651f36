"""Kubernetes itself and KubeRay: versions, CRDs, the operator, and whether a study's RayJob is accepted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from driftline.errors import Forbidden, InvalidSpec, NotFound
from service.launchers.base import Launch
from service.launchers.kubernetes import manifests
from service.launchers.kubernetes.config import DEFAULT_POOL
from service.launchers.kubernetes.doctor.chart_release import ChartRelease
from service.launchers.kubernetes.doctor.cluster_access import ClusterAccess, Finding
from service.launchers.kubernetes.naming import job_name

KUBERNETES = (1, 27)
KUBERAY = (1, 6)
"""Oldest versions that are supported, as in docs/kubernetes.md."""
NEWEST_KUBERAY = (1, 7)
"""The newest version that RayJobs were checked against."""
_OPERATOR_LABEL = "app.kubernetes.io/component=kuberay-operator"
_CRDS = {
    "rayjobs": ("spec", "rayClusterSpec", "authOptions", "secretName"),
    "rayclusters": ("spec", "authOptions", "secretName"),
}
"""Fields that KubeRay's CRDs have from 1.6."""
_INSTALL = "install KubeRay 1.6 or newer, as docs/kubernetes.md says"


def check_kubernetes(cluster: ClusterAccess, release: ChartRelease) -> Iterator[Finding]:
    """The version of Kubernetes."""
    del release
    text = str(cluster.get("/version")["gitVersion"])
    if (version := _version(text)) is None:
        yield Finding("kubernetes", "unknown", f"version {text}", f"it must be {_dotted(KUBERNETES)} or newer")
    elif version < KUBERNETES:
        yield Finding("kubernetes", "problem", f"version {text}", f"upgrade to {_dotted(KUBERNETES)} or newer")
    else:
        yield Finding("kubernetes", "ok", f"version {text}")


def check_crds(cluster: ClusterAccess, release: ChartRelease) -> Iterator[Finding]:
    """Whether KubeRay's CRDs are there, and new enough; Helm installs but never upgrades them."""
    del release
    missing = [kind for kind in ("RayJob", "RayCluster") if kind not in cluster.kinds("ray.io/v1")]
    if missing:
        yield Finding(
            "kuberay crds", "problem", f"the cluster knows no {' and no '.join(missing)} (ray.io/v1)", _INSTALL
        )
        return
    old = [name for name, field in _CRDS.items() if not _has(_schema(cluster, name), field)]
    if old:
        text = f"the CRDs of {' and '.join(old)} are older than KubeRay {_dotted(KUBERAY)}"
        crds = f"github.com/ray-project/kuberay/ray-operator/config/crd?ref=v{_dotted(NEWEST_KUBERAY)}.0"
        how = f"kubectl apply --server-side -k '{crds}'"
        yield Finding("kuberay crds", "problem", text, f"upgrade them (helm upgrade does not): {how}")
    else:
        yield Finding("kuberay crds", "ok", f"those of KubeRay {_dotted(KUBERAY)} or newer")


def check_operator(cluster: ClusterAccess, release: ChartRelease) -> Iterator[Finding]:
    """Whether KubeRay's operator runs, is new enough, and watches the namespaces of studies."""
    pods = cluster.listed("/api/v1/pods", _OPERATOR_LABEL)
    if not pods:
        yield Finding("kuberay operator", "problem", f"no pod has the label {_OPERATOR_LABEL}", _INSTALL)
    namespaces = dict.fromkeys(namespace for namespace, *_ in release.variants(cluster))
    for pod in pods:
        about, container = pod["metadata"], pod["spec"]["containers"][0]
        image = str(container["image"])
        tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
        text = f"pod {about['namespace']}/{about['name']} with image {image}"
        conditions = {
            condition["type"]: condition["status"] for condition in pod.get("status", {}).get("conditions") or []
        }
        watched = _watched(container)
        unseen = [name for name in namespaces if watched and name not in watched]
        if conditions.get("Ready") != "True":
            how = f"kubectl -n {about['namespace']} describe pod {about['name']}"
            yield Finding("kuberay operator", "problem", f"{text} is not ready", how)
        elif unseen:
            text = f"{text} watches {', '.join(watched)} only, not {', '.join(unseen)}"
            yield Finding("kuberay operator", "problem", text, "add them to the operator's watchNamespace")
        elif (version := _version(tag)) is None:
            advice = f"check that it is KubeRay {_dotted(KUBERAY)} or newer"
            yield Finding("kuberay operator", "unknown", f"{text}: no version in its tag", advice)
        elif version < KUBERAY:
            yield Finding("kuberay operator", "problem", text, f"upgrade to KubeRay {_dotted(KUBERAY)} or newer")
        elif version > NEWEST_KUBERAY:
            text = f"{text}: newer than KubeRay {_dotted(NEWEST_KUBERAY)}, which Driftline was checked against"
            yield Finding("kuberay operator", "unknown", text, "run helm test")
        else:
            yield Finding("kuberay operator", "ok", text)


def check_rayjob(cluster: ClusterAccess, release: ChartRelease) -> Iterator[Finding]:
    """Whether the API server, with its admission controllers, accepts a RayJob of a study; none is created."""
    kinds = {(namespace, pool): (project, config) for namespace, project, pool, config in release.variants(cluster)}
    for (namespace, pool), (project, config) in kinds.items():
        rayjob = "a study's RayJob" if pool == DEFAULT_POOL else f"the RayJob of a study in the pool {pool}"
        launch = Launch("doctor", "doctor", project or "default", "", 1)
        name = job_name(launch.study_id, launch.attempt)
        body = manifests.rayjob(config, launch, name, namespace, url="http://driftline", folder="/checkpoints")
        try:
            cluster.try_create(f"/apis/ray.io/v1/namespaces/{namespace}/rayjobs", body)
        except InvalidSpec as error:
            text = f"{rayjob} is refused in {namespace}: {error.message}"
            yield Finding("rayjob", "problem", text, _INSTALL)
        except NotFound:
            text = f"no RayJob could be tried in {namespace}, which does not exist yet, or has no RayJobs"
            yield Finding("rayjob", "unknown", text, "run this again after the installation")
        except Forbidden as error:
            advice = "if this is no missing right of your own account, studies will be refused, too"
            yield Finding("rayjob", "unknown", f"no RayJob could be tried in {namespace}: {error.message}", advice)
        else:
            yield Finding("rayjob", "ok", f"{rayjob} would be accepted in {namespace}")


def _version(text: str) -> tuple[int, int] | None:
    """Major and minor version at the beginning of a string such as v1.31.2-eks."""
    match = re.match(r"v?(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def _schema(cluster: ClusterAccess, name: str) -> Mapping[str, Any]:
    crd = cluster.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}.ray.io")
    version: Mapping[str, Any] = next((entry for entry in crd["spec"]["versions"] if entry["name"] == "v1"), {})
    schema: Mapping[str, Any] = version.get("schema", {}).get("openAPIV3Schema", {})
    return schema


def _has(schema: Mapping[str, Any], field: tuple[str, ...]) -> bool:
    for step in field:
        schema = schema.get("properties", {}).get(step, {})
    return bool(schema)


def _watched(container: Mapping[str, Any]) -> list[str]:
    """The namespaces to which an operator is limited; none if it watches all."""
    words = " ".join(map(str, [*container.get("command", ()), *container.get("args", ())]))
    match = re.search(r"--watch-namespace[= ](\S+)", words)
    return match[1].split(",") if match else []
