"""The vocabulary of version 0.2: configurations and confirmation trials instead of settings and the front.

A Driftline of the revision before cannot read what this leaves. Checkpoints of 0.1 do not fit any more, so unfinished
trials start again from round 0, running studies wait for a driver, and their old drivers are refused.

What changes is kept in tables of the same database, ``backup_0003_...``, copied in the same transaction. The downgrade
restores them; what happened since the upgrade is lost then.
"""

import hashlib
import json
from typing import Any

import sqlalchemy as sa
from alembic import op

from driftline.errors import Conflict
from driftline.study import version_0_1

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_FINISHED = "('COMPLETE', 'DIVERGED', 'FAILED', 'CANCELLED')"
# The id of a confirmation trial, from its old one: STUDY.LABEL.f00003 -> STUDY.LABEL.c00003.
_NEW_ID = "t.study_id || '.' || t.label || '.c' || substr(t.id, length(t.study_id) + length(t.label) + 4)"


# Kept whole; of curve segments, those of unfinished trials, which are deleted.
_KEPT = ("studies", "trials", "drivers", "events", "packs", "recorder_state", "meta")


def upgrade() -> None:
    connection = op.get_bind()
    if _any(connection, "studies"):
        _back_up()
    op.execute("ALTER TABLE trials RENAME COLUMN setting TO configuration")
    op.execute("UPDATE trials SET configuration = number WHERE phase = 'search'")
    _start_again()
    _rename_confirmation_trials(connection)
    _translate_studies(connection)
    _translate_trials(connection)
    _translate_events(connection)


def downgrade() -> None:
    connection = op.get_bind()
    if not sa.inspect(connection).has_table("backup_0003_studies"):
        if _any(connection, "studies"):
            raise Conflict("revision 0004 can be taken back only where it kept a backup: this database has none")
        op.execute("ALTER TABLE trials RENAME COLUMN configuration TO setting")
        return
    op.execute("ALTER TABLE trials RENAME COLUMN configuration TO setting")
    op.execute("DELETE FROM studies WHERE id NOT IN (SELECT id FROM backup_0003_studies)")
    op.execute("INSERT INTO trials SELECT * FROM backup_0003_trials WHERE phase = 'front'")
    # Segments go back under the old ids: .f and .c are as long as one another, and nothing else of an id has changed.
    same = "b.study_id = t.study_id AND b.label = t.label AND b.number = t.number AND b.phase = 'front'"
    op.execute(
        "UPDATE curve_segments SET trial_id = (SELECT b.id FROM backup_0003_trials b JOIN trials t ON "
        f"{same} WHERE t.id = curve_segments.trial_id AND t.phase = 'confirmation') WHERE trial_id IN "
        f"(SELECT t.id FROM trials t JOIN backup_0003_trials b ON {same} WHERE t.phase = 'confirmation')"
    )
    op.execute("DELETE FROM trials WHERE id NOT IN (SELECT id FROM backup_0003_trials)")
    unfinished = f"SELECT id FROM backup_0003_trials WHERE state NOT IN {_FINISHED}"
    op.execute(f"DELETE FROM curve_segments WHERE trial_id IN ({unfinished})")
    op.execute("INSERT INTO curve_segments SELECT * FROM backup_0003_curve_segments")
    for table in ("trials", "studies"):
        columns = [column["name"] for column in sa.inspect(op.get_bind()).get_columns(table)]
        names = ", ".join(f'"{name}"' for name in columns)
        op.execute(
            f"UPDATE {table} SET ({names}) = (SELECT {names} FROM backup_0003_{table} b WHERE b.id = {table}.id)"
        )
    for table in ("drivers", "events", "packs", "recorder_state", "meta"):
        op.execute(f"DELETE FROM {table}")
        op.execute(f"INSERT INTO {table} SELECT * FROM backup_0003_{table}")
    for table in (*_KEPT, "curve_segments"):
        op.execute(f"DROP TABLE backup_0003_{table}")


def _any(connection: sa.Connection, table: str) -> bool:
    return connection.execute(sa.text(f"SELECT 1 FROM {table} LIMIT 1")).first() is not None


def _back_up() -> None:
    for table in _KEPT:
        op.execute(f"CREATE TABLE backup_0003_{table} AS SELECT * FROM {table}")
    op.execute(
        "CREATE TABLE backup_0003_curve_segments AS SELECT * FROM curve_segments WHERE trial_id IN "
        f"(SELECT id FROM trials WHERE state NOT IN {_FINISHED})"
    )


def _start_again() -> None:
    """Unfinished trials lose their progress, whose checkpoints no longer fit; running studies lose their drivers."""
    unfinished = f"SELECT id FROM trials WHERE state NOT IN {_FINISHED}"
    op.execute(f"DELETE FROM curve_segments WHERE trial_id IN ({unfinished})")
    op.execute("UPDATE packs SET rounds = 0, ended_at = started_at WHERE ended_at IS NULL")
    op.execute(
        "UPDATE trials SET state = 'WAITING', pack = NULL, plan = NULL, checkpoint = NULL, rounds_done = 0 "
        f"WHERE state NOT IN {_FINISHED}"
    )
    op.execute("UPDATE drivers SET released = TRUE")
    op.execute(
        "UPDATE studies SET state = 'PENDING', version = version + 1, "
        "reason = 'upgraded: unfinished trials start again' WHERE state IN ('QUEUED', 'RUNNING')"
    )


def _rename_confirmation_trials(connection: sa.Connection) -> None:
    """Rows under new ids first, then what refers to them, then the old rows: foreign keys hold throughout."""
    columns = [column["name"] for column in sa.inspect(connection).get_columns("trials")]
    quoted = [f'"{name}"' for name in columns]
    values = [{"id": _NEW_ID, "phase": "'confirmation'"}.get(name, f't."{name}"') for name in columns]
    op.execute(
        f"INSERT INTO trials ({', '.join(quoted)}) SELECT {', '.join(values)} FROM trials t WHERE t.phase = 'front'"
    )
    for table, key in (("curve_segments", "trial_id"), ("recorder_state", "key")):
        op.execute(
            f"UPDATE {table} SET {key} = (SELECT {_NEW_ID} FROM trials t WHERE t.id = {table}.{key}) "
            f"WHERE {key} IN (SELECT id FROM trials WHERE phase = 'front')"
        )
    op.execute("DELETE FROM trials WHERE phase = 'front'")


def _translate_studies(connection: sa.Connection) -> None:
    studies = sa.table("studies", sa.column("id"), sa.column("spec", sa.JSON), sa.column("fingerprint"))
    drivers = sa.table("drivers", sa.column("study_id"), sa.column("fingerprint"))
    meta = sa.table("meta", sa.column("key"), sa.column("value"))
    for study_id, spec, before in connection.execute(sa.select(*studies.c)).all():
        spec = version_0_1.study(spec)
        after = _fingerprint(spec)
        connection.execute(sa.update(studies).where(studies.c.id == study_id).values(spec=spec, fingerprint=after))
        connection.execute(sa.update(drivers).where(drivers.c.study_id == study_id).values(fingerprint=after))
        own = (meta.c.key == "fingerprint", meta.c.value == before)  # of an output folder's one study
        connection.execute(sa.update(meta).where(*own).values(value=after))


def _translate_trials(connection: sa.Connection) -> None:
    """Hyperparameters under today's names; most have the same."""
    studies = sa.table("studies", sa.column("id"), sa.column("spec", sa.JSON))
    trials = sa.table(
        "trials", sa.column("id"), sa.column("study_id"), sa.column("label"), sa.column("hyperparameters", sa.JSON)
    )
    for study_id, spec in connection.execute(sa.select(studies.c.id, studies.c.spec)).all():
        methods = {entry["label"]: entry["name"] for entry in spec.get("methods", ())}
        rows = sa.select(trials.c.id, trials.c.label, trials.c.hyperparameters).where(trials.c.study_id == study_id)
        for trial_id, label, before in connection.execute(rows).all():
            after = version_0_1.hyperparameters(methods.get(label, label), before)
            if after != before:
                connection.execute(sa.update(trials).where(trials.c.id == trial_id).values(hyperparameters=after))


def _translate_events(connection: sa.Connection) -> None:
    events = sa.table("events", sa.column("id"), sa.column("kind"), sa.column("data", sa.JSON))
    rows = connection.execute(sa.select(events.c.id, events.c.data).where(events.c.kind == "progress")).all()
    for event_id, data in rows:
        connection.execute(sa.update(events).where(events.c.id == event_id).values(data=version_0_1.event(data)))


def _fingerprint(spec: dict[str, Any]) -> str:
    """As `Study.fingerprint` makes it."""
    document = {key: value for key, value in spec.items() if key != "resources"}
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
