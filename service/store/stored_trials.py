"""Trials in the store: created, started and finished by the study's driver, read by everyone."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from driftline.errors import Conflict, StaleDriver
from driftline.wire.driver_messages import NewTrial, Stored, TrialResult
from driftline.wire.ids import trial_id
from driftline.wire.records import Phase, TrialRecord, TrialState
from service.store import curves, trial_rows
from service.store.curves import RESTORED
from service.store.leases import RETRIED, desired
from service.store.schema import PACKS, TRIALS
from service.store.session import StorePart, check_exists, moment
from service.store.states import check_trial
from service.store.stored_spec import StoredSpec

_COUNTED = ("deaths", "death_round")
_FINISH = (
    sa.update(TRIALS)
    .where(TRIALS.c.id == sa.bindparam("trial"))
    .values(state=sa.bindparam("to"), updated_at=sa.bindparam("now"))
    .values({TRIALS.c["values"]: sa.bindparam("result"), TRIALS.c.error: sa.bindparam("why")})
    .values({TRIALS.c[name]: sa.func.coalesce(sa.bindparam(f"new_{name}"), TRIALS.c[name]) for name in _COUNTED})
)
_GIVEN = ("label", "phase", "number", "seed", "configuration", "hyperparameters")


class Trials(StorePart):
    """The trials of all studies, and the packs in which they run."""

    def find(
        self,
        study_id: str,
        *,
        ids: Sequence[str] | None = None,
        label: str | None = None,
        phase: Phase | None = None,
        state: TrialState | None = None,
        after: tuple[str, str, int] | None = None,
        limit: int | None = None,
    ) -> list[TrialRecord]:
        """Trials of a study in the order label, phase (search before confirmation), number.

        Args:
            study_id: Id of the study.
            ids: Only these trials.
            label: Only trials of this label.
            phase: Only trials of this phase.
            state: Only trials in this state.
            after: Only trials after this (label, phase, number).
            limit: Maximum number of trials.

        Raises:
            NotFound: No such study, or the study has no trial of one of `ids`.
        """
        query = sa.select(TRIALS).where(TRIALS.c.study_id == study_id)
        for name, value in (("label", label), ("phase", phase), ("state", state)):
            if value is not None:
                query = query.where(TRIALS.c[name] == value)
        if ids is not None:
            query = query.where(TRIALS.c.id.in_(ids))
        if after is not None:
            query = query.where(_later(*after))
        query = query.order_by(TRIALS.c.label, TRIALS.c.phase.desc(), TRIALS.c.number).limit(limit)
        with self._session.read() as connection:
            check_exists(connection, study_id)
            if ids is not None:
                trial_rows.by_id(connection, study_id, ids)
            result = connection.execute(query)
            names = list(result.keys())
            return [_trial(dict(zip(names, row, strict=True))) for row in result]

    def reported_rounds(self, study_id: str) -> int:
        """Rounds of all trials of a study, each trial's round 0 included; 0 if there is no such study."""
        total = sa.func.coalesce(sa.func.sum(TRIALS.c.rounds_done + 1), 0)
        with self._session.read() as connection:
            return int(connection.execute(sa.select(total).where(TRIALS.c.study_id == study_id)).scalar_one())

    def get(self, study_id: str, trial: str) -> TrialRecord:
        """The trial of this id.

        Raises:
            NotFound: The study has no such trial.
        """
        with self._session.read() as connection:
            return _trial(trial_rows.by_id(connection, study_id, [trial])[0]._mapping)

    def create(self, study_id: str, attempt: int, trials: Sequence[NewTrial], *, nonce: str = "") -> list[TrialRecord]:
        """Create trials in state WAITING; leaves equal existing trials alone.

        Args:
            study_id: Id of the study.
            attempt: The driver's attempt.
            trials: The trials to create.
            nonce: The driver's nonce, as given to `Leases.acquire`.

        Returns:
            The trials, in the order given.

        Raises:
            Conflict: A trial with this label, phase and number exists and differs; nothing is created.
        """
        ids = [trial_id(study_id, new.label, new.phase, new.number) for new in trials]
        with self._session.write() as connection:
            study = self._session.fenced(connection, study_id, attempt, nonce)
            existing = {row.id: row for row in trial_rows.existing(connection, study_id, ids)}
            values: dict[str, dict[str, Any]] = {}
            for identity, new in zip(ids, trials, strict=True):
                columns = new.model_dump(mode="json")
                old = existing[identity]._mapping if identity in existing else values.get(identity)
                if old is None:
                    values[identity] = columns
                elif differing := [name for name in _GIVEN if old[name] != columns[name]]:
                    raise Conflict(f"trial {identity} exists with another {', '.join(differing)}; take the next number")
            if values:
                now = self._session.clock()
                fresh = {"study_id": study_id, "state": "WAITING", "attempt": 0, "rounds_done": 0}
                stamps = {"created_at": now, "updated_at": now}
                rows = [{"id": identity, **columns, **fresh, **stamps} for identity, columns in values.items()]
                connection.execute(sa.insert(TRIALS), rows)
                self._session.changed(connection, study)
            return [_trial(row._mapping) for row in trial_rows.by_id(connection, study_id, ids)]

    def start_pack(
        self, study_id: str, attempt: int, pack: str, trials: Sequence[str], gpus: float = 0.0, *, nonce: str = ""
    ) -> list[TrialRecord]:
        """Mark trials as running in a pack; increases each trial's attempt by 1. Idempotent.

        Args:
            study_id: Id of the study.
            attempt: The driver's attempt.
            pack: Id of the pack.
            trials: Ids of its trials, in the order of its members.
            gpus: GPUs of the pack, or its share of one; counted against the project's quota.
            nonce: The driver's nonce, as given to `Leases.acquire`.

        Raises:
            NotFound: The study has no such trial.
            Conflict: A trial is finished, or runs in another pack; nothing is started.
        """
        with self._session.write() as connection:
            study = self._session.fenced(connection, study_id, attempt, nonce)
            rows = trial_rows.by_id(connection, study_id, trials)
            starting = [row for row in rows if not (row.state == "RUNNING" and row.pack == pack)]
            for row in starting:
                if row.state == "RUNNING":
                    raise Conflict(
                        f"trial {row.id} runs in pack {row.pack}; hand it back before pack {pack} may take it"
                    )
                check_trial(row.id, row.state, "RUNNING")
            if starting:
                values = {
                    "state": "RUNNING",
                    "pack": pack,
                    "attempt": TRIALS.c.attempt + 1,
                    "updated_at": self._session.clock(),
                }
                for ids in trial_rows.chunks([row.id for row in starting]):
                    connection.execute(sa.update(TRIALS).where(TRIALS.c.id.in_(ids)).values(**values))
                self._open_pack(connection, study, pack, rows, gpus)
                self._session.changed(connection, study)
            return [_trial(row._mapping) for row in trial_rows.by_id(connection, study_id, trials)]

    def finish(self, study_id: str, attempt: int, results: Sequence[TrialResult], *, nonce: str = "") -> Stored:
        """Store how trials ended, or hand them back (WAITING). Idempotent.

        Returns:
            The study's version afterwards, and what its owner wants the driver to do.

        Raises:
            StaleDriver: Also if the driver has reported rounds that a restored backup does not hold; nothing is stored.
            NotFound: The study has no such trial.
            Conflict: A trial is finished with another result; nothing is stored.
        """
        with self._session.write() as connection:
            study = self._session.fenced(connection, study_id, attempt, nonce)
            rows = {row.id: row for row in trial_rows.by_id(connection, study_id, [result.trial for result in results])}
            changes = self._results(rows, results, retried=_retried(self._session.driver(connection, study_id)))
            changed = bool(changes)
            if changed:
                connection.execute(_FINISH, changes)
                trial_rows.close_packs(connection, study_id, self._session.clock())
                curves.seal(connection, [change["trial"] for change in changes])
            if any(result.state in ("COMPLETE", "STOPPED", "DIVERGED") for result in results):
                self._session.update_driver(connection, study_id, deaths=0)
            version = self._session.changed(connection, study) if changed else study.version
            return Stored(version=version, desired=desired(study.state))

    def _open_pack(
        self, connection: sa.Connection, study: sa.Row[Any], pack: str, rows: Sequence[sa.Row[Any]], gpus: float
    ) -> None:
        """Store what a pack uses from now on; restarting a pack replaces its row."""
        connection.execute(sa.delete(PACKS).where(PACKS.c.study_id == study.id, PACKS.c.pack == pack))
        connection.execute(
            sa.insert(PACKS).values(
                study_id=study.id,
                pack=pack,
                label=rows[0].label,
                trials=len(rows),
                cpus=StoredSpec(study.spec).resources.cpus,
                gpus=gpus,
                rounds_before=sum(row.rounds_done for row in rows),
                started_at=self._session.clock(),
            )
        )

    def _results(
        self, rows: Mapping[str, sa.Row[Any]], results: Sequence[TrialResult], *, retried: bool
    ) -> list[dict[str, Any]]:
        """The updates that store these results, in the same order, without results that are stored already.

        Args:
            rows: The trials' rows by id.
            results: The results; a trial may occur more than once.
            retried: Whether the owner has retried trials under this driver. A report that a WAITING trial has failed
                then repeats one whose answer was lost, and is ignored: the next driver runs the trial.
        """
        now = self._session.clock()
        stands = {trial: (row.state, row.values, row.error) for trial, row in rows.items()}
        changes = []
        for result in results:
            values = None if result.values is None else result.values.model_dump(mode="json")
            state, *rest = stands[result.trial]
            if state == result.state:
                if state == "WAITING" or rest == [values, result.error]:
                    continue
                raise Conflict(
                    f"trial {result.trial} is finished with another result; a finished trial is final", state=state
                )
            if retried and (state, result.state) == ("WAITING", "FAILED"):
                continue
            check_trial(result.trial, state, result.state)
            stored, reported = rows[result.trial].rounds_done, result.rounds_done or 0
            if result.state != "WAITING" and stored < reported:
                problem = f"got {result.state} after round {reported}, but round {stored} is the last one stored"
                raise StaleDriver(f"trial {result.trial} must report every round, {problem}: {RESTORED}")
            stands[result.trial] = (result.state, values, result.error)
            counted = {f"new_{name}": getattr(result, name) for name in _COUNTED}
            changes.append(
                {
                    "trial": result.trial,
                    "to": result.state,
                    "result": values,
                    "why": result.error,
                    "now": now,
                    **counted,
                }
            )
        return changes


def _retried(driver: sa.Row[Any] | None) -> bool:
    return driver is not None and driver.fingerprint == RETRIED


def _later(label: str, phase: str, number: int) -> sa.ColumnElement[bool]:
    columns = TRIALS.c
    same_label = sa.or_(columns.phase < phase, sa.and_(columns.phase == phase, columns.number > number))
    return sa.or_(columns.label > label, sa.and_(columns.label == label, same_label))


def _trial(values: Mapping[Any, Any]) -> TrialRecord:
    moments = {name: moment(values[name]) for name in ("created_at", "updated_at")}
    return TrialRecord.model_validate({**values, **moments})
