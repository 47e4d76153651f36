"""What is wrong with a study's pods, as messages for users."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kubernetes.utils.quantity import parse_quantity

Pod = Mapping[str, Any]

_NEVER = {"InvalidImageName", "ErrImageNeverPull"}
_PULL = {"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ImageInspectError"}
_CONFIG = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CreatePodSandboxError"}
_PREPARED_S = 60.0
"""A node prepares a pod for longer than this only if an image is large, or a volume does not come."""

_QUOTA = re.compile(
    r"exceeded quota: (?P<name>[^,]+), requested: (?P<asked>.*), used: (?P<used>.*), limited: (?P<most>.*)"
)
_PREPARING = {
    "ContainerCreating": "it pulls the image {image}, or waits for a volume",
    "PodInitializing": "its init containers have not finished",
}
_LONGEST = 600
_OFTEN = 3


@dataclass(frozen=True)
class Patience:
    """How long to wait for problems that may resolve themselves, in seconds.

    Attributes:
        unschedulable: Wait for a node with room.
        image_pull: Wait for an image, a Secret, a volume.
    """

    unschedulable: float
    image_pull: float


@dataclass(frozen=True)
class Trouble:
    """What keeps a pod from running.

    Attributes:
        reason: The problem in words.
        hopeless: Whether it will not resolve itself, or has lasted too long.
    """

    reason: str
    hopeless: bool = False


def moment(text: str | None) -> float:
    """A timestamp of the API server in seconds since 1970; 0 without one."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def of_kind(pods: Iterable[Pod], kind: str, cluster: str = "") -> list[Pod]:
    """The head or worker pods; only those of one RayCluster if it is named."""
    chosen = []
    for pod in pods:
        labels = pod["metadata"].get("labels", {})
        if labels.get("ray.io/node-type") == kind and (not cluster or labels.get("ray.io/cluster") == cluster):
            chosen.append(pod)
    return chosen


def lives(pod: Pod) -> bool:
    """Whether a pod runs, or may still start."""
    over = pod.get("status", {}).get("phase") in ("Failed", "Succeeded")
    return not over and "deletionTimestamp" not in pod["metadata"]


def runs(pod: Pod) -> bool:
    """Whether a pod's containers run."""
    return lives(pod) and pod.get("status", {}).get("phase") == "Running"


def end_of(pod: Pod) -> str:
    """How a pod ended, or a container of it the last time; "" if none has ended."""
    status = pod.get("status", {})
    if status.get("reason") in ("Evicted", "NodeLost", "NodeShutdown", "Preempting", "Shutdown"):
        return f"it was evicted ({status['reason']}: {shortened(status.get('message', ''))})"
    if starved(pod):
        return _without_memory(pod)
    for _, ended in _endings(pod):
        if ended.get("exitCode"):
            return f"it ended with exit code {ended['exitCode']} ({ended.get('reason', 'Error')})"
    return ""


def starved(pod: Pod) -> bool:
    """Whether a container of a pod ran out of memory, now or the last time it ended."""
    return any(_oom(ended) for _, ended in _endings(pod))


def starvation(pods: Sequence[Pod], what: str) -> Trouble | None:
    """Pods that were lost because they ran out of memory; hopeless from the third on.

    The caller decides whether `hopeless` counts: packs resume from their checkpoints, and the driver gives up trials
    that lose their worker too often.

    Args:
        pods: Heads or workers of one RayCluster, including deleted ones.
        what: "the head" or "a worker".
    """
    told = [_without_memory(pod) for pod in pods if starved(pod)]
    if not told:
        return None
    times = f" ({len(told)} so far)" if len(told) > 1 else ""
    return Trouble(f"{what} was lost{times}: {told[-1]}", len(told) >= _OFTEN)


def trouble(pods: Sequence[Pod], what: str, patience: Patience, now: float) -> Trouble | None:
    """The first problem that keeps pods from starting.

    Args:
        pods: Heads or workers.
        what: "the head" or "a worker".
        patience: How long to wait for problems that may resolve themselves.
        now: Seconds since 1970.
    """
    starting = [pod for pod in pods if lives(pod) and not runs(pod)]
    for pod in starting:
        problem = _waiting(pod, what, patience, now) or _unplaced(pod, what, patience, now)
        if problem is not None:
            return problem
    return next((slow for pod in starting if (slow := _prepared(pod, what, now)) is not None), None)


def quota(text: str) -> Trouble | None:
    """The quota in a message of KubeRay; hopeless if it can never allow what a pod requests."""
    match = _QUOTA.search(text)
    if match is None:
        return None
    requested, most = _amounts(match["asked"]), _amounts(match["most"])
    never = any(amount > most[key] for key, amount in requested.items() if key in most)
    name, most_text = match["name"], match["most"].strip()
    if never:
        reason = f"the quota {name} can never allow it: a pod asks for {match['asked']}, the quota is {most_text}"
        return Trouble(reason, hopeless=True)
    return Trouble(f"it waits for the quota {name}: asked {match['asked']}, used {match['used']} of {most_text}")


def shortened(text: str, longest: int = _LONGEST) -> str:
    """A string on one line, of which only the end is kept if it is too long."""
    text = " ".join(text.split())
    return text if len(text) <= longest else f"... {text[-longest:]}"


def steps(seconds: float) -> int:
    """Seconds rounded down, in ever longer steps, so that a message with this number does not change every second."""
    step = 10 if seconds < 60 else 60 if seconds < 600 else 600 if seconds < 3600 else 3600
    return int(seconds) // step * step


def _waiting(pod: Pod, what: str, patience: Patience, now: float) -> Trouble | None:
    age = now - _placed_at(pod)
    for container in _containers(pod):
        waiting = container.get("state", {}).get("waiting") or {}
        reason, message = waiting.get("reason", ""), shortened(waiting.get("message", ""))
        image = container.get("image", "")
        if reason in _NEVER | _PULL:
            over = reason in _NEVER or age > patience.image_pull
            return Trouble(f"the image {image} of {what} cannot be pulled ({reason}): {message}", over)
        if reason in _CONFIG:
            return Trouble(f"{what} cannot be started ({reason}): {message}", age > patience.image_pull)
        if reason == "CrashLoopBackOff":
            return Trouble(f"{what} crashes again and again: {end_of(pod) or message}")
    return None


def _prepared(pod: Pod, what: str, now: float) -> Trouble | None:
    """The problem of a pod that its node has been preparing for long; it may still start."""
    lasted = now - _placed_at(pod)
    for container in _containers(pod) if lasted > _PREPARED_S else ():
        reason = (container.get("state", {}).get("waiting") or {}).get("reason", "")
        if reason in _PREPARING:
            cause = _PREPARING[reason].format(image=container.get("image", ""))
            text = f"its node has been preparing {what} for {steps(lasted)} s ({reason}): {cause}"
            return Trouble(f"{text}; see kubectl describe pod {pod['metadata']['name']}")
    return None


def _placed_at(pod: Pod) -> float:
    """When a node was found for a pod, which may have waited long for it."""
    for condition in pod.get("status", {}).get("conditions") or []:
        if (
            condition["type"] == "PodScheduled"
            and condition["status"] == "True"
            and condition.get("lastTransitionTime")
        ):
            return moment(condition["lastTransitionTime"])
    return moment(pod["metadata"].get("creationTimestamp"))


def _unplaced(pod: Pod, what: str, patience: Patience, now: float) -> Trouble | None:
    for condition in pod.get("status", {}).get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            since = moment(condition.get("lastTransitionTime")) or moment(pod["metadata"].get("creationTimestamp"))
            waited = max(0.0, now - since)
            text = f"no node takes {what}, for {steps(waited)} s now: {shortened(condition.get('message', ''))}"
            return Trouble(text, waited > patience.unschedulable)
    return None


def _containers(pod: Pod) -> Iterator[Mapping[str, Any]]:
    status = pod.get("status", {})
    yield from status.get("initContainerStatuses") or []
    yield from status.get("containerStatuses") or []


def _endings(pod: Pod) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Containers that have ended, now or the last time, with their ends."""
    for container in _containers(pod):
        for state in (container.get("state", {}), container.get("lastState", {})):
            if state.get("terminated"):
                yield container, state["terminated"]


def _oom(ended: Mapping[str, Any]) -> bool:
    return ended.get("reason") == "OOMKilled"


def _without_memory(pod: Pod) -> str:
    limit = next((_limit(pod, container["name"]) for container, ended in _endings(pod) if _oom(ended)), "")
    return f"it ran out of memory (limit {limit}): give it more" if limit else "it ran out of memory"


def _limit(pod: Pod, name: str) -> str:
    for container in pod.get("spec", {}).get("containers", []):
        if container["name"] == name:
            return str(container.get("resources", {}).get("limits", {}).get("memory", ""))
    return ""


def _amounts(text: str) -> dict[str, float]:
    amounts = {}
    for part in text.split(","):
        key, _, amount = part.strip().partition("=")
        try:
            amounts[key] = float(parse_quantity(amount))
        except ValueError:
            continue
    return amounts
