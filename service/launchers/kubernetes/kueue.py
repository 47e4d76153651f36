"""RayJobs that wait in a queue of Kueue: their labels, and why they wait.

Kueue suspends a RayJob that has the name of a LocalQueue among its labels, resumes it when Kueue admits it, and
suspends it again when others take its place. Nothing else may change `spec.suspend`: that would take a study's turn
away, or give it one out of turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from service.launchers.kubernetes.pod_problems import moment, shortened

QUEUE = "kueue.x-k8s.io/queue-name"
PRIORITY = "kueue.x-k8s.io/priority-class"
ELASTIC = "kueue.x-k8s.io/elastic-job"
JOB_UID = "kueue.x-k8s.io/job-uid"
"""The label of Kueue's Workload with the uid of the object that waits."""
GROUP = "kueue.x-k8s.io"
_TAKEN_UP_S = 60.0

Job = Mapping[str, Any]


def labels(queue: str | None, priority_class: str | None) -> dict[str, str]:
    """Labels of a RayJob that has to wait in a queue; none without a queue."""
    if not queue:
        return {}
    return {QUEUE: queue, PRIORITY: priority_class} if priority_class else {QUEUE: queue}


def queue_of(job: Job) -> str:
    """The queue in which a RayJob waits or has waited; "" if there is none."""
    return str(job["metadata"].get("labels", {}).get(QUEUE, ""))


def reason(job: Job, workloads: Sequence[Mapping[str, Any]], now: float) -> str:
    """Why a RayJob that Kueue suspends does not run.

    Args:
        job: The RayJob.
        workloads: Kueue's Workload objects for it.
        now: Seconds since 1970.
    """
    queue = queue_of(job)
    if not workloads:
        waited = now - moment(job["metadata"].get("creationTimestamp"))
        if waited > _TAKEN_UP_S:
            return (
                f"it waits in the queue {queue}, but Kueue has not taken it up: is Kueue running, and does it manage "
                "RayJobs of this namespace?"
            )
        return f"it waits in the queue {queue}"
    newest = max(workloads, key=lambda item: str(item["metadata"].get("creationTimestamp", "")))
    conditions = {item["type"]: item for item in newest.get("status", {}).get("conditions") or []}
    evicted, reserved = conditions.get("Evicted", {}), conditions.get("QuotaReserved", {})
    text = shortened(reserved.get("message", "")) if reserved.get("status") == "False" else ""
    if not newest.get("spec", {}).get("active", True):
        why = shortened(evicted.get("message", "")) or "spec.active is false"
        return f"Kueue has taken it out of the queue {queue} until somebody puts it back: {why}"
    if conditions.get("Admitted", {}).get("status") == "True":
        return f"it was admitted by the queue {queue}"
    if reserved.get("status") == "True":
        return f"it has its quota in the queue {queue} and waits for Kueue's admission checks"
    if evicted.get("status") == "True":
        text = text or shortened(evicted.get("message", ""))
        again = f"it was stopped by Kueue ({evicted.get('reason', 'Evicted')}) and waits in the queue {queue} again"
        return f"{again}: {text}" if text else again
    return f"it waits in the queue {queue}: {text}" if text else f"it waits in the queue {queue}"
