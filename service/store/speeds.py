"""How fast this service's studies were, from what their packs have done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from service.store import progress
from service.store.overview import Counts
from service.store.states import DRIVEN
from service.store.tables import PACKS, STUDIES

_LATEST = 50  # studies that are looked at


@dataclass(frozen=True)
class Speed:
    """How fast trials of one method were on one task.

    Attributes:
        pack_seconds_a_round: Seconds of a pack for one round of one of its trials.
        at_once: Packs that ran at the same time, on average; at least 1.
        gpus: GPUs of a pack.
        studies: Ids of the studies in which this was seen.
    """

    pack_seconds_a_round: float
    at_once: float
    gpus: float
    studies: tuple[str, ...]


class Speeds(Counts):
    """The part of `Store` that knows how fast things were."""

    def speeds(self, project: str, task: Mapping[str, Any]) -> dict[str, Speed]:
        """How fast methods were on a task, by the methods' names; those that never ran on it are left out.

        Args:
            project: Whose latest studies are looked at.
            task: The task, in canonical form.
        """
        seconds = PACKS.c.ended_at - PACKS.c.started_at
        latest = (
            sa.select(*STUDIES.c["id", "spec"])
            .where(STUDIES.c.project == project, STUDIES.c.started_at.is_not(None))
            .order_by(STUDIES.c.id.desc())
            .limit(_LATEST)
        )
        with self._database.read() as connection:
            rows = connection.execute(latest).all()
            same = {row.id: row.spec for row in rows if row.spec.get("task") == dict(task)}
            query = (
                sa.select(
                    PACKS.c.study_id,
                    PACKS.c.label,
                    sa.func.sum(seconds).label("seconds"),
                    sa.func.sum(seconds * PACKS.c.gpus).label("gpu_seconds"),
                    sa.func.sum(PACKS.c.rounds).label("rounds"),
                    sa.func.min(PACKS.c.started_at).label("began"),
                    sa.func.max(PACKS.c.ended_at).label("ended"),
                )
                .where(PACKS.c.study_id.in_(same), PACKS.c.rounds > 0)
                .group_by(PACKS.c.study_id, PACKS.c.label)
            )
            found = connection.execute(query).all()
        return _speeds(same, found)

    def left_seconds(self) -> float | None:
        """Seconds that the unfinished studies which wait or run will still take, one after the other.

        Returns:
            None when one of them has not shown yet how fast it is.
        """
        query = sa.select(*STUDIES.c["id", "spec", "started_at"]).where(STUDIES.c.state.in_(tuple(DRIVEN)))
        with self._database.read() as connection:
            rows = connection.execute(query).all()
            labels = progress.of(connection, {row.id: row.spec for row in rows})
        left = 0.0
        for row in rows:
            done = sum(one.rounds_done for one in labels[row.id].values())
            total = sum(one.rounds_total for one in labels[row.id].values())
            if row.started_at is None or not done:
                return None
            left += max(0.0, self.clock() - row.started_at) * max(0, total - done) / done
        return left


def _speeds(specs: Mapping[str, Mapping[str, Any]], rows: Any) -> dict[str, Speed]:
    whole: dict[str, list[Any]] = {}
    for row in rows:
        whole.setdefault(row.study_id, []).append(row)
    at_once = {}
    for study, parts in whole.items():
        span = max(part.ended for part in parts) - min(part.began for part in parts)
        at_once[study] = max(1.0, sum(part.seconds for part in parts) / span) if span > 0 else 1.0
    by_method: dict[str, list[Any]] = {}
    for row in rows:
        names = {entry["label"]: entry["name"] for entry in specs[row.study_id]["methods"]}
        if row.label in names and row.seconds > 0:
            by_method.setdefault(names[row.label], []).append(row)
    found = {}
    for name, parts in by_method.items():
        seconds = float(sum(part.seconds for part in parts))
        found[name] = Speed(
            pack_seconds_a_round=seconds / float(sum(part.rounds for part in parts)),
            at_once=sum(at_once[part.study_id] * part.seconds for part in parts) / seconds,
            gpus=float(sum(part.gpu_seconds for part in parts)) / seconds,
            studies=tuple(sorted({part.study_id for part in parts})),
        )
    return found
