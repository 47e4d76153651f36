"""A small operator that stands in for KubeRay's in tests: RayJobs become RayClusters, these become pods.

    KUBECONFIG=... python -m tests.kubernetes_cluster.kuberay

It follows the state machine of KubeRay 1.7 for RayJobs in HTTPMode and the parts of its RayCluster controller that a
study meets: finalizer, head Service, pods replaced when they die, autoscaler beside the head, suspension, deadlines,
retries, time to live. KubeRay itself was not run here.
"""

import base64
import os
import re
import sys
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path

from tests.kubernetes_cluster import ray_pods
from tests.kubernetes_cluster.dashboard import Dashboard, Unreachable
from tests.kubernetes_cluster.rest import Refused, Rest

FINALIZER = "ray.io/rayjob-finalizer"
TERMINAL = ("STOPPED", "SUCCEEDED", "FAILED")
CHECK_TIMEOUT_S = 300
LONGEST_NAME = 47
EVERY_S = 0.5


def now():
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def since(text):
    return time.time() - datetime.fromisoformat(text).timestamp()


class Operator:
    """Looks at all RayJobs and RayClusters again and again.

    Args:
        rest: The API server.
        certificate: What its certificate is checked against.
    """

    def __init__(self, rest, certificate):
        self._rest = rest
        self._certificate = base64.b64encode(certificate).decode()

    def run(self):
        while True:
            try:
                self.certificates()
            except Exception as error:
                print(f"certificates: {error}", flush=True)
            for look, path, kind in ((self.job, "rayjobs", "RayJob"), (self.cluster, "rayclusters", "RayCluster")):
                try:
                    found = self._rest.items(f"/apis/ray.io/v1/{path}")
                except Exception as error:
                    print(f"{path}: {error}", flush=True)
                    continue
                for item in found:
                    try:
                        look({"apiVersion": "ray.io/v1", "kind": kind, **item})
                    except Refused as error:
                        if error.status not in (404, 409):
                            print(f"{item['metadata']['name']}: {error}", flush=True)
                    except Exception:
                        traceback.print_exc()
            time.sleep(EVERY_S)

    def certificates(self):
        """Puts the API server's certificate beside ServiceAccount tokens: the test node's own controllers do not."""
        types = "fieldSelector=type%3Dkubernetes.io/service-account-token"
        for secret in self._rest.items(f"/api/v1/secrets?{types}"):
            if "ca.crt" not in secret.get("data", {}):
                meta = secret["metadata"]
                path = f"/api/v1/namespaces/{meta['namespace']}/secrets/{meta['name']}"
                self._rest.merge(path, {"data": {"ca.crt": self._certificate}})

    # RayJobs

    def job(self, job):
        """One step of a RayJob's state machine."""
        meta, spec = job["metadata"], job["spec"]
        status = dict(job.get("status") or {})
        if "deletionTimestamp" in meta:
            self._let_go(job, status)
            return
        if len(meta["name"]) > LONGEST_NAME or not re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", meta["name"]):
            print(f"{meta['name']}: not a name for a RayJob", flush=True)
            return
        phase = status.get("jobDeploymentStatus", "")
        before = (status.get("jobStatus", ""), phase, status.get("jobStatusCheckFailureStartTime"))
        step = {
            "": self._new,
            "Initializing": self._initializing,
            "Running": self._running,
            "Suspending": self._clearing,
            "Retrying": self._clearing,
            "Suspended": self._suspended,
            "Complete": self._over,
            "Failed": self._over,
        }[phase]
        step(job, spec, status)
        if status.get("jobDeploymentStatus") == "Failed" and phase != "Failed":
            status["failed"] = status.get("failed", 0) + 1
            if status["failed"] <= spec.get("backoffLimit", 0) and status.get("reason") != "DeadlineExceeded":
                status["jobDeploymentStatus"] = "Retrying"
        if status.get("jobDeploymentStatus") == "Complete" and phase != "Complete":
            status["succeeded"] = status.get("succeeded", 0) + 1
        after = (status.get("jobStatus", ""), status.get("jobDeploymentStatus", ""))
        if (*after, status.get("jobStatusCheckFailureStartTime")) != before:
            if after[1] in ("Complete", "Failed"):
                status["endTime"] = now()
            print(
                f"{meta['name']}: {before[1]} {before[0]} -> {after[1]} {after[0]} {status.get('reason', '')}",
                flush=True,
            )
            self._write(job, status)

    def _new(self, job, spec, status):
        meta = job["metadata"]
        if FINALIZER not in meta.get("finalizers", []):
            self._rest.merge(path_of(job), {"metadata": {"finalizers": [*meta.get("finalizers", []), FINALIZER]}})
        letters = f"{time.time_ns() % 36**5:05d}"[-5:]
        status.setdefault("rayClusterName", f"{meta['name']}-{letters}")
        status.setdefault("jobId", f"{meta['name']}-{letters}")
        status |= {"jobDeploymentStatus": "Initializing", "startTime": now()}

    def _initializing(self, job, spec, status):
        if self._suspends(spec, status) or self._too_late(spec, status):
            return
        cluster = self._cluster_of(job, status)
        status["rayClusterStatus"] = cluster.get("status", {})
        if cluster.get("status", {}).get("state") == "ready":
            meta = cluster["metadata"]
            status["dashboardURL"] = f"{meta['name']}-head-svc.{meta['namespace']}.svc.cluster.local:8265"
            status["jobDeploymentStatus"] = "Running"
        elif status["rayClusterStatus"] != (job.get("status") or {}).get("rayClusterStatus"):
            self._write(job, status)

    def _running(self, job, spec, status):
        if self._suspends(spec, status) or self._too_late(spec, status):
            return
        cluster = self._cluster_of(job, status)
        status["rayClusterStatus"] = cluster.get("status", {})
        try:
            dashboard = self._dashboard(cluster)
            info = dashboard.job(status["jobId"])
            if info is None:
                dashboard.submit(status["jobId"], spec)
                return
        except Unreachable as error:
            first = status.setdefault("jobStatusCheckFailureStartTime", now())
            if since(first) > CHECK_TIMEOUT_S:
                status |= {
                    "jobDeploymentStatus": "Failed",
                    "reason": "JobStatusCheckTimeoutExceeded",
                    "message": str(error),
                }
            return
        status.pop("jobStatusCheckFailureStartTime", None)
        status |= {"jobStatus": info["status"], "message": info.get("message") or ""}
        times = {"startTime": info.get("start_time"), "endTime": info.get("end_time")}
        status["rayJobInfo"] = {
            key: datetime.fromtimestamp(value / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            for key, value in times.items()
            if value
        }
        if info["status"] in TERMINAL:
            failed = info["status"] == "FAILED"
            status |= {
                "jobDeploymentStatus": "Failed" if failed else "Complete",
                "reason": "AppFailed" if failed else "",
            }

    def _clearing(self, job, spec, status):
        if self._remove_cluster(job, status):
            return
        phase = "Suspended" if status["jobDeploymentStatus"] == "Suspending" else ""
        for key in ("rayClusterStatus", "rayClusterName", "dashboardURL", "jobId", "message", "reason", "rayJobInfo"):
            status.pop(key, None)
        status |= {"jobStatus": "", "jobDeploymentStatus": phase}

    def _suspended(self, job, spec, status):
        if not spec.get("suspend"):
            status |= {"jobStatus": "", "jobDeploymentStatus": ""}

    def _over(self, job, spec, status):
        if spec.get("shutdownAfterJobFinishes") and since(status["endTime"]) > spec.get("ttlSecondsAfterFinished", 0):
            self._remove_cluster(job, status)

    def _suspends(self, spec, status):
        if spec.get("suspend"):
            status["jobDeploymentStatus"] = "Suspending"
        return bool(spec.get("suspend"))

    def _too_late(self, spec, status):
        most = spec.get("activeDeadlineSeconds")
        if most is None or since(status["startTime"]) < most:
            return False
        message = f"The RayJob has passed the activeDeadlineSeconds. ActiveDeadlineSeconds: {most}"
        status |= {"jobDeploymentStatus": "Failed", "reason": "DeadlineExceeded", "message": message}
        return True

    def _let_go(self, job, status):
        if FINALIZER not in job["metadata"].get("finalizers", []):
            return
        if status.get("jobStatus") not in TERMINAL and status.get("rayClusterName"):
            cluster = self._rest.get(self._cluster_path(job, status))
            try:
                if cluster is not None:
                    self._dashboard(cluster).stop(status["jobId"])
            except Unreachable as error:
                print(f"{job['metadata']['name']}: its job could not be stopped: {error}", flush=True)
        left = [name for name in job["metadata"]["finalizers"] if name != FINALIZER]
        self._rest.merge(path_of(job), {"metadata": {"finalizers": left or None}})

    def _cluster_path(self, job, status):
        namespace = job["metadata"]["namespace"]
        return f"/apis/ray.io/v1/namespaces/{namespace}/rayclusters/{status['rayClusterName']}"

    def _cluster_of(self, job, status):
        path = self._cluster_path(job, status)
        found = self._rest.get(path)
        if found is None:
            meta = job["metadata"]
            labels = {**meta.get("labels", {}), "ray.io/originated-from-cr-name": meta["name"]}
            labels["ray.io/originated-from-crd"] = "RayJob"
            body = {
                "apiVersion": "ray.io/v1",
                "kind": "RayCluster",
                "metadata": {
                    "name": status["rayClusterName"],
                    "labels": labels,
                    "annotations": meta.get("annotations", {}),
                    "ownerReferences": [ray_pods.owner(job)],
                },
                "spec": job["spec"]["rayClusterSpec"],
            }
            found = self._rest.make(path.rsplit("/", 1)[0], body) or self._rest.get(path)
        return found

    def _remove_cluster(self, job, status):
        """Whether the RayCluster is still there."""
        if not status.get("rayClusterName"):
            return False
        path = self._cluster_path(job, status)
        found = self._rest.get(path)
        if found is not None and "deletionTimestamp" not in found["metadata"]:
            self._rest.delete(path)
        pods = f"/api/v1/namespaces/{job['metadata']['namespace']}/pods"
        left = self._rest.items(f"{pods}?labelSelector=ray.io/cluster%3D{status['rayClusterName']}")
        return found is not None or bool(left)

    def _write(self, job, status):
        meta = job["metadata"]
        fresh = self._rest.get(path_of(job))
        if fresh is None or fresh["metadata"]["uid"] != meta["uid"]:
            return
        said = {key: value for key, value in status.items() if value not in ("", {})}  # v1.20 reads "" as null
        cleared = {key: None for key in fresh.get("status", {}) if key not in said}
        self._rest.merge(f"{path_of(job)}/status", {"status": {**said, **cleared}})

    def _dashboard(self, cluster):
        meta = cluster["metadata"]
        secret = cluster["spec"]["authOptions"]["secretName"]
        found = self._rest.get(f"/api/v1/namespaces/{meta['namespace']}/secrets/{secret}")
        heads = [pod for pod in self._pods(cluster) if pod["metadata"]["labels"]["ray.io/node-type"] == "head"]
        address = next((pod["status"].get("podIP") for pod in heads if pod["status"].get("phase") == "Running"), None)
        if found is None or address is None:
            raise Unreachable("the head does not run")
        return Dashboard(address, found)

    # RayClusters

    def cluster(self, cluster):
        """Brings a RayCluster's Service and pods to what its spec says, and its status to what they are."""
        meta, spec = cluster["metadata"], cluster["spec"]
        if "deletionTimestamp" in meta:
            return
        at = f"/api/v1/namespaces/{meta['namespace']}"
        if self._rest.get(f"{at}/services/{meta['name']}-head-svc") is None:
            self._rest.make(f"{at}/services", ray_pods.head_service(cluster))
            if spec.get("enableInTreeAutoscaling"):
                self._allow_scaling(cluster)
        pods = [pod for pod in self._pods(cluster) if "deletionTimestamp" not in pod["metadata"]]
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

    def _pods(self, cluster):
        meta = cluster["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods?labelSelector=ray.io/cluster%3D{meta['name']}"
        return self._rest.items(path)

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


def path_of(item):
    kind = "rayjobs" if item["kind"] == "RayJob" else "rayclusters"
    return f"/apis/ray.io/v1/namespaces/{item['metadata']['namespace']}/{kind}/{item['metadata']['name']}"


def _ready(pod):
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions") or [])


if __name__ == "__main__":
    print("the stand-in for KubeRay runs", flush=True)
    config = Path(os.environ["KUBECONFIG"])
    sys.exit(Operator(Rest(config), (config.parent / "pki/serving/apiserver.crt").read_bytes()).run())
