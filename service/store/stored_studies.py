"""Studies in the store: created, changed at their owner's request, read as records."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from driftline.errors import Conflict
from driftline.wire.access import Quota
from driftline.wire.ids import new_study_id
from driftline.wire.records import STUDY_FINISHED, LabelProgress, StudyRecord, StudyState
from service.store import archives, plans, progress, trial_rows
from service.store.idempotency import IdempotencyKeys
from service.store.quotas import Quotas
from service.store.schema import DRIVERS, STUDIES
from service.store.session import KEPT, Actor, Session, missing, moment
from service.store.states import DRIVEN, intended
from service.store.stored_spec import StoredSpec

PAGE_CHARACTERS = 4_000_000
"""Maximum length of the documents of a page of studies, as JSON."""

_INSERT = sa.insert(STUDIES)


class Glance(NamedTuple):
    """The most frequently read columns of a study."""

    project: str
    state: StudyState
    version: int


class StoredStudies:
    """The studies: their specs and states."""

    def __init__(self, session: Session, quotas: Quotas, idempotency: IdempotencyKeys) -> None:
        self._session = session
        self._quotas = quotas
        self._idempotency = idempotency

    def create(
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
            project: The study's project.
            key: Idempotency key: a second request with the key returns the study that the first one made.
            request_hash: Hash of the request, stored with the key.
            actor: Holder of the request's token, for the audit trail.
            limits: Limits of projects without a quota of their own; None skips the check for all projects.

        Raises:
            InvalidSpec: The key was used for another request, or the files of the study's program are missing.
            QuotaExceeded: The project would exceed its quota; nothing is stored.
        """
        now = self._session.clock()
        planned = StoredSpec(spec).trials
        if key is not None:
            self._idempotency.forget_expired(now)
        study_id = new_study_id(int(now * 1000))
        with self._session.write() as connection:
            if (used := self._idempotency.used(connection, project, key, request_hash)) is not None:
                return study_record(connection, self._session.locked(connection, used))
            self._quotas.allow(connection, project, 1, planned, limits)
            row: dict[str, Any] = {
                "id": study_id,
                "project": project,
                "name": StoredSpec(spec).name,
                "state": "PENDING",
                "reason": "",
                "spec": dict(spec),
                "fingerprint": fingerprint,
                "version": 0,
                "planned": planned,
                "created_at": now,
                "updated_at": now,
            }
            connection.execute(_INSERT, row)
            if (digest := StoredSpec(spec).archive) is not None:
                archives.use(connection, study_id, project, digest, now)
            self._idempotency.add(connection, project, key, request_hash, study_id, now)
            self._session.event(connection, study_id, "state", {"state": "PENDING", "reason": ""})
            self._session.audit(connection, actor, "study.submit", study_id, project, {"name": row["name"]})
            return study_record(connection, self._session.locked(connection, study_id))

    def get(self, study_id: str, project: str | None = None) -> StudyRecord:
        """The study of this id.

        Raises:
            NotFound: No such study, or one of another project.
        """
        with self._session.read() as connection:
            row = connection.execute(sa.select(STUDIES).where(STUDIES.c.id == study_id, KEPT)).first()
            if row is None or project not in (None, row.project):
                missing(study_id)
            return study_record(connection, row)

    def find(self, limit: int | None = None) -> list[StudyRecord]:
        """Studies of all projects, newest first.

        Args:
            limit: Maximum number of studies.
        """
        query = _newest(sa.select(STUDIES), None, None).limit(limit)
        with self._session.read() as connection:
            return _studies(connection, connection.execute(query).all())

    def page(
        self, *, project: str | None = None, before: str | None = None, most: int
    ) -> tuple[list[StudyRecord], bool]:
        """The next studies, newest first, and whether there are more; at least one if there is any.

        Args:
            project: Only studies of this project.
            before: Only studies older than the one with this id.
            most: Maximum number of studies; fewer are returned if their documents are longer than `PAGE_CHARACTERS`.
        """
        length = sa.func.length(sa.cast(STUDIES.c.spec, sa.Text))
        query = _newest(sa.select(length), project, before).limit(most + 1)
        with self._session.read() as connection:
            lengths = list(itertools.accumulate(connection.execute(query).scalars()))
            fitting = max(1, sum(total <= PAGE_CHARACTERS for total in lengths[:most]))
            rows = connection.execute(_newest(sa.select(STUDIES), project, before).limit(fitting)).all()
            return _studies(connection, rows), len(lengths) > fitting

    def intend(
        self, study_id: str, intent: str, *, actor: Actor | None = None, limits: Quota | None = None, reason: str = ""
    ) -> StudyRecord:
        """Store what the owner wants; the scheduler and the driver carry it out.

        Args:
            study_id: Id of the study.
            intent: "pause", "resume" or "cancel".
            actor: Holder of the request's token, for the audit trail.
            limits: As in `create`; checked when a finished study becomes unfinished, or a paused study is resumed.
            reason: Why, for people.

        Raises:
            Conflict: The study's state does not allow it.
            QuotaExceeded: The project would exceed its quota.
        """
        with self._session.write() as connection:
            study = self._session.locked(connection, study_id)
            state = intended(study_id, study.state, intent)
            if state != study.state:
                if study.state in STUDY_FINISHED:
                    self._quotas.allow(connection, study.project, 1, study.planned, limits)
                elif intent == "resume":
                    self._quotas.allow_resuming(connection, study.project, limits)
                self._session.move(connection, study, state, reason)
                if state == "PENDING":
                    self._session.update_driver(connection, study_id, deaths=0)
                if state == "CANCELLED":
                    states = ("WAITING", "RUNNING")
                    trial_rows.stop(connection, study_id, "CANCELLED", self._session.clock(), from_states=states)
                details = {"was": study.state} | ({"reason": reason} if reason else {})
                self._session.audit(connection, actor, f"study.{intent}", study_id, study.project, details)
            return study_record(connection, self._session.locked(connection, study_id))

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
        """Give the study a larger budget; a finished one becomes PENDING. Idempotent.

        A driver that holds the study keeps the budget it knows; after it releases the study, the next one does the
        rest.

        Args:
            study_id: Id of the study.
            budget: The complete new budget.
            fingerprint: Fingerprint of the extended study.
            was: Fingerprint of the study before.
            actor: Holder of the request's token, for the audit trail.
            limits: Limits of projects without a quota of their own; None skips the check for all projects.

        Raises:
            Conflict: The study's state does not allow it, or another request extended it meanwhile.
            QuotaExceeded: The project would exceed its quota.
        """
        with self._session.write() as connection:
            study = self._session.locked(connection, study_id)
            state = intended(study_id, study.state, "extend")
            if study.fingerprint == fingerprint:
                return study_record(connection, study)
            if study.fingerprint != was:
                raise Conflict(
                    f"study {study_id} was extended by another request at the same time; look at it and try again"
                )
            spec = {**study.spec, "budget": dict(budget)}
            planned = StoredSpec(spec).trials
            ended = study.state in STUDY_FINISHED
            more = planned if ended else planned - study.planned
            self._quotas.allow(connection, study.project, int(ended), more, limits)
            values = {"spec": spec, "fingerprint": fingerprint, "planned": planned}
            connection.execute(sa.update(STUDIES).where(STUDIES.c.id == study_id).values(**values))
            if state != study.state:
                self._session.move(connection, study, state)
                self._session.update_driver(connection, study_id, deaths=0)
            changes = {name: [study.spec["budget"].get(name), budget[name]] for name in ("trials_per_method", "seeds")}
            text = ", ".join(f"{name} {old} -> {new}" for name, (old, new) in changes.items() if old != new)
            self._session.event(connection, study_id, "log", {"level": "info", "message": f"extended: {text}"})
            self._session.audit(connection, actor, "study.extend", study_id, study.project, changes)
            self._session.changed(connection, self._session.locked(connection, study_id))
            return study_record(connection, self._session.locked(connection, study_id))

    def glance(self, study_id: str) -> Glance:
        """The study's project, state and version; cheaper than `get`."""
        query = sa.select(*STUDIES.c["project", "state", "version"]).where(STUDIES.c.id == study_id, KEPT)
        with self._session.read() as connection:
            row = connection.execute(query).first() or missing(study_id)
            return Glance(row.project, row.state, row.version)

    def glances(self) -> dict[str, Glance]:
        """`glance` of every study, by id, newest first."""
        query = _newest(sa.select(*STUDIES.c["id", "project", "state", "version"]), None, None)
        with self._session.read() as connection:
            return {row.id: Glance(row.project, row.state, row.version) for row in connection.execute(query)}

    def set_resources(self, study_id: str, resources: Mapping[str, Any]) -> None:
        """Change the study's resources; its next driver uses them."""
        with self._session.write() as connection:
            study = self._session.locked(connection, study_id)
            spec = {**study.spec, "resources": dict(resources)}
            connection.execute(sa.update(STUDIES).where(STUDIES.c.id == study_id).values(spec=spec))

    def set_mlflow_url(self, study_id: str, url: str | None) -> None:
        """Store the URL at which MLflow shows the study."""
        with self._session.write() as connection:
            study = self._session.locked(connection, study_id)
            if study.mlflow_url != url:
                connection.execute(sa.update(STUDIES).where(STUDIES.c.id == study_id).values(mlflow_url=url))

    def not_cancelled(self) -> set[str]:
        """Ids of all studies except CANCELLED and deleted ones, for which nothing runs or is kept."""
        query = sa.select(STUDIES.c.id).where(STUDIES.c.state != "CANCELLED", KEPT)
        with self._session.read() as connection:
            return set(connection.execute(query).scalars())

    def ended_since(self, since: float, limit: int) -> list[str]:
        """Ids of at most `limit` studies that need no driver and have changed since then, latest first."""
        query = (
            sa.select(STUDIES.c.id)
            .where(STUDIES.c.state.not_in(tuple(DRIVEN)), STUDIES.c.updated_at >= since)
            .order_by(STUDIES.c.updated_at.desc())
            .limit(limit)
        )
        with self._session.read() as connection:
            return list(connection.execute(query).scalars())

    def ended(self, study_ids: Sequence[str], failed_before: float) -> dict[str, int]:
        """Studies among these that no longer need checkpoints -> the attempt of their newest driver.

        Args:
            study_ids: At most a few hundred ids; unknown ones are left out.
            failed_before: FAILED studies are included if they failed before this Unix time.
        """
        over = sa.or_(
            STUDIES.c.state.in_(("CANCELLED", "SUCCEEDED")),
            sa.and_(STUDIES.c.state == "FAILED", STUDIES.c.finished_at < failed_before),
        )
        query = (
            sa.select(STUDIES.c.id, sa.func.coalesce(DRIVERS.c.attempt, 0).label("attempt"))
            .join(DRIVERS, DRIVERS.c.study_id == STUDIES.c.id, isouter=True)
            .where(STUDIES.c.id.in_(study_ids), over)
        )
        with self._session.read() as connection:
            return {row.id: row.attempt for row in connection.execute(query)}

    def last_started(self) -> dict[str, float]:
        """Unix time at which a study was last started, by project; without projects that never started one."""
        query = sa.select(STUDIES.c.project, sa.func.max(STUDIES.c.started_at)).group_by(STUDIES.c.project)
        with self._session.read() as connection:
            return {project: started for project, started in connection.execute(query) if started is not None}


def _newest(query: sa.Select[Any], project: str | None, before: str | None) -> sa.Select[Any]:
    """Limits a query to studies that were not deleted, newest first."""
    query = query.where(KEPT).order_by(STUDIES.c.id.desc())
    if project is not None:
        query = query.where(STUDIES.c.project == project)
    return query if before is None else query.where(STUDIES.c.id < before)


def study_record(connection: sa.Connection, row: sa.Row[Any]) -> StudyRecord:
    """The record of a study, from its row and the progress of its trials."""
    return _studies(connection, [row])[0]


def _studies(connection: sa.Connection, rows: Sequence[sa.Row[Any]]) -> list[StudyRecord]:
    counted = progress.of(connection, {row.id: row.spec for row in rows})
    return [_study(row, counted[row.id]) for row in rows]


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
        plan=plans.of(row.plan),
        mlflow_url=row.mlflow_url,
        created_at=created,
        updated_at=updated,
        started_at=moment(row.started_at),
        finished_at=moment(row.finished_at),
    )
