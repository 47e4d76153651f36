"""Operations on rows of trials and packs, shared by parts of the store, in the caller's transaction."""

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from driftline.errors import NotFound
from driftline.wire.records import TRIAL_FINISHED
from service.store.schema import PACKS, TRIALS
from service.store.session import check_exists
from trainers import shown

_MANY = 500  # maximum number of values in one IN (...)


def chunks(ids: Sequence[str]) -> Iterable[Sequence[str]]:
    """Split ids into parts small enough for one IN (...)."""
    return (ids[start : start + _MANY] for start in range(0, len(ids), _MANY))


def existing(connection: sa.Connection, study_id: str, ids: Sequence[str]) -> list[sa.Row[Any]]:
    """The rows of the given ids that exist, in no particular order."""
    # With a condition on the study, SQLite would read all its trials.
    results = (connection.execute(sa.select(TRIALS).where(TRIALS.c.id.in_(part))) for part in chunks(ids))
    return [row for rows in results for row in rows if row.study_id == study_id]


def by_id(connection: sa.Connection, study_id: str, ids: Sequence[str]) -> list[sa.Row[Any]]:
    """The rows of the given ids, in the same order.

    Raises:
        NotFound: No such study, or no such trial in it.
    """
    rows = {row.id: row for row in existing(connection, study_id, ids)}
    if len(rows) < len(set(ids)):
        check_exists(connection, study_id)
        missing = next(identity for identity in ids if identity not in rows)
        raise NotFound(f"study {study_id} has no trial {shown(missing)}")
    return [rows[identity] for identity in ids]


def unfinished(connection: sa.Connection, study_id: str) -> int:
    """Number of the study's unfinished trials."""
    query = sa.select(sa.func.count()).where(
        TRIALS.c.study_id == study_id, TRIALS.c.state.not_in(tuple(TRIAL_FINISHED))
    )
    return int(connection.execute(query).scalar_one())


def stop(
    connection: sa.Connection,
    study_id: str,
    state: str,
    now: float,
    *,
    from_states: Iterable[str] = ("RUNNING",),
    ended_at: float | None = None,
) -> None:
    """Move the study's trials that are in one of `from_states` to another state; they keep their curves.

    Args:
        connection: Connection of a running transaction.
        study_id: Id of the study.
        state: The trials' new state.
        now: Unix time.
        from_states: States of the trials to move.
        ended_at: When their packs ended; now by default.
    """
    connection.execute(
        sa.update(TRIALS)
        .where(TRIALS.c.study_id == study_id, TRIALS.c.state.in_(tuple(from_states)))
        .values(state=state, updated_at=now)
    )
    close_packs(connection, study_id, now if ended_at is None else ended_at)


def close_packs(connection: sa.Connection, study_id: str, ended_at: float) -> None:
    """Store the end of packs without running trials, and the rounds that they have done."""
    same_pack = (TRIALS.c.study_id == PACKS.c.study_id, TRIALS.c.pack == PACKS.c.pack)
    running = sa.select(TRIALS.c.id).where(*same_pack, TRIALS.c.state == "RUNNING").exists()
    rounds = sa.select(sa.func.coalesce(sa.func.sum(TRIALS.c.rounds_done), 0)).where(*same_pack).scalar_subquery()
    latest = sa.case((PACKS.c.started_at > ended_at, PACKS.c.started_at), else_=ended_at)  # if the clock was set back
    connection.execute(
        sa.update(PACKS)
        .where(PACKS.c.study_id == study_id, PACKS.c.ended_at.is_(None), ~running)
        .values(ended_at=latest, rounds=rounds - PACKS.c.rounds_before)
    )
