"""What the recorder has written to MLflow, so that it can continue from there."""

from dataclasses import asdict, dataclass

import sqlalchemy as sa

from service.store.schema import RECORDER_STATE
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


_DELETE = sa.delete(RECORDER_STATE).where(*(RECORDER_STATE.c[name] == sa.bindparam(f"old_{name}") for name in _KEY))


class RecorderState(StorePart):
    """What the recorder has written about each study."""

    def read(self, study_id: str, kind: str | None = None) -> list[Recorded]:
        """What the recorder has written about a study, by kind and key."""
        columns = RECORDER_STATE.c
        query = sa.select(*columns["kind", "key", "run_id", "version", "rounds"]).where(columns.study_id == study_id)
        if kind is not None:
            query = query.where(columns.kind == kind)
        with self._session.read() as connection:
            return [Recorded(**row._mapping) for row in connection.execute(query.order_by(columns.kind, columns.key))]

    def write(self, study_id: str, *entries: Recorded) -> None:
        """Replace the entries of the same kind and key; all or nothing."""
        if not entries:
            return
        with self._session.write() as connection:
            self._session.locked(connection, study_id)
            now = self._session.clock()
            rows = [{**asdict(entry), "study_id": study_id, "updated_at": now} for entry in entries]
            connection.execute(_DELETE, [{f"old_{name}": row[name] for name in _KEY} for row in rows])
            connection.execute(sa.insert(RECORDER_STATE), rows)
