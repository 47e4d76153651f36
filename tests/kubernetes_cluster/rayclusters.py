"""RayClusters as KubeRay 1.7 keeps them: head Service, pods replaced when they die, autoscaler beside the head."""

from datetime import UTC, datetime

from tests.kubernetes_cluster import ray_pods
from tests.kubernetes_cluster.rest import Refused


def now():
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def path_of(item):
    kind = "rayjobs" if item["kind"] == "RayJob" else "rayclusters"
    return f"/apis/ray.io/v1/namespaces/{item['metadata']['namespace']}/{kind}/{item['metadata']['name']}"


def pods_of(rest, cluster):
    """The pods of a RayCluster."""
    meta = cluster["metadata"]
    return rest.items(f"/api/v1/namespaces/{meta['namespace']}/pods?labelSelector=ray.io/cluster%3D{meta['name']}")


class RayClusters:
    """Brings RayClusters to what their specs say.

    Args:
        rest: The API server.
    """

    def __init__(self, rest):
        self._rest = rest

    def look(self, cluster):
        """Brings a RayCluster's Service and pods to what its spec says, and its status to what they are."""
        meta, spec = cluster["metadata"], cluster["spec"]
        if "deletionTimestamp" in meta:
            return
        at = f"/api/v1/namespaces/{meta['namespace']}"
        if self._rest.get(f"{at}/services/{meta['name']}-head-svc") is None:
            self._rest.make(f"{at}/services", ray_pods.head_service(cluster))
            if spec.get("enableInTreeAutoscaling"):
                self._allow_scaling(cluster)
        pods = [pod for pod in pods_of(self._rest, cluster) if "deletionTimestamp" not in pod["metadata"]]
        doomed = [
            name
            for group in spec["workerGroupSpecs"]
            for name in group.get("scaleStrategy", {}).get("workersToDelete", [])
        ]
        gone = [
            pod
            for pod in pods
            if pod["status"].get("phase") in ("Failed", "Succeeded") or pod["metadata"]["name"] in doomed
        ]
        for pod in gone:
            print(f"{pod['metadata']['name']}: {pod['status'].get('phase')}, removed", flush=True)
            print(self._last_words(f"{at}/pods/{pod['metadata']['name']}", pod), flush=True)
            self._rest.delete(f"{at}/pods/{pod['metadata']['name']}")
        if gone:
            return
        failure = ""
        try:
            self._fill(cluster, pods, at)
        except Refused as error:
            failure = f"Failed to create Pod: {error.message}"
        ready = [pod for pod in pods if _ready(pod)]
        wanted = 1 + sum(ray_pods.desired(group) for group in spec["workerGroupSpecs"])
        self._cluster_status(cluster, len(ready) == len(pods) == wanted, ready, wanted - 1, failure)

    def _last_words(self, path, pod):
        """How a pod's containers ended, and the end of its log: for whoever reads a failed test."""
        states = [(one["name"], one.get("state")) for one in pod["status"].get("containerStatuses") or []]
        try:
            log = self._rest.send("GET", f"{path}/log?tailLines=15&container={pod['spec']['containers'][0]['name']}")
        except Refused as error:
            log = str(error)
        return f"    {states} {pod['status'].get('message', '')}\n    " + str(log).replace("\n", "\n    ")

    def _fill(self, cluster, pods, at):
        kinds = [pod["metadata"]["labels"]["ray.io/group"] for pod in pods]
        if "headgroup" not in kinds:
            self._rest.make(f"{at}/pods", ray_pods.head_pod(cluster))
        for group in cluster["spec"]["workerGroupSpecs"]:
            have, want = kinds.count(group["groupName"]), ray_pods.desired(group)
            for _ in range(have, want):
                self._rest.make(f"{at}/pods", ray_pods.worker_pod(cluster, group))
            if not cluster["spec"].get("enableInTreeAutoscaling"):  # else the autoscaler says who goes
                for pod in [pod for pod in pods if pod["metadata"]["labels"]["ray.io/group"] == group["groupName"]][
                    want:
                ]:
                    self._rest.delete(f"{at}/pods/{pod['metadata']['name']}")

    def _cluster_status(self, cluster, ready, pods, workers, failure):
        old = cluster.get("status", {})
        heads = [pod for pod in pods if pod["metadata"]["labels"]["ray.io/node-type"] == "head"]
        condition = {
            "type": "ReplicaFailure",
            "status": "True" if failure else "False",
            "reason": "FailedCreatePod" if failure else "NoFailure",
            "message": failure or "none",
            "lastTransitionTime": now(),
        }
        new = {
            # once ready it stays so: KubeRay keeps the state of a cluster whose pods are being replaced
            "state": "ready" if ready or old.get("state") == "ready" else old.get("state", ""),
            "desiredWorkerReplicas": workers,
            "readyWorkerReplicas": len(pods) - len(heads),
            "reason": failure,
            "head": {"podName": heads[0]["metadata"]["name"], "podIP": heads[0]["status"]["podIP"]} if heads else {},
        }
        same = all(old.get(key) == value for key, value in new.items() if value not in ({}, ""))
        said = next((one.get("message") for one in old.get("conditions", []) if one["type"] == "ReplicaFailure"), "")
        if not same or said != condition["message"]:
            filled = {key: value for key, value in new.items() if value not in ({}, "")}  # v1.20 reads "" as null
            self._rest.merge(f"{path_of(cluster)}/status", {"status": {**filled, "conditions": [condition]}})

    def _allow_scaling(self, cluster):
        """The rights of the autoscaler: its own RayCluster and pods."""
        meta = cluster["metadata"]
        account = ray_pods.service_account(cluster)
        about = {"name": meta["name"], "ownerReferences": [ray_pods.owner(cluster)]}
        rules = [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch"]},
            {"apiGroups": [""], "resources": ["pods/resize"], "verbs": ["patch"]},
            {"apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": ["get", "patch"]},
        ]
        rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{meta['namespace']}"
        accounts = f"/api/v1/namespaces/{meta['namespace']}/serviceaccounts"
        if self._rest.get(f"{accounts}/{account}") is None:
            self._rest.make(accounts, {"metadata": {**about, "name": account}})
        self._rest.make(f"{rbac}/roles", {"metadata": about, "rules": rules})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": meta["name"]}
        subject = {"kind": "ServiceAccount", "name": account, "namespace": meta["namespace"]}
        self._rest.make(f"{rbac}/rolebindings", {"metadata": about, "roleRef": role, "subjects": [subject]})


def _ready(pod):
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions") or [])
