"""Curves in the store: what trials reported per round, upserted on (trial, round)."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from service.errors import Conflict
from service.schemas.curves import merge
from service.schemas.protocol import Report
from service.store.segments import Columns, contains, decode, encode, join, split
from service.store.tables import CURVE_SEGMENTS, TRIALS
from service.store.trials import Trials, _chunks


class Curves(Trials):
    """The part of `Store` that keeps curves."""

    def curves(self, study_id: str, trials: Sequence[str] | None = None) -> dict[str, Columns]:
        """Curves by trial id.

        Args:
            study_id: Id of the study.
            trials: Of which trials, in this order; None for all that have reported something.

        Returns:
            Columns of equal length, rising in ``round``; ``{"round": []}`` for a trial that has reported nothing.

        Raises:
            NotFound: No such study, or no such trial in it.
        """
        parts: dict[str, list[Columns]] = {}
        order = (CURVE_SEGMENTS.c.trial_id, CURVE_SEGMENTS.c.segment)
        query = sa.select(CURVE_SEGMENTS.c.trial_id, CURVE_SEGMENTS.c.payload).order_by(*order)
        with self._database.read() as connection:
            if trials is None:
                self._exists(connection, study_id)
                of_study = sa.select(TRIALS.c.id).where(TRIALS.c.study_id == study_id)
                found = connection.execute(query.where(CURVE_SEGMENTS.c.trial_id.in_(of_study))).all()
            else:
                self._rows(connection, study_id, trials)
                parts = {trial: [] for trial in trials}
                found = []
                for ids in _chunks(trials):
                    found += connection.execute(query.where(CURVE_SEGMENTS.c.trial_id.in_(ids))).all()
        for trial, payload in found:
            parts.setdefault(trial, []).append(decode(payload))
        return {trial: join(segments) for trial, segments in parts.items()}

    def report(self, study_id: str, report: Report) -> int:
        """Store what a pack has reported since last time, in one transaction. The same again changes nothing.

        A report about a trial that does not run in this pack (any more) must hold nothing new.

        Args:
            study_id: Id of the study.
            report: Columns by trial id, and how far the pack is. What is None in it leaves what is stored.

        Returns:
            The study's version afterwards.

        Raises:
            StaleDriver: The attempt no longer holds the study.
            NotFound: The study has no such trial.
            Conflict: A trial is not run by this pack, and the report holds something new about it; nothing is stored.
        """
        with self._database.write() as connection:
            study = self._fenced(connection, study_id, report.attempt)
            changed = False
            for row in self._reported_rows(connection, study_id, report):
                columns = report.reports.get(row.id, {"round": []})
                if row.state == "RUNNING" and row.pack == report.pack:
                    changed |= self._upsert(connection, row.id, columns)
                    changed |= self._advance(connection, row, report)
                elif not self._holds_already(connection, row.id, columns):
                    where = f"in pack {row.pack}" if row.state == "RUNNING" else "nowhere"
                    raise Conflict(
                        f"trial {row.id} is {row.state} and runs {where}, got a new report of pack {report.pack}"
                    )
            return self._changed(connection, study) if changed else int(study.version)

    def _reported_rows(self, connection: sa.Connection, study_id: str, report: Report) -> list[sa.Row[Any]]:
        """Rows of the trials named in the report, and of the pack's other running trials."""
        named = self._rows(connection, study_id, list(report.reports))
        others = connection.execute(
            sa.select(TRIALS).where(
                TRIALS.c.study_id == study_id, TRIALS.c.pack == report.pack, TRIALS.c.state == "RUNNING"
            )
        )
        return [*named, *(row for row in others if row.id not in report.reports)]

    def _advance(self, connection: sa.Connection, row: sa.Row[Any], report: Report) -> bool:
        values: dict[str, Any] = {"rounds_done": report.rounds_done}
        if report.checkpoint is not None:
            values["checkpoint"] = report.checkpoint
        if report.plan is not None:
            values["plan"] = report.plan
        if all(row._mapping[name] == value for name, value in values.items()):
            return False
        values["updated_at"] = self.clock()
        connection.execute(sa.update(TRIALS).where(TRIALS.c.id == row.id).values(**values))
        return True

    def _segment(self, connection: sa.Connection, trial: str, segment: int) -> Columns | None:
        found = connection.execute(
            sa.select(CURVE_SEGMENTS.c.payload).where(
                CURVE_SEGMENTS.c.trial_id == trial, CURVE_SEGMENTS.c.segment == segment
            )
        ).scalar()
        return None if found is None else decode(found)

    def _holds_already(self, connection: sa.Connection, trial: str, columns: Columns) -> bool:
        return all(
            (old := self._segment(connection, trial, segment)) is not None and contains(old, part)
            for segment, part in split(columns)
        )

    def _upsert(self, connection: sa.Connection, trial: str, columns: Mapping[str, Any]) -> bool:
        """Write the rounds into their segments; whether anything has changed."""
        changed = False
        for segment, part in split(columns):
            old = self._segment(connection, trial, segment)
            if old is not None and contains(old, part):
                continue
            whole = merge(old, part) if old else part
            values = {"rounds": len(whole["round"]), "payload": encode(whole)}
            if old is None:
                connection.execute(sa.insert(CURVE_SEGMENTS).values(trial_id=trial, segment=segment, **values))
            else:
                here = (CURVE_SEGMENTS.c.trial_id == trial, CURVE_SEGMENTS.c.segment == segment)
                connection.execute(sa.update(CURVE_SEGMENTS).where(*here).values(**values))
            changed = True
        return changed
