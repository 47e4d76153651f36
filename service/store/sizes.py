"""Sizes of stored curves, measured study by study.

Measuring all curves on request would take longer with every report ever made. So each study stores its last measured
size, and is measured again after it changed. A sum then reads one row of each study.
"""

from typing import Any, NamedTuple

import sqlalchemy as sa

from service.store.schema import CURVE_SEGMENTS, STUDIES, TRIALS
from service.store.session import KEPT, StorePart

EVERY_S = 60.0
"""Seconds between two measurements of a study that keeps changing."""


class CurveSize(NamedTuple):
    """Space that curves take in the database.

    Attributes:
        rows: Number of rows, each of up to 256 rounds of a trial.
        bytes: Compressed bytes in these rows.
    """

    rows: int = 0
    bytes: int = 0


class Sizes(StorePart):
    """Measures stored curves."""

    def measure(self) -> bool:
        """Measure one study that changed since its last measurement, if that is at least `EVERY_S` old.

        Returns:
            Whether there was such a study.
        """
        now = self._session.clock()
        due = (
            sa.select(STUDIES.c.id, STUDIES.c.version)
            .where(STUDIES.c.version != STUDIES.c.measured_version, STUDIES.c.measured_at < now - EVERY_S, KEPT)
            .order_by(STUDIES.c.measured_at)
            .limit(1)
        )
        counted = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(sa.func.length(CURVE_SEGMENTS.c.payload)), 0))
        with self._session.read() as connection:
            study = connection.execute(due).first()
            if study is None:
                return False
            of_study = counted.join(TRIALS, TRIALS.c.id == CURVE_SEGMENTS.c.trial_id)
            rows, size = connection.execute(of_study.where(TRIALS.c.study_id == study.id)).one()
        values: dict[str, Any] = {"curve_rows": rows, "curve_bytes": int(size)}
        with self._session.write() as connection:
            update = sa.update(STUDIES).where(STUDIES.c.id == study.id)
            connection.execute(update.values(**values, measured_version=study.version, measured_at=now))
        return True


def curve_size(connection: sa.Connection, project: str | None = None) -> CurveSize:
    """Size of the curves of a project, or of all projects, as last measured."""
    columns = (STUDIES.c.curve_rows, STUDIES.c.curve_bytes)
    query = sa.select(*(sa.func.coalesce(sa.func.sum(column), 0) for column in columns)).where(KEPT)
    if project is not None:
        query = query.where(STUDIES.c.project == project)
    rows, size = connection.execute(query).one()
    return CurveSize(int(rows), int(size))
