"""RayJobs as KubeRay 1.7 runs them in HTTPMode: finalizer, deadline, retries, time to live."""

import re
import time
from datetime import UTC, datetime

from tests.kubernetes_cluster import ray_pods
from tests.kubernetes_cluster.dashboard import Dashboard, Unreachable
from tests.kubernetes_cluster.rayclusters import now, path_of, pods_of

FINALIZER = "ray.io/rayjob-finalizer"
TERMINAL = ("STOPPED", "SUCCEEDED", "FAILED")
CHECK_TIMEOUT_S = 300
LONGEST_NAME = 47


def since(text):
    return time.time() - datetime.fromisoformat(text).timestamp()


class RayJobs:
    """The state machine of RayJobs.

    Args:
        rest: The API server.
    """

    def __init__(self, rest):
        self._rest = rest

    def look(self, job):
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
            "Retrying": self._clearing,
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
        if self._too_late(spec, status):
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
        if self._too_late(spec, status):
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
        for key in ("rayClusterStatus", "rayClusterName", "dashboardURL", "jobId", "message", "reason", "rayJobInfo"):
            status.pop(key, None)
        status |= {"jobStatus": "", "jobDeploymentStatus": ""}

    def _over(self, job, spec, status):
        if spec.get("shutdownAfterJobFinishes") and since(status["endTime"]) > spec.get("ttlSecondsAfterFinished", 0):
            self._remove_cluster(job, status)

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
            about = {"name": status["rayClusterName"], "labels": labels, "annotations": meta.get("annotations", {})}
            about["ownerReferences"] = [ray_pods.owner(job)]
            kind = {"apiVersion": "ray.io/v1", "kind": "RayCluster"}
            body = {**kind, "metadata": about, "spec": job["spec"]["rayClusterSpec"]}
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
        heads = [pod for pod in pods_of(self._rest, cluster) if pod["metadata"]["labels"]["ray.io/node-type"] == "head"]
        address = next((pod["status"].get("podIP") for pod in heads if pod["status"].get("phase") == "Running"), None)
        if found is None or address is None:
            raise Unreachable("the head does not run")
        return Dashboard(address, found)
