"""Studies in the store: created once, moved by their owner's wishes, read as records."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import sqlalchemy as sa

from driftline.errors import Conflict
from driftline.wire.access import Quota
from driftline.wire.ids import new_study_id
from driftline.wire.records import STUDY_FINISHED, LabelProgress, StudyRecord, StudyState
from service.store import progress
from service.store.core import Actor, moment
from service.store.idempotency import Keys
from service.store.quotas import planned
from service.store.schema import DRIVERS, PACKS, STUDIES, TRIALS
from service.store.states import intended

_INSERT = sa.insert(STUDIES)


class Glance(NamedTuple):
    """What is asked most often about a study."""

    project: str
    state: StudyState
    version: int


class Studies(Keys):
    """The part of `Store` that keeps studies."""

    def create_study(
        self,
        spec: Mapping[str, Any],
        fingerprint: str,
        *,
        project: str = "default",
        key: str | None = None,
        request_hash: str = "",
        actor: Actor | None = None,
        limits: Quota | None = None,
    ) -> StudyRecord:
        """Store a new study in state PENDING.

        Args:
            spec: The study in its canonical form; must hold ``name``.
            fingerprint: Its fingerprint.
            project: Whom it belongs to.
            key: Idempotency key: the same key again gives the study that the first request made.
            request_hash: What was asked under the key.
            actor: Who asks, for the audit trail.
            limits: What the project may have unless something else was set for it; None allows everything.

        Raises:
            InvalidSpec: The key was used for another request.
            QuotaExceeded: The project would have too much; nothing is stored.
        """
        now = self.clock()
        asked = planned(spec)
        if key is not None:
            self._forget_keys(now)
        study_id = new_study_id(int(now * 1000))
        with self._database.write() as connection:
            if key is not None:
                used = self._used(connection, project, key, request_hash)
                if used is not None:
                    return self._record(connection, self._locked(connection, used))
            self._within_quota(connection, project, 1, asked, limits)
            row: dict[str, Any] = {
                "id": study_id,
                "project": project,
                "name": str(spec["name"]),
                "state": "PENDING",
                "reason": "",
                "spec": dict(spec),
                "fingerprint": fingerprint,
                "version": 0,
                "planned": asked,
                "created_at": now,
                "updated_at": now,
            }
            connection.execute(_INSERT, row)
            if key is not None:
                self._use_key(connection, project, key, request_hash, study_id, now)
            self._event(connection, study_id, "state", {"state": "PENDING", "reason": ""})
            self._audit(connection, actor, "study.submit", study_id, project, {"name": row["name"]})
            return self._record(connection, self._locked(connection, study_id))

    def study(self, study_id: str, project: str | None = None) -> StudyRecord:
        """The study of this id.

        Raises:
            NotFound: No such study, or one of another project.
        """
        with self._database.read() as connection:
            row = connection.execute(sa.select(STUDIES).where(STUDIES.c.id == study_id)).first()
            if row is None or project not in (None, row.project):
                row = self._missing(study_id)
            return self._record(connection, row)

    def studies(
        self, *, project: str | None = None, before: str | None = None, limit: int | None = None
    ) -> list[StudyRecord]:
        """Studies, newest first.

        Args:
            project: Only this project's.
            before: Only studies older than the one of this id.
            limit: At most so many.
        """
        query = sa.select(STUDIES).order_by(STUDIES.c.id.desc()).limit(limit)
        if project is not None:
            query = query.where(STUDIES.c.project == project)
        if before is not None:
            query = query.where(STUDIES.c.id < before)
        with self._database.read() as connection:
            rows = connection.execute(query).all()
            counted = progress.of(connection, {row.id: row.spec for row in rows})
            return [_study(row, counted[row.id]) for row in rows]

    def intend(
        self, study_id: str, intent: str, *, actor: Actor | None = None, limits: Quota | None = None
    ) -> StudyRecord:
        """Write down what the owner wants; the scheduler and the driver fulfil it.

        Args:
            study_id: Id of the study.
            intent: "pause", "resume" or "cancel".
            actor: Who asks, for the audit trail.
            limits: As in `create_study`; looked at when a finished study becomes unfinished.

        Raises:
            NotFound: No such study.
            Conflict: The study's state does not allow it.
            QuotaExceeded: The project would have too much.
        """
        with self._database.write() as connection:
            study = self._locked(connection, study_id)
            state = intended(study_id, study.state, intent)
            if state != study.state:
                if study.state in STUDY_FINISHED:
                    self._within_quota(connection, study.project, 1, study.planned, limits)
                self._move(connection, study, state)
                if state == "PENDING":
                    self._update_driver(connection, study_id, deaths=0)
                if state == "CANCELLED":
                    self._stop_trials(connection, study_id, "CANCELLED", ("WAITING", "RUNNING"))
                self._audit(connection, actor, f"study.{intent}", study_id, study.project, {"was": study.state})
            return self._record(connection, self._locked(connection, study_id))

    def extend(
        self,
        study_id: str,
        budget: Mapping[str, Any],
        fingerprint: str,
        *,
        was: str,
        actor: Actor | None = None,
        limits: Quota | None = None,
    ) -> StudyRecord:
        """Give the study a larger budget; a finished one becomes PENDING again. The same again changes nothing.

        A driver that holds the study goes on with the budget it knows; when it lets go of the study, the next one does
        what is left.

        Args:
            study_id: Id of the study.
            budget: The whole budget of the extended study.
            fingerprint: Of the extended study.
            was: Fingerprint of the study that was extended.
            actor: Who asks, for the audit trail.
            limits: As in `create_study`.

        Raises:
            NotFound: No such study.
            Conflict: The study's state does not allow it, or it was extended by somebody else in the meantime.
            QuotaExceeded: The project would have too much.
        """
        with self._database.write() as connection:
            study = self._locked(connection, study_id)
            state = intended(study_id, study.state, "extend")
            if study.fingerprint == fingerprint:
                return self._record(connection, study)
            if study.fingerprint != was:
                raise Conflict(f"study {study_id} was extended by another request at the same time; look and ask again")
            spec = {**study.spec, "budget": dict(budget)}
            asked = planned(spec)
            ended = study.state in STUDY_FINISHED
            more = asked if ended else asked - study.planned
            self._within_quota(connection, study.project, int(ended), more, limits)
            values = {"spec": spec, "fingerprint": fingerprint, "planned": asked}
            connection.execute(sa.update(STUDIES).where(STUDIES.c.id == study_id).values(**values))
            if state != study.state:
                self._move(connection, study, state)
                self._update_driver(connection, study_id, deaths=0)
            changes = {name: [study.spec["budget"].get(name), budget[name]] for name in ("trials_per_method", "seeds")}
            text = ", ".join(f"{name} {old} -> {new}" for name, (old, new) in changes.items() if old != new)
            self._event(connection, study_id, "log", {"level": "info", "message": f"extended: {text}"})
            self._audit(connection, actor, "study.extend", study_id, study.project, changes)
            self._changed(connection, self._locked(connection, study_id))
            return self._record(connection, self._locked(connection, study_id))

    def glance(self, study_id: str) -> Glance:
        """Whose the study is, its state and its version; cheaper than `study`.

        Raises:
            NotFound: No such study.
        """
        query = sa.select(*STUDIES.c["project", "state", "version"]).where(STUDIES.c.id == study_id)
        with self._database.read() as connection:
            row = connection.execute(query).first() or self._missing(study_id)
            return Glance(row.project, row.state, row.version)

    def set_resources(self, study_id: str, resources: Mapping[str, Any]) -> None:
        """Give the study other resources; its next driver uses them.

        Raises:
            NotFound: No such study.
        """
        with self._database.write() as connection:
            study = self._locked(connection, study_id)
            spec = {**study.spec, "resources": dict(resources)}
            connection.execute(sa.update(STUDIES).where(STUDIES.c.id == study_id).values(spec=spec))

    def set_mlflow_url(self, study_id: str, url: str | None) -> None:
        """Note where the study's curves can be seen."""
        with self._database.write() as connection:
            study = self._locked(connection, study_id)
            if study.mlflow_url != url:
                connection.execute(sa.update(STUDIES).where(STUDIES.c.id == study_id).values(mlflow_url=url))

    def _record(self, connection: sa.Connection, row: sa.Row[Any]) -> StudyRecord:
        return _study(row, progress.of(connection, {row.id: row.spec})[row.id])

    def _stop_trials(
        self,
        connection: sa.Connection,
        study_id: str,
        state: str,
        from_states: Iterable[str] = ("RUNNING",),
        ended_at: float | None = None,
    ) -> None:
        """Move the trials that are in one of `from_states`; what they have done stays.

        Args:
            connection: Of a running transaction.
            study_id: Id of the study.
            state: The trials' new state.
            from_states: Which of them.
            ended_at: When their packs ended; now by default.
        """
        connection.execute(
            sa.update(TRIALS)
            .where(TRIALS.c.study_id == study_id, TRIALS.c.state.in_(tuple(from_states)))
            .values(state=state, updated_at=self.clock())
        )
        self._close_packs(connection, study_id, ended_at)

    def _close_packs(self, connection: sa.Connection, study_id: str, ended_at: float | None = None) -> None:
        """Note the end of packs of which no trial runs any more, and what they have done."""
        here = (TRIALS.c.study_id == PACKS.c.study_id, TRIALS.c.pack == PACKS.c.pack)
        running = sa.select(TRIALS.c.id).where(*here, TRIALS.c.state == "RUNNING").exists()
        rounds = sa.select(sa.func.coalesce(sa.func.sum(TRIALS.c.rounds_done), 0)).where(*here).scalar_subquery()
        ended = self.clock() if ended_at is None else ended_at
        latest = sa.case((PACKS.c.started_at > ended, PACKS.c.started_at), else_=ended)  # a clock that was set back
        connection.execute(
            sa.update(PACKS)
            .where(PACKS.c.study_id == study_id, PACKS.c.ended_at.is_(None), ~running)
            .values(ended_at=latest, rounds=rounds - PACKS.c.rounds_before)
        )

    def _holds(self, connection: sa.Connection, study_id: str) -> sa.Row[Any] | None:
        return connection.execute(sa.select(DRIVERS).where(DRIVERS.c.study_id == study_id)).first()


def _study(row: sa.Row[Any], labels: Mapping[str, LabelProgress]) -> StudyRecord:
    created, updated = moment(row.created_at), moment(row.updated_at)
    assert created is not None
    assert updated is not None
    state: StudyState = row.state
    return StudyRecord(
        id=row.id,
        name=row.name,
        project=row.project,
        state=state,
        reason=row.reason,
        spec=row.spec,
        fingerprint=row.fingerprint,
        version=row.version,
        progress=dict(labels),
        mlflow_url=row.mlflow_url,
        created_at=created,
        updated_at=updated,
        started_at=moment(row.started_at),
        finished_at=moment(row.finished_at),
    )
