"""The plans of studies: how their trials are asked for and packed, and what else their trials depend on."""

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from driftline.wire.records import StudyPlan
from service.store.schema import STUDIES
from service.store.session import StorePart


class Plans(StorePart):
    """The plans of all studies; a study has none until its first driver has decided it."""

    def put(self, study_id: str, attempt: int, plan: StudyPlan, reason: str = "", *, nonce: str = "") -> StudyPlan:
        """Store the plan that holds from now on. Idempotent.

        Args:
            study_id: Id of the study.
            attempt: The driver's attempt.
            plan: The plan; its exceptions are added to the stored ones.
            reason: Why the plan changes: becomes an event and an exception. "" for none.
            nonce: The driver's nonce, as given to `Leases.acquire`.

        Returns:
            The plan as stored.
        """
        with self._session.write() as connection:
            study = self._session.fenced(connection, study_id, attempt, nonce)
            old = of(study.plan)
            kept = () if old is None else old.exceptions
            new = with_exceptions(plan.model_copy(update={"exceptions": []}), [*kept, *plan.exceptions])
            if reason:
                new = with_exceptions(new, [reason])
            if new == old:
                return new
            connection.execute(sa.update(STUDIES).where(STUDIES.c.id == study_id).values(plan=new.model_dump()))
            if reason:
                self._session.event(connection, study_id, "log", {"level": "warning", "message": reason})
            self._session.changed(connection, study)
            return new

    def add_exceptions(self, connection: sa.Connection, study: sa.Row[Any], lines: Iterable[str]) -> None:
        """Store what else the trials of a study depend on from now on, in the caller's transaction."""
        old = of(study.plan)
        if old is not None:
            values = {"plan": with_exceptions(old, lines).model_dump()}
            connection.execute(sa.update(STUDIES).where(STUDIES.c.id == study.id).values(**values))


def of(stored: object) -> StudyPlan | None:
    """The plan in a study's row; None if there is none yet."""
    return None if stored is None else StudyPlan.model_validate(stored)


def with_exceptions(plan: StudyPlan, lines: Iterable[str]) -> StudyPlan:
    """The plan with more exceptions, each of them once."""
    return plan.model_copy(update={"exceptions": list(dict.fromkeys([*plan.exceptions, *lines]))})
