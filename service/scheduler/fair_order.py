"""The order in which waiting studies start."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from service.store.leases import Driven

_BEGUN = frozenset({"RUNNING", "PAUSING", "CANCELLING"})


def in_turn(waiting: Sequence[Driven], running: Mapping[str, int], served: Mapping[str, float]) -> Iterator[Driven]:
    """The waiting studies, in the order in which to start them.

    Studies that had started and lost their driver go first. Then projects take turns: first the one with the fewest
    running studies, then the one whose last start is longest ago. Within a project, the oldest study goes first.

    Args:
        waiting: Studies without a driver.
        running: Number of running studies by project; read again for every study, so that the caller can count those
            that it starts.
        served: When a study of each project was last started, in seconds since 1970; 0 if missing.
    """
    begun = [study for study in waiting if study.state in _BEGUN]
    yield from sorted(begun, key=lambda study: study.id)
    projects: dict[str, deque[Driven]] = {}
    for study in sorted(waiting, key=lambda study: study.id):
        if study.state not in _BEGUN:
            projects.setdefault(study.project, deque()).append(study)
    started: dict[str, int] = {}
    while projects:
        project = min(
            projects,
            key=lambda name: (running.get(name, 0), started.get(name, 0), served.get(name, 0.0), projects[name][0].id),
        )
        started[project] = started.get(project, 0) + 1
        yield projects[project].popleft()
        if not projects[project]:
            del projects[project]
