"""What the recorder has written to MLflow, so that it can continue from there."""

from collections.abc import Iterable
from dataclasses import dataclass

import sqlalchemy as sa

from driftline.wire.records import TRIAL_FINISHED
from service.store.schema import RECORDER_STATE, TRIALS
from service.store.session import StorePart

_KEY = ("study_id", "kind", "key")


@dataclass(frozen=True)
class Recorded:
    """What the recorder has written about one object.

    Attributes:
        kind: Kind of object: "study", "label", "trial" or a word of the recorder's own.
        key: Which object: a label, a trial's id.
        run_id: The MLflow run that shows it.
        version: Recorded version of the study; for a trial, the attempt under which it ended, and 0 until then.
        rounds: Rounds that have been written.
    """

    kind: str
    key: str
    run_id: str
    version: int = 0
    rounds: int = 0


@dataclass(frozen=True)
class Unrecorded:
    """A trial of which something may have to be recorded.

    Attributes:
        trial: Its id.
        ended: Whether it has ended.
        rounds_done: Rounds that it has done.
        entry: What the recorder has written about it, or None.
    """

    trial: str
    ended: bool
    rounds_done: int
    entry: Recorded | None


_DELETE = sa.delete(RECORDER_STATE).where(*(RECORDER_STATE.c[name] == sa.bindparam(f"old_{name}") for name in _KEY))


class RecorderState(StorePart):
    """What the recorder has written about each study."""

    def read(self, study_id: str, kind: str | None = None, *, but: str | None = None) -> list[Recorded]:
        """What the recorder has written about a study, sorted by kind and key; only one kind, or all kinds but one."""
        columns = RECORDER_STATE.c
        query = sa.select(*columns["kind", "key", "run_id", "version", "rounds"]).where(columns.study_id == study_id)
        if kind is not None:
            query = query.where(columns.kind == kind)
        if but is not None:
            query = query.where(columns.kind != but)
        with self._session.read() as connection:
            return [Recorded(**row._mapping) for row in connection.execute(query.order_by(columns.kind, columns.key))]

    def unrecorded(self, study_id: str) -> list[Unrecorded]:
        """Ended trials whose end is not recorded, and unfinished ones with rounds, in the order of `Trials.find`."""
        trials, noted = TRIALS.c, RECORDER_STATE.c
        same_trial = sa.and_(noted.study_id == trials.study_id, noted.kind == "trial", noted.key == trials.id)
        ended = trials.state.in_(TRIAL_FINISHED)
        attempt = sa.case((trials.attempt > 1, trials.attempt), else_=1)  # under which it has ended
        shown = sa.and_(noted.version.is_not(None), noted.version == attempt)
        due = sa.or_(sa.and_(ended, sa.not_(shown)), sa.and_(sa.not_(ended), trials.rounds_done > 0))
        query = (
            sa.select(trials.id, ended, trials.rounds_done, *noted["kind", "key", "run_id", "version", "rounds"])
            .select_from(TRIALS.outerjoin(RECORDER_STATE, same_trial))
            .where(trials.study_id == study_id, due)
            .order_by(trials.label, trials.phase.desc(), trials.number)
        )
        with self._session.read() as connection:
            return [
                Unrecorded(trial, bool(is_over), rounds, None if entry[0] is None else Recorded(*entry))
                for trial, is_over, rounds, *entry in connection.execute(query)
            ]

    def clear(self, study_id: str, keep: Iterable[str]) -> None:
        """Forget what was written about a study, except for entries of these kinds."""
        condition = RECORDER_STATE.c.study_id == study_id
        with self._session.write() as connection:
            self._session.locked(connection, study_id)
            connection.execute(sa.delete(RECORDER_STATE).where(condition, RECORDER_STATE.c.kind.not_in(keep)))

    def write(self, study_id: str, *entries: Recorded) -> None:
        """Replace the entries of the same kind and key; all or nothing."""
        if not entries:
            return
        with self._session.write() as connection:
            self._session.locked(connection, study_id)
            now = self._session.clock()
            rows = [{**vars(entry), "study_id": study_id, "updated_at": now} for entry in entries]
            connection.execute(_DELETE, [{f"old_{name}": row[name] for name in _KEY} for row in rows])
            connection.execute(sa.insert(RECORDER_STATE), rows)
