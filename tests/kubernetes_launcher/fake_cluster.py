"""Clusters made of answers: for the checks of `driftline doctor kubernetes`, and namespaces for the launcher."""

import copy
import time

from driftline.errors import NotFound

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
DAEMONS = "/apis/apps/v1/daemonsets"
OPERATORS = "/api/v1/pods"
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RAYJOBS = "/apis/ray.io/v1/namespaces/studies/rayjobs"


def crd(*path):
    """A CRD whose version v1 has the field at this path."""
    schema = {"type": "string"}
    for step in reversed(path):
        schema = {"properties": {step: schema}}
    return {"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}}


def operator(image="quay.io/kuberay/operator:v1.7.0", ready="True", args=()):
    return {
        "metadata": {"namespace": "kuberay", "name": "kuberay-operator-0"},
        "spec": {"containers": [{"image": image, "args": list(args)}]},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def storage_class(name, provisioner, default=True):
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    return {"metadata": {"name": name, "annotations": annotations}, "provisioner": provisioner}


def node(labels=None, taints=(), unschedulable=False, **allocatable):
    amounts = {key.replace("gpu", "nvidia.com/gpu"): value for key, value in allocatable.items()}
    return {
        "metadata": {"name": "n", "labels": labels or {}},
        "spec": {"taints": list(taints), "unschedulable": unschedulable},
        "status": {"allocatable": {"cpu": "16", "memory": "64Gi", **amounts}},
    }


def daemon(name, *args):
    return {"metadata": {"name": name}, "spec": {"template": {"spec": {"containers": [{"args": list(args)}]}}}}


def resources(*names):
    return {"resources": [{"kind": kind, "name": name, "namespaced": kind != "Namespace"} for kind, name in names]}


CORE = resources(*((k, f"{k.lower()}s") for k in ("ConfigMap", "Namespace", "PersistentVolumeClaim", "Secret")))
WELL = {
    "/version": {"gitVersion": "v1.31.2-eks-1"},
    "/apis/ray.io/v1": resources(("RayJob", "rayjobs"), ("RayCluster", "rayclusters")),
    "/api/v1": CORE,
    "/apis/networking.k8s.io/v1": resources(("NetworkPolicy", "networkpolicies")),
    "/apis/rbac.authorization.k8s.io/v1": resources(("Role", "roles")),
    "/apis/autoscaling/v2": resources(("HorizontalPodAutoscaler", "horizontalpodautoscalers")),
    f"{CRD}/rayjobs.ray.io": crd("spec", "rayClusterSpec", "authOptions", "secretName"),
    f"{CRD}/rayclusters.ray.io": crd("spec", "authOptions", "secretName"),
    OPERATORS: {"items": [operator()]},
    CLASSES: {"items": [storage_class("standard", "ebs.csi.aws.com")]},
    "/api/v1/nodes": {"items": [node(), node(gpu="4"), node(gpu="4")]},
    DAEMONS: {"items": [daemon("calico-node")]},
    RAYJOBS: {},
}


class FakeApi:
    """Answers of an API server by path; a missing one is a 404, an exception is raised. Notes what it is asked."""

    namespace = "driftline"

    def __init__(self, answers, rights=lambda asked: True):
        self._answers = answers
        self._rights = rights
        self.asked = []

    def request(self, method, path, *, query=None, body=None):
        self.asked.append((method, path, query, body))
        if path.endswith("/selfsubjectaccessreviews"):
            return {"status": {"allowed": self._rights(body["spec"]["resourceAttributes"])}}
        answer = self._answers.get(path, NotFound(f"Kubernetes answers 404: {path}"))
        if isinstance(answer, Exception):
            raise answer
        return copy.deepcopy(answer)

    def preferred(self, group):
        return self.request("GET", f"/apis/{group}")["preferredVersion"]["version"]

    def close(self):
        pass


class FakeNamespaces:
    """A namespace whose RayJobs and pods are listed and deleted; what is created in it is noted.

    Args:
        objects: Namespace -> kind -> its objects, or the error that every list raises.
        namespace: Its name.
    """

    def __init__(self, objects, namespace="studies"):
        self.namespace = namespace
        self.created = []
        self._objects = objects

    def within(self, namespace):
        return FakeNamespaces(self._objects, namespace)

    def items(self, kind, selector):
        found = self._objects[self.namespace]
        if isinstance(found, Exception):
            raise found
        return list(found.get(kind, [])), "1"

    def watch(self, kind, selector, version, seconds):
        time.sleep(0.05)
        return iter(())

    def create(self, kind, body):
        self.created.append(body)
        return {**body, "metadata": {**body["metadata"], "uid": "u", "resourceVersion": "1"}}

    def apply(self, kind, body):
        return True  # created: nothing of an earlier RayJob was there

    def delete(self, kind, item):
        """A deleted RayJob takes its pods along only by hand."""
        self._objects[self.namespace][kind].remove(item)

    def close(self):
        pass
