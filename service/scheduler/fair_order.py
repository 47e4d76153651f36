"""In which order waiting studies come to their turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from service.store.leases import Driven

_BEGUN = frozenset({"RUNNING", "PAUSING", "CANCELLING"})


def in_turn(waiting: Sequence[Driven], running: Mapping[str, int], served: Mapping[str, float]) -> Iterator[Driven]:
    """The studies that wait, in the order in which they are to be started.

    Studies that had begun and lost their driver go first. Then projects take turns: the one of which the fewest studies
    run, then the one that waited longest since a study of its was begun; within a project the oldest study.

    Args:
        waiting: Studies without a driver.
        running: How many studies of a project run; read anew for every study that is given out, so that the caller may
            count those it starts.
        served: When a study of a project was last begun, in seconds since 1970; 0 for one that is not named.
    """
    begun = [study for study in waiting if study.state in _BEGUN]
    yield from sorted(begun, key=lambda study: study.id)
    projects: dict[str, deque[Driven]] = {}
    for study in sorted(waiting, key=lambda study: study.id):
        if study.state not in _BEGUN:
            projects.setdefault(study.project, deque()).append(study)
    given: dict[str, int] = {}
    while projects:
        project = min(
            projects,
            key=lambda name: (running.get(name, 0), given.get(name, 0), served.get(name, 0.0), projects[name][0].id),
        )
        given[project] = given.get(project, 0) + 1
        yield projects[project].popleft()
        if not projects[project]:
            del projects[project]
