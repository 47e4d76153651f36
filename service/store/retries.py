"""Runs FAILED trials again at the request of the study's owner."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from driftline.errors import Conflict
from driftline.results.trial_list import missed
from driftline.wire.access import Quota
from driftline.wire.records import STUDY_FINISHED, StudyRecord
from service.store import trial_rows
from service.store.idempotency import IdempotencyKeys
from service.store.leases import RETRIED
from service.store.plans import Plans, of
from service.store.quotas import Quotas
from service.store.schema import TRIALS
from service.store.session import Actor, Session
from service.store.states import check_retry, intended
from service.store.stored_studies import study_record


class Retries:
    """Requests to run FAILED trials again."""

    def __init__(self, session: Session, plans: Plans, quotas: Quotas, idempotency: IdempotencyKeys) -> None:
        self._session = session
        self._plans = plans
        self._quotas = quotas
        self._idempotency = idempotency

    def request(
        self,
        study_id: str,
        trials: Sequence[str] = (),
        *,
        project: str = "default",
        key: str | None = None,
        request_hash: str = "",
        actor: Actor | None = None,
        limits: Quota | None = None,
    ) -> StudyRecord:
        """Put FAILED trials back to WAITING, with no deaths counted; a finished study becomes PENDING.

        Reports of the trials stay until they are reported anew; their errors stay in the study's events. If a driver
        holds the study, the next driver runs these trials.

        Args:
            study_id: Id of the study.
            trials: Ids of trials; empty for all FAILED ones.
            project: The study's project.
            key: Idempotency key: a second request with the key changes nothing.
            request_hash: Hash of the request, stored with the key.
            actor: Holder of the request's token, for the audit trail.
            limits: Limits of projects without a quota of their own; None skips the check for all projects.

        Raises:
            NotFound: No such study, or no such trial in it.
            Conflict: The study's state does not allow it, no trial is FAILED, or one of `trials` is not; nothing
                changes.
            InvalidSpec: The key was used for another request.
            QuotaExceeded: The project would exceed its quota.
        """
        now = self._session.clock()
        if key is not None:
            self._idempotency.forget_expired(now)
        with self._session.write() as connection:
            if self._idempotency.used(connection, project, key, request_hash) is not None:
                return study_record(connection, self._session.locked(connection, study_id))
            study = self._session.locked(connection, study_id)
            state = intended(study_id, study.state, "retry")
            rows = self._failed(connection, study_id, trials)
            if study.state in STUDY_FINISHED:
                self._quotas.allow(connection, study.project, 1, study.planned, limits)
            self._plans.add_exceptions(connection, study, self._missed(connection, study, rows))
            values = {"state": "WAITING", "error": None, "checkpoint": None, "deaths": 0, "death_round": None}
            for ids in trial_rows.chunks([row.id for row in rows]):
                connection.execute(sa.update(TRIALS).where(TRIALS.c.id.in_(ids)).values(**values, updated_at=now))
            self._session.update_driver(connection, study_id, fingerprint=RETRIED)
            if state != study.state:
                self._session.move(connection, study, state)
                self._session.update_driver(connection, study_id, deaths=0)
            errors: dict[str, list[str]] = {}
            for row in rows:
                errors.setdefault(row.error or "no reason", []).append(row.id.removeprefix(f"{study_id}."))
            for error, names in errors.items():
                text = f"retried {', '.join(names)}, which had failed: {error}"
                self._session.event(connection, study_id, "log", {"level": "info", "message": text})
            self._session.audit(
                connection, actor, "study.retry", study_id, study.project, {"was": study.state, "trials": len(rows)}
            )
            self._idempotency.add(connection, project, key, request_hash, study_id, now)
            self._session.changed(connection, self._session.locked(connection, study_id))
            return study_record(connection, self._session.locked(connection, study_id))

    def _missed(self, connection: sa.Connection, study: sa.Row[Any], failed: Sequence[sa.Row[Any]]) -> list[str]:
        """What the driver has decided without the results of these trials, which it will now have."""
        plan = of(study.plan)
        columns = (TRIALS.c.label, TRIALS.c.phase, TRIALS.c.number, TRIALS.c.state)
        trials = connection.execute(sa.select(*columns).where(TRIALS.c.study_id == study.id)).all()
        return [line for row in failed if (line := missed(row, trials, plan))]

    def _failed(self, connection: sa.Connection, study_id: str, trials: Sequence[str]) -> list[sa.Row[Any]]:
        """The rows of these trials, which must be FAILED; by default of all FAILED ones."""
        if trials:
            rows = trial_rows.by_id(connection, study_id, list(dict.fromkeys(trials)))
            for row in rows:
                check_retry(row.id, row.state)
            return rows
        query = sa.select(TRIALS).where(TRIALS.c.study_id == study_id, TRIALS.c.state == "FAILED").order_by(TRIALS.c.id)
        rows = list(connection.execute(query))
        if not rows:
            raise Conflict(f"no trial of study {study_id} has failed: there is nothing to retry")
        return rows
