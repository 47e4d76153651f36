"""Whether the account has the rights that Helm needs for the chart's objects, or the launcher for its studies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from service.launchers.kubernetes.doctor.chart_release import ChartRelease
from service.launchers.kubernetes.doctor.cluster_access import ClusterAccess, Finding, Right

_HELM = ("get", "create", "patch", "delete")
_ROLES = "rbac.authorization.k8s.io"
LAUNCHER = {
    ("ray.io", "rayjobs"): ("get", "list", "watch", "create", "patch", "delete"),
    ("", "secrets"): ("create", "patch"),
    ("", "pods"): ("list", "watch"),
}
"""(API group, resource) -> what the launcher does in each namespace of studies, whatever its settings."""
_SHOWN = 12


def check_kinds(cluster: ClusterAccess, release: ChartRelease) -> Iterator[Finding]:
    """Whether the cluster has all kinds of objects that the chart installs."""
    used = {(item["apiVersion"], item["kind"]) for item in release.objects}
    missing = sorted(f"{kind} ({version})" for version, kind in used if kind not in cluster.kinds(version))
    if missing:
        advice = "install what brings them (an operator and its CRDs), or disable them in the values"
        yield Finding("kinds", "problem", f"the cluster does not know {', '.join(missing)}", advice)
    elif used:
        yield Finding("kinds", "ok", f"the cluster knows all {len(used)} kinds of objects in the manifest")


def check_rights(cluster: ClusterAccess, release: ChartRelease) -> Iterator[Finding]:
    """Whether the account has the rights that are needed; asked of the cluster one by one."""
    if not (release.objects or release.settings):
        advice = "pass what `helm template` or `helm get manifest` prints"
        yield Finding("rights", "unknown", "which rights are needed depends on the chart's values", advice)
        return
    needed = set(_of_helm(cluster, release) if release.objects else _of_launcher(cluster, release))
    everything = {namespace: cluster.may(Right(namespace, "*", "*", "*")) for namespace in _namespaces(needed)}
    missing = [right for right in sorted(needed, key=str) if not everything[right.namespace] and not cluster.may(right)]
    task = "helm's work" if release.objects else "running studies"
    if missing:
        more = [f"and {len(missing) - _SHOWN} more"] if len(missing) > _SHOWN else []
        text = f"missing for {task}: {'; '.join([*map(str, missing[:_SHOWN]), *more])}"
        yield Finding("rights", "problem", text, "use another account, or have these rights granted")
    else:
        yield Finding("rights", "ok", f"the account has all {len(needed)} rights needed for {task}")


def _of_launcher(cluster: ClusterAccess, release: ChartRelease) -> Iterator[Right]:
    for namespace, _, _, config in release.variants(cluster):
        needed = dict(LAUNCHER)
        if not config.service_account:
            needed["", "serviceaccounts"] = ("create", "patch")
        if config.network_policy:
            needed["networking.k8s.io", "networkpolicies"] = ("create", "patch")
        if config.queue:
            needed["kueue.x-k8s.io", "workloads"] = ("list",)
        for (group, resource), verbs in needed.items():
            yield from (Right(namespace, group, resource, verb) for verb in verbs)


def _of_helm(cluster: ClusterAccess, release: ChartRelease) -> Iterator[Right]:
    """Rights on the kinds of the manifest, on Helm's own Secrets, and those that the manifest's Roles grant.

    Kubernetes lets nobody grant rights that they do not have, unless they may `escalate` Roles.
    """
    for item in release.objects:
        resource, namespaced = cluster.kinds(item["apiVersion"]).get(item["kind"], ("", True))
        group, _, _ = item["apiVersion"].rpartition("/")
        name = item["metadata"]["name"]
        namespace = item["metadata"].get("namespace", cluster.namespace) if namespaced else ""
        if not resource or (item["kind"] == "Namespace" and cluster.exists(f"/api/v1/namespaces/{name}")):
            continue
        yield from (Right(namespace, group, resource, verb) for verb in _HELM)
        if item["kind"] == "Role" and not cluster.may(Right(namespace, _ROLES, "roles", "escalate")):
            yield from (right for rule in item["rules"] for right in _granted(namespace, rule))
        if item["kind"] == "Secret":
            yield from (Right(namespace, "", "secrets", verb) for verb in ("list", "update"))


def _granted(namespace: str, rule: Mapping[str, Any]) -> Iterator[Right]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                for name in rule.get("resourceNames") or [""]:
                    yield Right(namespace, group, resource, verb, name)


def _namespaces(rights: set[Right]) -> set[str]:
    return {right.namespace for right in rights}
