"""Whether nodes can take heads and workers, and which GPUs they offer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from kubernetes.utils.quantity import parse_quantity

from service.launchers.kubernetes.config import DEFAULT_POOL, GPU_LABELS, NO_GPU_NODES, Head, Workers
from service.launchers.kubernetes.doctor.chart_release import ChartRelease
from service.launchers.kubernetes.doctor.cluster_access import ClusterAccess, Finding

Node = Mapping[str, Any]


def check_gpus(cluster: ClusterAccess, release: ChartRelease) -> Iterator[Finding]:
    """Which resources of device plugins the nodes offer; no GPU at all is no problem by itself."""
    del release
    nodes = cluster.listed("/api/v1/nodes")
    offered: dict[str, list[Decimal]] = {}
    for node in nodes:
        for resource, amount in _allocatable(node).items():
            if amount and any(part in resource for part in ("gpu", "nvidia.com/", "amd.com/")):
                offered.setdefault(resource, []).append(amount)
    texts = [f"{sum(amounts):g} {name} on {len(amounts)} nodes" for name, amounts in sorted(offered.items())]
    none = f"none on {len(nodes)} nodes: studies train on CPU cores (device plugins offer GPUs)"
    yield Finding("gpus", "ok", ", ".join(texts) or none)


def check_fit(cluster: ClusterAccess, release: ChartRelease) -> Iterator[Finding]:
    """Whether a node is large enough for a head, and one for a worker of each pool, when nothing else runs there."""
    if release.settings is None:
        return
    nodes = cluster.listed("/api/v1/nodes")
    yield _fit("head nodes", nodes, release.settings.head, {})
    pools = {pool: config.workers for _, _, pool, config in release.variants(cluster)}
    for pool, workers in pools.items():
        gpus = {workers.gpu_resource: Decimal(workers.gpus)} if workers.gpus else {}
        yield _fit("worker nodes" if pool == DEFAULT_POOL else f"worker nodes {pool}", nodes, workers, gpus)


def _fit(check: str, nodes: Sequence[Node], pods: Head | Workers, gpus: Mapping[str, Decimal]) -> Finding:
    needed = {"cpu": parse_quantity(pods.cpu), "memory": parse_quantity(pods.memory), **gpus}
    size = ", ".join([f"cpu {pods.cpu}", f"memory {pods.memory}", *(f"{n:g} {name}" for name, n in gpus.items())])
    chosen = [node for node in nodes if _chosen(node["metadata"].get("labels") or {}, pods)]
    large = [node for node in chosen if all(_allocatable(node).get(key, 0) >= n for key, n in needed.items())]
    open_ = [node for node in large if not _repelling(node, pods)]
    unseen = "; affinity was not considered" if pods.affinity and not _off_gpu_nodes(pods) else ""
    if open_:
        return Finding(check, "ok", f"{len(open_)} of {len(nodes)} nodes are large enough for {size}{unseen}")
    if not chosen:
        labels = ", ".join(f"{key}={value}" for key, value in pods.node_selector.items())
        text = f"no node has the labels {labels}" if labels else "there is no node"
        advice = "right only if the cluster adds such nodes by itself; otherwise correct nodeSelector"
        return Finding(check, "unknown", f"{text} without GPUs" if _off_gpu_nodes(pods) else text, advice)
    if not large:
        short = [key for key, n in needed.items() if all(_allocatable(node).get(key, 0) < n for node in chosen)]
        text = f"none of {len(chosen)} nodes is large enough for {size}" + (
            f": too little {', '.join(short)}" if short else ""
        )
        advice = "larger nodes or smaller values; for GPUs, a device plugin, and its resource in gpuResource"
        return Finding(check, "problem", text, advice)
    taints = sorted({taint for node in large for taint in _repelling(node, pods)})
    text = f"{len(large)} nodes are large enough for {size}, but tainted: {', '.join(taints)}"
    if gpus and all(taint.partition("=")[0].partition(":")[0] in gpus for taint in taints):
        return Finding(check, "unknown", text, "add a toleration, unless the cluster adds it by itself, as GKE does")
    return Finding(check, "problem", text, "add tolerations to the values, or make the nodes schedulable")


def _off_gpu_nodes(pods: Head | Workers) -> bool:
    """Whether the launcher keeps the pods off nodes with GPUs."""
    return bool(pods.affinity.get("nodeAffinity") == NO_GPU_NODES)


def _chosen(labels: Mapping[str, str], pods: Head | Workers) -> bool:
    """Whether a node's labels let the pods run there."""
    with_gpus = any(key in labels and value in (None, labels[key]) for key, value in GPU_LABELS.items())
    return pods.node_selector.items() <= labels.items() and not (with_gpus and _off_gpu_nodes(pods))


def _allocatable(node: Node) -> dict[str, Decimal]:
    amounts = node.get("status", {}).get("allocatable") or {}
    return {name: parse_quantity(amount) for name, amount in amounts.items()}


def _repelling(node: Node, pods: Head | Workers) -> list[str]:
    """Taints of a node that keep a pod away, `node.spec.unschedulable` included."""
    taints = [taint for taint in node["spec"].get("taints") or [] if taint["effect"] in ("NoSchedule", "NoExecute")]
    texts = [
        _text(taint) for taint in taints if not any(_tolerates(toleration, taint) for toleration in pods.tolerations)
    ]
    return texts or (["unschedulable"] if node["spec"].get("unschedulable") else [])


def _text(taint: Mapping[str, Any]) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint['key']}{value}:{taint['effect']}"


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return bool(toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", ""))
