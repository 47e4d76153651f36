"""Add-ons: a network plug-in that enforces policies, Kueue, the metrics for autoscaling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from driftline.errors import NotFound
from service.launchers.kubernetes import kueue
from service.launchers.kubernetes.doctor.chart_release import ChartRelease
from service.launchers.kubernetes.doctor.cluster_access import ClusterAccess, Finding

_ENFORCES = {
    "anetd": "GKE's Dataplane V2",
    "antrea-agent": "Antrea",
    "azure-npm": "Azure's policy manager",
    "calico-node": "Calico",
    "canal": "Canal",
    "cilium": "Cilium",
    "kube-router": "kube-router",
    "ovnkube-node": "OVN-Kubernetes",
    "weave-net": "Weave Net",
}
"""Name of a plug-in's DaemonSet -> the plug-in."""
_IGNORES = {"kube-flannel-ds": "Flannel", "kube-flannel": "Flannel"}
_AWS_SWITCH = "--enable-network-policy=true"
_TRY = "docs/kubernetes.md has a command that tries it"


def check_policies(cluster: ClusterAccess, release: ChartRelease) -> Iterator[Finding]:
    """Whether a known network plug-in enforces NetworkPolicies; sends nothing through the network."""
    if release.objects and not release.of_kind("NetworkPolicy"):
        yield Finding("network policies", "ok", "the manifest has none")
        return
    sets = {item["metadata"]["name"]: item for item in cluster.listed("/apis/apps/v1/daemonsets")}
    enforcing = [f"{_ENFORCES[name]} (DaemonSet {name})" for name in sorted(sets) if name in _ENFORCES]
    ignoring = [f"{_IGNORES[name]} (DaemonSet {name})" for name in sorted(sets) if name in _IGNORES]
    if "aws-node" in sets:
        group = enforcing if _AWS_SWITCH in _arguments(sets["aws-node"]) else ignoring
        group.append(
            f"Amazon's VPC CNI (DaemonSet aws-node) {'with' if group is enforcing else 'without'} {_AWS_SWITCH}"
        )
    if enforcing:
        yield Finding("network policies", "ok", f"{', '.join(enforcing)} enforces them")
    elif ignoring:
        advice = (
            "install one that does, such as Calico or Cilium: without it pods of different studies reach each other"
        )
        yield Finding("network policies", "problem", f"{', '.join(ignoring)} enforces none", advice)
    else:
        yield Finding("network policies", "unknown", "no known plug-in that enforces them was seen", _TRY)


def check_kueue(cluster: ClusterAccess, release: ChartRelease) -> Iterator[Finding]:
    """Whether the queues and priorities of studies exist, and the queues are active; no finding without queues."""
    variants = [(namespace, config) for namespace, _, _, config in release.variants(cluster) if config.queue]
    version = cluster.preferred(kueue.GROUP) if variants else None
    for namespace, queue_name in dict.fromkeys((namespace, config.queue) for namespace, config in variants):
        if version is None:
            text = f"studies of {namespace} wait in {queue_name}, but the cluster does not know {kueue.GROUP}"
            yield Finding("kueue", "problem", text, "install Kueue, or set no queue")
            return
        try:
            queue = cluster.get(f"/apis/{kueue.GROUP}/{version}/namespaces/{namespace}/localqueues/{queue_name}")
        except NotFound:
            text = f"there is no LocalQueue {queue_name} in {namespace}"
            yield Finding("kueue", "problem", text, "create it: studies wait until it is there")
            continue
        active = {item["type"]: item for item in queue.get("status", {}).get("conditions") or []}.get("Active", {})
        name = f"LocalQueue {queue_name} in {namespace}"
        if active.get("status") == "True":
            yield Finding("kueue", "ok", f"{name} is active")
        else:
            why = active.get("message", "Kueue has not said that it is active")
            yield Finding("kueue", "problem", f"{name}: {why}", "kubectl describe it and its ClusterQueue")
    for name in dict.fromkeys(config.queue_priority_class for _, config in variants if config.queue_priority_class):
        try:
            cluster.get(f"/apis/{kueue.GROUP}/{version}/workloadpriorityclasses/{name}")
        except NotFound:
            text = f"there is no WorkloadPriorityClass {name}"
            yield Finding("kueue", "problem", text, "create it: studies wait until it is there")


def check_metrics(cluster: ClusterAccess, release: ChartRelease) -> Iterator[Finding]:
    """Whether the metrics for scaling the API are available; no finding without autoscaling."""
    if not release.of_kind("HorizontalPodAutoscaler"):
        return
    if cluster.preferred("metrics.k8s.io"):
        yield Finding("metrics", "ok", "metrics.k8s.io, by which the API is scaled, is there")
    else:
        text = "api.autoscaling needs metrics.k8s.io, which the cluster does not know"
        yield Finding("metrics", "problem", text, "install metrics-server")


def _arguments(daemon_set: Mapping[str, Any]) -> list[str]:
    containers = daemon_set["spec"]["template"]["spec"]["containers"]
    return [str(word) for container in containers for word in container.get("args") or ()]
