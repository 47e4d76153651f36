"""Names and labels of RayJobs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

LONGEST = 47
"""Characters that KubeRay allows in the name of a RayJob."""
MANAGER = "driftline"
STUDY = "driftline.io/study"
ATTEMPT = "driftline.io/attempt"
OWN_POLICY = "driftline.io/own-network-policy"
"""A label of pods whose study has a NetworkPolicy of its own."""
_PREFIX = "driftline-"
_PLAIN = re.compile(r"[a-z0-9]+")


def job_name(study_id: str, attempt: int, again: int = 0) -> str:
    """The name of the RayJob of one start, and of its Secret.

    Args:
        study_id: The study.
        attempt: The attempt its driver is expected to acquire.
        again: Counts starts of one attempt, because the previous RayJob may still be terminating.

    Returns:
        A DNS label of at most 47 characters that begins with a letter.

    Examples:
        >>> job_name("01k6vq8r9s2t3v4w5x6y7z8abc", 2), job_name("01k6vq8r9s2t3v4w5x6y7z8abc", 2, 1)
        ('driftline-01k6vq8r9s2t3v4w5x6y7z8abc-2', 'driftline-01k6vq8r9s2t3v4w5x6y7z8abc-2-1')
    """
    end = f"-{attempt}" + (f"-{again}" if again else "")
    room = LONGEST - len(_PREFIX) - len(end)
    if not _PLAIN.fullmatch(study_id) or len(study_id) > room:
        study_id = hashlib.sha256(study_id.encode()).hexdigest()[:26]
    return f"{_PREFIX}{study_id}{end}"


def is_job_name(name: str) -> bool:
    """Whether a name may be that of a RayJob, and of the Secret with its tokens.

    Examples:
        >>> is_job_name("driftline-01k6vq8r9s2t3v4w5x6y7z8abc-2"), is_job_name("wandb")
        (True, False)
    """
    return bool(re.fullmatch(rf"{_PREFIX}[a-z0-9]+(-[0-9]+)+", name))


def common_labels(instance: str) -> dict[str, str]:
    """Labels of all objects that one Driftline creates for its studies."""
    return {
        "app.kubernetes.io/name": "driftline",
        "app.kubernetes.io/component": "study",
        "app.kubernetes.io/managed-by": MANAGER,
        "app.kubernetes.io/instance": instance,
    }


def selector(instance: str, study_id: str | None = None) -> str:
    """A label selector for the objects of all studies, or of one."""
    labels = [f"{key}={value}" for key, value in common_labels(instance).items() if key != "app.kubernetes.io/name"]
    return ",".join([*labels, STUDY if study_id is None else f"{STUDY}={study_id}"])


def study_of(item: Mapping[str, Any]) -> str:
    """The study that an object belongs to."""
    return str(item["metadata"].get("labels", {}).get(STUDY, ""))


def attempt_of(item: Mapping[str, Any]) -> int:
    """The attempt that an object was created for; 0 if it has no such label."""
    text = str(item["metadata"].get("labels", {}).get(ATTEMPT, ""))
    return int(text) if text.isdigit() else 0
