"""Counts over the whole store, for metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from driftline.wire.records import STUDY_FINISHED
from service.store.schema import DRIVERS, RECORDER_STATE, STUDIES, TRIALS
from service.store.session import KEPT, StorePart
from service.store.sizes import CurveSize, curve_size


@dataclass(frozen=True)
class Overview:
    """Counts of the whole store.

    Attributes:
        studies: Number of studies by state.
        trials: Number of trials by state.
        leases: "held" and "expired": running leases, and leases that expired without being released.
        behind: Number of studies with results that the recorder has not written yet.
        lag_s: Seconds since the oldest change among these studies; 0 if there are none.
        curves: Size of all curves.
    """

    studies: dict[str, int]
    trials: dict[str, int]
    leases: dict[str, int]
    behind: int
    lag_s: float
    curves: CurveSize


class Stats(StorePart):
    """Counts rows of the other parts."""

    def overview(self) -> Overview:
        """The counts, from one snapshot."""
        now = self._session.clock()
        held_leases = sa.func.coalesce(sa.func.sum(sa.case((DRIVERS.c.expires_at > now, 1), else_=0)), 0)
        shown = sa.select(RECORDER_STATE.c.study_id).where(
            RECORDER_STATE.c.study_id == STUDIES.c.id,
            RECORDER_STATE.c.kind == sa.case((STUDIES.c.state.in_(tuple(STUDY_FINISHED)), "ended"), else_="study"),
            RECORDER_STATE.c.version >= STUDIES.c.version,
        )
        behind = sa.select(sa.func.count(), sa.func.min(STUDIES.c.updated_at)).where(
            STUDIES.c.version > 0, KEPT, ~shown.exists()
        )
        with self._session.read() as connection:
            states = sa.select(STUDIES.c.state, sa.func.count()).where(KEPT).group_by(STUDIES.c.state)
            studies = connection.execute(states).all()
            trials = connection.execute(sa.select(TRIALS.c.state, sa.func.count()).group_by(TRIALS.c.state)).all()
            driving = ~DRIVERS.c.released
            running, leases = connection.execute(sa.select(held_leases, sa.func.count()).where(driving)).one()
            count, since = connection.execute(behind).one()
            curves = curve_size(connection)
        return Overview(
            studies=_counts(studies),
            trials=_counts(trials),
            leases={"held": int(running), "expired": int(leases) - int(running)},
            behind=int(count),
            lag_s=max(0.0, now - since) if since is not None else 0.0,
            curves=curves,
        )


def _counts(rows: Sequence[Any]) -> dict[str, int]:
    return {str(state): int(count) for state, count in rows}
