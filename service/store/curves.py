"""Curves in the store: what trials reported per round, upserted on (trial, round)."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa

from driftline.errors import Conflict, StaleDriver
from driftline.wire.curve_codec import SEGMENT_ROUNDS, Arrays, Columns, head
from driftline.wire.driver_messages import Report, Stored
from service.store import trial_rows
from service.store.curve_segments import DAMAGE, add, arrays, decode, join, join_arrays, rounds, sealed
from service.store.leases import desired
from service.store.schema import CURVE_SEGMENTS, TRIALS
from service.store.session import StorePart, check_exists

RESTORED = "a backup was restored; stop this driver"
"""End of the error message for a driver that has reported more than the database holds."""

_Part = TypeVar("_Part")
_TRIALS = 100  # trials whose segments are fetched and decoded at a time
_KEY: dict[str, sa.BindParameter[Any]] = {"trial_id": sa.bindparam("trial"), "segment": sa.bindparam("part")}
_INSERT = sa.insert(CURVE_SEGMENTS).values(**_KEY)
_SELECT = sa.select(CURVE_SEGMENTS.c.payload).where(*(CURVE_SEGMENTS.c[name] == value for name, value in _KEY.items()))
_UPDATE = sa.update(CURVE_SEGMENTS).where(*(CURVE_SEGMENTS.c[name] == value for name, value in _KEY.items()))


def seal(connection: sa.Connection, trials: Sequence[str]) -> None:
    """Store each segment of trials that stop as one body without a head, inside the caller's transaction."""
    columns = CURVE_SEGMENTS.c["trial_id", "segment", "payload"]
    query = sa.select(*columns).where(CURVE_SEGMENTS.c.rounds < SEGMENT_ROUNDS)  # full ones are one body already
    for ids in trial_rows.chunks(trials):
        segments = connection.execute(query.where(CURVE_SEGMENTS.c.trial_id.in_(ids))).all()
        rows = [(trial, part, payload, sealed(payload)) for trial, part, payload in segments]
        changed = [{"trial": trial, "part": part, "payload": whole} for trial, part, old, whole in rows if whole != old]
        if changed:
            connection.execute(_UPDATE, changed)


class Curves(StorePart):
    """The curves of all trials, in segments of 256 rounds, as the workers compressed them."""

    def columns(self, study_id: str, trials: Sequence[str] | None = None) -> dict[str, Columns]:
        """Curves by trial id.

        Args:
            study_id: Id of the study.
            trials: Ids of trials, in the order wanted; None for all that have reported something.

        Returns:
            Columns of equal length, ascending in ``round``; ``{"round": []}`` for a trial that has reported nothing.

        Raises:
            NotFound: No such study, or no such trial in it.
        """
        return {trial: join(parts) for trial, parts in self._parts(study_id, trials, decode)}

    def arrays(
        self,
        study_id: str,
        names: Iterable[str] | None = None,
        trials: Sequence[str] | None = None,
        keep: Callable[[Arrays], Arrays] = lambda columns: columns,
    ) -> dict[str, Arrays]:
        """Curves by trial id, as arrays, for computing results and for MLflow.

        Args:
            study_id: Id of the study.
            names: Only these columns, and ``round``. All by default.
            trials: Ids of trials, in the order wanted; None for all that have reported something.
            keep: What to keep of each trial's arrays; called as soon as they are read.

        Returns:
            Trial id -> name -> (reports,), NaN where a round did not report it; no names for a trial that has reported
            nothing.

        Raises:
            NotFound: No such study, or no such trial in it.
        """
        columns = None if names is None else {"round", *names}
        parts = self._parts(study_id, trials, lambda payload: arrays(payload, columns))
        return {trial: keep(join_arrays(segments)) for trial, segments in parts}

    def _parts(
        self, study_id: str, trials: Sequence[str] | None, read: Callable[[bytes], _Part]
    ) -> Iterator[tuple[str, list[_Part]]]:
        """The stored segments of each trial as `read` returns them, in ascending order; few trials at a time."""
        query = sa.select(*CURVE_SEGMENTS.c["trial_id", "segment", "payload"])  # sorted here, not in the database
        with self._session.read() as connection:
            if trials is None:
                check_exists(connection, study_id)
                names = sorted(
                    connection.execute(sa.select(TRIALS.c.id).where(TRIALS.c.study_id == study_id)).scalars()
                )
            else:
                trial_rows.by_id(connection, study_id, trials)
                names = list(dict.fromkeys(trials))
            for first in range(0, len(names), _TRIALS):
                batch = names[first : first + _TRIALS]
                by_trial: dict[str, dict[int, _Part]] = {} if trials is None else {trial: {} for trial in batch}
                for trial, segment, payload in connection.execute(query.where(CURVE_SEGMENTS.c.trial_id.in_(batch))):
                    try:
                        by_trial.setdefault(trial, {})[segment] = read(payload)
                    except DAMAGE as error:
                        problem = f"the curve of trial {trial} cannot be read: {error}"
                        raise Conflict(f"{problem}; if the database is damaged, restore a backup") from error
                for trial in batch:
                    if trial in by_trial:
                        segments = by_trial.pop(trial)
                        yield trial, [segments[number] for number in sorted(segments)]

    def report(self, study_id: str, report: Report, *, nonce: str = "") -> Stored:
        """Store a pack's new reports in one transaction. Idempotent.

        A report about a trial that does not run in this pack (any more) must hold nothing new.

        Args:
            study_id: Id of the study.
            report: Blocks by trial id, and the progress of the pack. Fields that are None change nothing.
            nonce: The driver's nonce, as given to `Leases.acquire`.

        Returns:
            The study's version afterwards, and what its owner wants the driver to do.

        Raises:
            StaleDriver: The attempt no longer holds the study, or rounds before these were stored in a database that
                has been replaced by a backup; nothing is stored.
            NotFound: The study has no such trial.
            Conflict: The report holds something new about a trial that this pack does not run; nothing is stored.
        """
        with self._session.write() as connection:
            study = self._session.fenced(connection, study_id, report.attempt, nonce)
            rows = self._reported_rows(connection, study_id, report)
            running = [row for row in rows if row.state == "RUNNING" and row.pack == report.pack]
            self._check_rounds(running, report)
            stored = self._payloads(connection, report)
            fresh: dict[tuple[str, int], bytes] = {}
            for row in rows:
                in_pack, reached = row.state == "RUNNING" and row.pack == report.pack, row.rounds_done
                for block in report.reports.get(row.id, ()):
                    about = head(block)
                    key = row.id, about.segment
                    old = fresh.get(key, stored.get(key, b""))
                    payload = add(old, block)
                    if payload is old:
                        continue
                    if not in_pack:
                        where = f"in pack {row.pack}" if row.state == "RUNNING" else "nowhere"
                        problem = f"is {row.state} and runs {where}, got a new report of pack {report.pack}"
                        raise Conflict(f"trial {row.id} {problem}", state=row.state)
                    before = about.first - 1 if report.after is None else min(report.after, about.first - 1)
                    whole = reached if reached or report.after is not None else -1
                    if before > whole and not self._stores(connection, row.id, before):
                        problem = f"got rounds from {about.first} after round {reached}: {RESTORED}"
                        raise StaleDriver(f"trial {row.id} must report every round, {problem}")
                    reached = max(reached, about.last)
                    fresh[key] = payload
            self._write(connection, fresh, stored.keys())
            new = report.checkpoint is not None and any(row.checkpoint != report.checkpoint for row in running)
            if new and any(rounds(payload) > rounds(stored.get(key, b"")) for key, payload in fresh.items()):
                self._session.update_driver(connection, study_id, deaths=0)  # the next driver continues from here
            changed = self._advance(connection, running, report)
            version = self._session.changed(connection, study) if changed or fresh else study.version
            return Stored(version=version, desired=desired(study.state))

    def _reported_rows(self, connection: sa.Connection, study_id: str, report: Report) -> list[sa.Row[Any]]:
        """Rows of the trials named in the report, and of the pack's other running trials."""
        named = trial_rows.by_id(connection, study_id, list(report.reports))
        others = connection.execute(
            sa.select(TRIALS).where(
                TRIALS.c.study_id == study_id, TRIALS.c.pack == report.pack, TRIALS.c.state == "RUNNING"
            )
        )
        return [*named, *(row for row in others if row.id not in report.reports)]

    def _payloads(self, connection: sa.Connection, report: Report) -> dict[tuple[str, int], bytes]:
        """The stored segments for which the report has rounds."""
        touched = {head(block).segment for blocks in report.reports.values() for block in blocks}
        columns = CURVE_SEGMENTS.c
        query = sa.select(columns.trial_id, columns.segment, columns.payload).where(columns.segment.in_(touched))
        payloads: dict[tuple[str, int], bytes] = {}
        for ids in trial_rows.chunks(list(report.reports)):
            for trial, segment, payload in connection.execute(query.where(columns.trial_id.in_(ids))):
                payloads[trial, segment] = payload
        return payloads

    def _check_rounds(self, running: Sequence[sa.Row[Any]], report: Report) -> None:
        """Refuse progress without rounds: an earlier report stored the rounds before a backup replaced the database."""
        behind = [row for row in running if row.rounds_done < report.rounds_done]
        if behind and not any(report.reports.values()):
            problem = f"got round {report.rounds_done} without curves after round {behind[0].rounds_done}: {RESTORED}"
            raise StaleDriver(f"trial {behind[0].id} must report every round, {problem}")

    def _stores(self, connection: sa.Connection, trial: str, number: int) -> bool:
        """Whether this round of a trial is stored; later rounds may be stored if the trial began anew."""
        parameters = {"trial": trial, "part": number // SEGMENT_ROUNDS}
        payload = connection.scalar(_SELECT, parameters)
        return payload is not None and number in decode(payload, {"round"})["round"]

    def _write(
        self, connection: sa.Connection, fresh: Mapping[tuple[str, int], bytes], stored: Container[tuple[str, int]]
    ) -> None:
        rows = [
            {"trial": trial, "part": segment, "rounds": rounds(payload), "payload": payload}
            for (trial, segment), payload in fresh.items()
        ]
        inserted = [row for row in rows if (row["trial"], row["part"]) not in stored]
        updated = [row for row in rows if (row["trial"], row["part"]) in stored]
        if inserted:
            connection.execute(_INSERT, inserted)
        if updated:
            connection.execute(_UPDATE, updated)

    def _advance(self, connection: sa.Connection, running: Sequence[sa.Row[Any]], report: Report) -> bool:
        """Store the progress of the pack's trials; returns whether anything changed."""
        values: dict[str, Any] = {"rounds_done": report.rounds_done}
        if report.checkpoint is not None:
            values["checkpoint"] = report.checkpoint
        if report.plan is not None:
            values["plan"] = report.plan
        behind = [row.id for row in running if any(row._mapping[name] != value for name, value in values.items())]
        for ids in trial_rows.chunks(behind):
            connection.execute(
                sa.update(TRIALS).where(TRIALS.c.id.in_(ids)).values(**values, updated_at=self._session.clock())
            )
        return bool(behind)
