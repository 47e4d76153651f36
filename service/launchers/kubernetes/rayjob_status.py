"""A driver's status from its RayJob and pods: every phase of KubeRay 1.7, and every reason for a failure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from service.launchers.base import Seen
from service.launchers.kubernetes import kueue, pod_problems
from service.launchers.kubernetes.pod_problems import Patience, Pod

Job = Mapping[str, Any]

ENDED = ("Complete", "Failed", "ValidationFailed")
"""Phases in which KubeRay does nothing more for a RayJob."""
_OPERATOR_S = 60.0
_TAIL = 5


def finished(job: Job) -> bool:
    """Whether nothing of a RayJob will run again."""
    return "deletionTimestamp" in job["metadata"] or job.get("status", {}).get("jobDeploymentStatus") in ENDED


def suspended(job: Job) -> bool:
    """Whether a RayJob is suspended: by Kueue, or by somebody with kubectl."""
    return bool(job["spec"].get("suspend")) and not finished(job)


def waits(job: Job) -> bool:
    """Whether a RayJob waits in a queue, for the first time or again."""
    return suspended(job) and bool(kueue.queue_of(job))


def judge(job: Job, pods: Sequence[Pod], patience: Patience, now: float) -> Seen:
    """The status of a RayJob's driver, as far as Kubernetes knows.

    Args:
        job: The RayJob.
        pods: The pods of its study.
        patience: How long to wait for nodes and images.
        now: Seconds since 1970.
    """
    if "deletionTimestamp" in job["metadata"]:
        return Seen(False, "its RayJob is being deleted")
    if waits(job):
        return Seen(True, f"it waits in the queue {kueue.queue_of(job)}", waiting=True)
    if suspended(job):
        return Seen(False, "somebody has suspended its RayJob")
    status = job.get("status", {})
    phase = status.get("jobDeploymentStatus", "")
    match phase:
        case "Complete":
            return _complete(status)
        case "Failed" | "ValidationFailed":
            return _failed(phase, status, pods)
        case "Running":
            return _running(status, pods, patience, now)
        case "" | "Initializing":
            return _starting(job, status, pods, patience, now)
        case "Suspending" | "Suspended":
            return Seen(True, "it was admitted: KubeRay resumes its RayJob")
        case "Retrying":
            return Seen(True, f"KubeRay tries again: {pod_problems.shortened(status.get('message', ''))}")
        case "Waiting" | "Scheduling" | "Scheduled":
            return Seen(True, f"its RayJob is {phase.lower()}")
        case _:
            return Seen(True, f"KubeRay reports {phase}, which this version does not know")


def _complete(status: Mapping[str, Any]) -> Seen:
    if status.get("jobStatus") == "STOPPED":
        return Seen(False, "its Ray job was stopped")
    return Seen(False, "")


def _failed(phase: str, status: Mapping[str, Any], pods: Sequence[Pod]) -> Seen:
    reason, message = status.get("reason", ""), status.get("message", "")
    short = pod_problems.shortened(message)
    if phase == "ValidationFailed":
        return Seen(False, f"KubeRay refuses the RayJob: {short or reason}", hopeless=True)
    heads = pod_problems.of_kind(pods, "head", status.get("rayClusterName", ""))
    dead = [ending for pod in heads if (ending := pod_problems.end_of(pod))]
    lost = f"; the head: {dead[-1]}" if dead else ""
    match reason:
        case "DeadlineExceeded":
            return Seen(False, f"it ran longer than deadline_seconds allows: {short}", hopeless=True)
        case "PreRunningDeadlineExceeded":
            return Seen(False, f"its pods did not come up in time: {short}{lost}", hopeless=True)
        case "SubmissionFailed":
            return Seen(False, f"KubeRay could not submit it to Ray: {short}{lost}")
        case "AppFailed":
            return Seen(False, f"its process ended: {tail(message)}{lost}")
        case "JobStatusCheckTimeoutExceeded":
            return Seen(False, f"the head was lost: KubeRay no longer reaches it: {short}{lost}")
        case "JobDeploymentStatusTransitionGracePeriodExceeded":
            ended = "failed" if status.get("jobStatus") == "FAILED" else "ended"
            return Seen(False, f"its Ray job {ended}, and KubeRay did not notice in time: {short}{lost}")
        case _:
            return Seen(False, f"its RayJob failed ({reason or 'no reason given'}): {short}{lost}")


def _running(status: Mapping[str, Any], pods: Sequence[Pod], patience: Patience, now: float) -> Seen:
    cluster = status.get("rayClusterName", "")
    if status.get("jobStatus") in ("PENDING", "RUNNING"):
        gone = _head_lost(status, pod_problems.of_kind(pods, "head", cluster))
        if gone:
            return Seen(False, f"the head was lost: {gone}")
    return _workers(status, pod_problems.of_kind(pods, "worker", cluster), patience, now, trained=True)


def _head_lost(status: Mapping[str, Any], heads: Sequence[Pod]) -> str:
    """How the head that ran the driver was lost; "" when it was not."""
    started = pod_problems.moment(status.get("rayJobInfo", {}).get("startTime"))
    living = [pod for pod in heads if pod_problems.lives(pod)]
    if not living:
        endings = [ending for pod in heads if (ending := pod_problems.end_of(pod))]
        return endings[-1] if endings else "its pod is gone"
    if started and all(pod_problems.moment(pod["metadata"].get("creationTimestamp")) > started for pod in living):
        return "its pod was replaced"
    return ""


def _workers(
    status: Mapping[str, Any], workers: Sequence[Pod], patience: Patience, now: float, *, trained: bool
) -> Seen:
    """What keeps workers from starting, or has ended them; hopeless only if no worker is running.

    KubeRay replaces a worker that ran out of memory, and its packs resume from their last checkpoint: no reason to end
    a study that trains. If workers run out of memory repeatedly before that, they are too small for Ray itself.
    """
    starved = pod_problems.starvation(workers, "a worker")
    troubles = [
        trouble
        for trouble in (starved, _quota(status) or pod_problems.trouble(workers, "a worker", patience, now))
        if trouble
    ]
    hopeless = any(trouble.hopeless for trouble in troubles if trouble is not starved or not trained)
    over = hopeless and not any(pod_problems.runs(pod) for pod in workers)
    return Seen(not over, "; ".join(trouble.reason for trouble in troubles), hopeless=over)


def _starting(job: Job, status: Mapping[str, Any], pods: Sequence[Pod], patience: Patience, now: float) -> Seen:
    waited = now - pod_problems.moment(job["metadata"].get("creationTimestamp"))
    if not status.get("jobDeploymentStatus") and waited > _OPERATOR_S:
        over = waited > max(patience.unschedulable, _OPERATOR_S)
        lasted = pod_problems.steps(waited)
        text = f"KubeRay has not taken up the RayJob for {lasted} s: is its operator running, and new enough?"
        return Seen(not over, text, hopeless=over)
    cluster = status.get("rayClusterName", "")
    if not cluster:  # any pods belong to an earlier RayJob
        return Seen(True)
    heads = pod_problems.of_kind(pods, "head", cluster)
    trouble = pod_problems.trouble(heads, "the head", patience, now)
    if trouble is None and not any(pod_problems.runs(pod) for pod in heads):
        trouble = pod_problems.starvation(heads, "the head")
    if trouble is None:
        return _workers(status, pod_problems.of_kind(pods, "worker", cluster), patience, now, trained=False)
    return Seen(not trouble.hopeless, trouble.reason, trouble.hopeless)


def _quota(status: Mapping[str, Any]) -> pod_problems.Trouble | None:
    """A quota that keeps KubeRay from creating pods."""
    cluster = status.get("rayClusterStatus", {})
    texts = [condition.get("message", "") for condition in cluster.get("conditions") or [] if _failing(condition)]
    for text in [*texts, cluster.get("reason", "")]:
        if (problem := pod_problems.quota(text)) is not None:
            return problem
    return None


def _failing(condition: Mapping[str, Any]) -> bool:
    return condition.get("type") == "ReplicaFailure" and condition.get("status") == "True"


def tail(message: str) -> str:
    """Ray's message about a failed entrypoint, cut to its first line and the last lines of the log in it."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if len(lines) < 2:
        return pod_problems.shortened(message) or "no message"
    head = lines[0].split(", last available logs")[0]
    return pod_problems.shortened(f"{head}; its last lines: {' | '.join(lines[1:][-_TAIL:])}", 1000)
