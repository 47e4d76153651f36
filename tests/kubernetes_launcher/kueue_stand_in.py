"""Imitates what Kueue does to a RayJob; Kueue itself is not available here.

As its documentation and its RayJob controller have it: one Workload for a RayJob, found by the RayJob's uid, with
conditions; `spec.suspend` switched off when Kueue admits it, and on again when others take its place. Its webhooks,
which refuse RayJobs that it cannot manage and suspend new ones, are not played.
"""

from tests.kubernetes.foreign import crd
from tests.waiting import until

MERGE = "application/merge-patch+json"


class Kueue:
    """Kueue's part for the RayJobs of one namespace.

    Args:
        plane: The control plane.
        namespace: The namespace.
    """

    def __init__(self, plane, namespace):
        self._plane = plane
        self._rayjobs = f"/apis/ray.io/v1/namespaces/{namespace}/rayjobs"
        self._workloads = f"/apis/kueue.x-k8s.io/v1beta1/namespaces/{namespace}/workloads"

    @staticmethod
    def install(plane):
        """Brings the kind Workload to the cluster."""
        plane.send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd("Workload"), ok=(201, 409))
        until(lambda: plane.send("GET", "/apis/kueue.x-k8s.io/v1beta1/workloads", ok=(200, 404))[0] == 200)

    def queue(self, name, message):
        """Takes a RayJob up: its Workload has no quota yet."""
        job = self._plane.send("GET", f"{self._rayjobs}/{name}")[1]
        body = {
            "apiVersion": "kueue.x-k8s.io/v1beta1",
            "kind": "Workload",
            "metadata": {"name": f"rayjob-{name}", "labels": {"kueue.x-k8s.io/job-uid": job["metadata"]["uid"]}},
            "spec": {"queueName": job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "active": True},
        }
        self._plane.send("POST", self._workloads, body)
        self.says(name, QuotaReserved=("False", "Pending", message))

    def admit(self, name):
        """Its turn has come."""
        self.says(name, QuotaReserved=("True", "QuotaReserved", ""), Admitted=("True", "Admitted", ""))
        self._suspend(name, False)

    def preempt(self, name, message):
        """Others take its place."""
        self.says(
            name,
            Evicted=("True", "Preempted", message),
            QuotaReserved=("False", "Pending", message),
            Admitted=("False", "NoReservation", ""),
        )
        self._suspend(name, True)

    def says(self, name, **conditions):
        """Writes the Workload's conditions: type to (status, reason, message)."""
        written = [
            {"type": key, "status": status, "reason": reason, **({"message": message} if message else {})}
            for key, (status, reason, message) in conditions.items()
        ]
        path = f"{self._workloads}/rayjob-{name}/status"
        self._plane.send("PATCH", path, {"status": {"conditions": written}}, content=MERGE)

    def _suspend(self, name, suspended):
        path = f"{self._rayjobs}/{name}?fieldManager=kueue"
        self._plane.send("PATCH", path, {"spec": {"suspend": suspended}}, content=MERGE)
