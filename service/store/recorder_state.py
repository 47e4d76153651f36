"""What the recorder has written to MLflow, so that it goes on from there."""

from dataclasses import dataclass

import sqlalchemy as sa

from service.store.schema import RECORDER_STATE
from service.store.session import Session


@dataclass(frozen=True)
class Recorded:
    """What the recorder has written about one thing.

    Attributes:
        kind: What sort of thing: "study", "label", "trial" or the recorder's own word.
        key: Which one: a label, a trial's id.
        run_id: The run that shows it.
        version: The study's version that it shows; of a trial, the attempt under which it ended, and 0 until then.
        rounds: Rounds that have been written.
    """

    kind: str
    key: str
    run_id: str
    version: int = 0
    rounds: int = 0


class RecorderState:
    """Keeps what the recorder has written about each study."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def read(self, study_id: str, kind: str | None = None) -> list[Recorded]:
        """What the recorder has written about a study, by kind and key."""
        columns = RECORDER_STATE.c
        query = sa.select(*columns["kind", "key", "run_id", "version", "rounds"]).where(columns.study_id == study_id)
        if kind is not None:
            query = query.where(columns.kind == kind)
        with self._session.read() as connection:
            return [Recorded(**row._mapping) for row in connection.execute(query.order_by(columns.kind, columns.key))]

    def write(self, study_id: str, *entries: Recorded) -> None:
        """Note what the recorder has written, in place of what was noted under the same kind and key; all or nothing.

        Raises:
            NotFound: No such study.
        """
        table = RECORDER_STATE
        with self._session.write() as connection:
            self._session.locked(connection, study_id)
            for entry in entries:
                here = (table.c.study_id == study_id, table.c.kind == entry.kind, table.c.key == entry.key)
                connection.execute(sa.delete(table).where(*here))
                connection.execute(
                    sa.insert(table).values(
                        study_id=study_id,
                        kind=entry.kind,
                        key=entry.key,
                        run_id=entry.run_id,
                        version=entry.version,
                        rounds=entry.rounds,
                        updated_at=self._session.clock(),
                    )
                )
