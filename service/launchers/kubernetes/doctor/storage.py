"""Whether the claims of the chart find a storage class with the access modes that they need."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from driftline.errors import NotFound
from service.launchers.kubernetes.doctor.chart_release import ChartRelease
from service.launchers.kubernetes.doctor.cluster_access import ClusterAccess, Finding

_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
_DEFAULT = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
_MANY_NODES = re.compile(r"efs\.csi\.aws\.com|filestore\.csi\.storage\.gke\.io|file\.csi\.azure\.com|.*(nfs|cephfs).*")
_ONE_NODE = re.compile(
    r"ebs\.csi\.aws\.com|pd\.csi\.storage\.gke\.io|disk\.csi\.azure\.com|(.*\.)?rbd\.csi\.ceph\.com"
    r"|cinder\.csi\.openstack\.org|kubernetes\.io/(aws-ebs|gce-pd|azure-disk|cinder)|rancher\.io/local-path"
)
"""Provisioners of file systems that many nodes can mount at once, and of those that only one can.

Kubernetes itself does not know which access modes a storage class supports.
"""


def check_storage(cluster: ClusterAccess, release: ChartRelease) -> Iterator[Finding]:
    """The storage class of each claim; without a manifest only whether there is a default class."""
    classes = {item["metadata"]["name"]: item for item in cluster.listed(_CLASSES)}
    default = next((name for name, item in classes.items() if _is_default(item)), None)
    claims = release.of_kind("PersistentVolumeClaim")
    for claim in claims:
        yield _judge(cluster, claim, classes, default)
    if not release.objects:
        if default:
            yield Finding("storage", "ok", f"the default class is {default} ({classes[default]['provisioner']})")
        else:
            advice = "name one in the values (storageClass), or set postgresql.enabled and mlflow.enabled to false"
            yield Finding("storage", "problem", f"no default among the storage classes ({_names(classes)})", advice)
    elif not claims:
        yield Finding("storage", "ok", "the manifest claims no volume")


def _judge(
    cluster: ClusterAccess, claim: Mapping[str, Any], classes: Mapping[str, Any], default: str | None
) -> Finding:
    about = claim["metadata"]
    namespace = about.get("namespace", cluster.namespace)
    check = f"storage {about['name']}"
    modes = ", ".join(claim["spec"]["accessModes"])
    try:
        existing = cluster.get(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{about['name']}")
    except NotFound:
        existing = None
    if existing and existing.get("status", {}).get("phase") == "Bound":
        return Finding(check, "ok", f"the claim is bound to {existing['spec'].get('volumeName', 'a volume')} ({modes})")
    name = claim["spec"].get("storageClassName") or default
    if name is None:
        advice = "name one of these in the values (storageClass)" if classes else "install a provisioner"
        return Finding(check, "problem", f"no default among the storage classes ({_names(classes)})", advice)
    if name not in classes:
        advice = "name one of these in the values (storageClass)"
        return Finding(check, "problem", f"there is no storage class {name}, only {_names(classes)}", advice)
    provisioner = str(classes[name]["provisioner"])
    text = f"class {name} ({provisioner}), {modes}"
    if "ReadWriteMany" not in modes or _MANY_NODES.fullmatch(provisioner):
        return Finding(check, "ok", text)
    advice = "use a class for NFS, CephFS, EFS, Filestore or Azure Files, or for checkpoints set checkpoints.url"
    if _ONE_NODE.fullmatch(provisioner):
        return Finding(check, "problem", f"{text}: such volumes are for one node at a time", advice)
    return Finding(check, "unknown", f"{text}: whether it supports ReadWriteMany cannot be seen", f"if not, {advice}")


def _is_default(item: Mapping[str, Any]) -> bool:
    annotations = item["metadata"].get("annotations") or {}
    return any(annotations.get(key) == "true" for key in _DEFAULT)


def _names(classes: Mapping[str, Any]) -> str:
    return ", ".join(sorted(classes)) or "there are none"
