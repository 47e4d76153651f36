"""Quotas of projects, checked in the transaction that adds studies or trials."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from driftline.errors import QuotaExceeded
from driftline.wire.access import ProjectQuota, Quota, Use
from driftline.wire.records import STUDY_FINISHED
from service.store.schema import PACKS, PAST_USE, QUOTAS, STUDIES
from service.store.session import KEPT, Actor, StorePart
from service.store.sizes import curve_size

_HOUR_S = 3600.0


class Quotas(StorePart):
    """The quotas of projects, and their use."""

    def get(self, project: str, defaults: Quota | None = None) -> ProjectQuota:
        """Limits and use of a project.

        Args:
            project: The project; it need not have studies.
            defaults: Limits of projects without a quota of their own; none by default.
        """
        with self._session.read() as connection:
            quota = self._own_quota(connection, project)
            limits = quota or defaults or Quota()
            size = curve_size(connection, project)
            measured = {"curve_rows": size.rows, "curve_bytes": size.bytes}
            use = self._use(connection, project).model_copy(update=measured)
            return ProjectQuota(project=project, limits=limits, use=use, own=quota is not None)

    def set(self, project: str, quota: Quota, actor: Actor | None = None) -> None:
        """Set a project's limits, in place of the service's defaults; existing studies stay."""
        with self._session.write() as connection:
            self._session.database.turn(connection, f"quota/{project}")
            connection.execute(sa.delete(QUOTAS).where(QUOTAS.c.project == project))
            connection.execute(
                sa.insert(QUOTAS).values(project=project, updated_at=self._session.clock(), **quota.model_dump())
            )
            self._session.audit(connection, actor, "quota.set", project, project, quota.model_dump())

    def allow(self, connection: sa.Connection, project: str, studies: int, trials: int, defaults: Quota | None) -> None:
        """Check that a project may have more studies and trials; concurrent checks of a project take turns.

        Args:
            connection: Connection of a running transaction.
            project: The project.
            studies: Additional unfinished studies.
            trials: Additional trials in unfinished studies.
            defaults: Limits of projects without a quota of their own; None skips the check for all projects.

        Raises:
            QuotaExceeded: The project would exceed its quota.
        """
        if defaults is None:
            return
        quota = self._own_quota(connection, project) or defaults
        if quota == Quota():
            return
        self._session.database.turn(connection, f"quota/{project}")
        use = self._use(connection, project, hours=quota.gpu_hours is not None)
        if quota.studies is not None and studies > 0 and use.studies + studies > quota.studies:
            raise _exceeded(
                project, "studies", quota.studies, use.studies, "unfinished studies", "cancel one or wait for its end"
            )
        if quota.trials is not None and trials > 0 and use.trials + trials > quota.trials:
            had = f"trials in unfinished studies, and this asks for {trials} more"
            raise _exceeded(project, "trials", quota.trials, use.trials, had, "ask for fewer, or wait")
        if quota.gpu_hours is not None and use.gpu_hours >= quota.gpu_hours:
            raise _exceeded(project, "gpu_hours", quota.gpu_hours, round(use.gpu_hours, 2), "GPU-hours used", "stop")

    def allow_resuming(self, connection: sa.Connection, project: str, defaults: Quota | None) -> None:
        """Allow a project to resume a paused study.

        Args:
            connection: Connection of a running transaction.
            project: The project.
            defaults: Limits of projects without a quota of their own; None skips the check for all projects.

        Raises:
            QuotaExceeded: Its GPU-hours are used up, and its quota then pauses studies.
        """
        if defaults is None:
            return
        quota = self._own_quota(connection, project) or defaults
        if quota.gpu_hours_pause and quota.gpu_hours is not None:
            use = self._gpu_hours(connection, project)
            if use >= quota.gpu_hours:
                what = "GPU-hours used"
                raise _exceeded(project, "gpu_hours", quota.gpu_hours, round(use, 2), what, "leave it paused")

    def used_up(self, defaults: Quota) -> dict[str, str]:
        """Studies to pause because the GPU-hours of their project are used up, with the reason.

        Args:
            defaults: Limits of projects without their own.
        """
        active = STUDIES.c.state.in_(("PENDING", "QUEUED", "RUNNING"))
        reasons: dict[str, str] = {}
        with self._session.read() as connection:
            studies = connection.execute(sa.select(STUDIES.c.id, STUDIES.c.project).where(active, KEPT)).all()
            for project in {study.project for study in studies}:
                try:
                    self.allow_resuming(connection, project, defaults)
                except QuotaExceeded as error:
                    limit, used = error.details["allowed"], error.details["used"]
                    reason = (
                        f"project {project} has used {used:g} of its {limit:g} GPU-hours; resume it when there are more"
                    )
                    reasons |= {study.id: reason for study in studies if study.project == project}
        return reasons

    def _own_quota(self, connection: sa.Connection, project: str) -> Quota | None:
        columns = QUOTAS.c[*Quota.model_fields]
        row = connection.execute(sa.select(*columns).where(QUOTAS.c.project == project)).first()
        return None if row is None else Quota.model_validate(dict(row._mapping))

    def _use(self, connection: sa.Connection, project: str, hours: bool = True) -> Use:
        active = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(STUDIES.c.planned), 0)).where(
            STUDIES.c.project == project, STUDIES.c.state.not_in(tuple(STUDY_FINISHED)), KEPT
        )
        studies, trials = connection.execute(active).one()
        return Use(studies=studies, trials=int(trials), gpu_hours=self._gpu_hours(connection, project) if hours else 0)

    def _gpu_hours(self, connection: sa.Connection, project: str) -> float:
        query = (
            gpu_seconds(self._session.clock())
            .join(STUDIES, STUDIES.c.id == PACKS.c.study_id)
            .where(STUDIES.c.project == project, KEPT)
        )
        past = sa.select(PAST_USE.c.gpu_seconds).where(PAST_USE.c.project == project)
        seconds = connection.execute(query).scalar_one() + (connection.execute(past).scalar() or 0.0)
        return max(0.0, float(seconds) / _HOUR_S)


def gpu_seconds(now: float) -> sa.Select[Any]:
    """Query for the GPU-seconds of all packs; add conditions to select some."""
    seconds = sa.func.coalesce(PACKS.c.ended_at, now) - PACKS.c.started_at
    return sa.select(sa.func.coalesce(sa.func.sum(PACKS.c.gpus * seconds), 0.0)).where(PACKS.c.gpus > 0)


def _exceeded(project: str, what: str, limit: float, use: float, had: str, advice: str) -> QuotaExceeded:
    text = f"project {project} may have {limit:g} {what.replace('_', '-')}, and has {use:g} {had}: {advice}, "
    return QuotaExceeded(f"{text}or ask an admin for a larger quota", limit=what, allowed=limit, used=use)
