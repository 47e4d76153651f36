"""The loop that carries out what `reconcile` decides, in a thread."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from driftline.errors import DriftlineError, Forbidden, InvalidSpec, Unavailable
from driftline.wire.access import Quota
from driftline.wire.ids import holder
from service.launchers.base import Launch, Launcher, Seen
from service.pauses import Pauses
from service.scheduler.cleanup import Cleanup
from service.scheduler.gpu_hours import GpuHours
from service.scheduler.reconcile import (
    Action,
    Forget,
    Kill,
    Launched,
    Lost,
    Note,
    Queue,
    Settle,
    Start,
    Stop,
    reconcile,
)
from service.store.leases import Driven
from service.store.store import Store

_LOG = logging.getLogger(__name__)
CLOSE_S = 5.0
"""How long `close` waits for a look that is in progress."""

_LOCK = "scheduler"
_LOCK_S = 30.0
_COLLECT_S = 60.0
_JUMP_S = 10.0
"""If the clock moves this much more than time has passed, it was set, or the machine slept.

Less than what is left of a lease when its driver renews it (20 of 30 seconds), so that a smaller step ends no lease.
"""
_ENDED_S = 24 * 3600.0
_ENDED_MOST = 200


class Scheduler:
    """Gives every study its driver, one study at a time on a Ray cluster.

    Several processes may run a scheduler over the same store: only the one that has the store's lock acts. When it gets
    the lock it asks the launcher what is running, so that it starts no driver twice.

    Args:
        store: The database.
        launcher: Starts drivers.
        token: Gives a driver's token for (study id, project).
        cluster: Gives the Ray cluster that a study would run on; None if it has its own. By default all share one.
        per_project: How many studies of one project may run at once; None sets no limit.
        every_s: Seconds between two polls of the studies.
        start_seconds: A driver that has not acquired its study within this time is lost.
        back_seconds: How long a live driver whose lease has expired may stay silent while the API answers; then it is
            killed and another one is started.
        answers: Whether the API answers drivers.
        steady: A monotonic clock in seconds, which shows when the store's clock is set.
        checkpoints: Path or URL of the folder of checkpoints, where it removes those that no study continues from; None
            if it cannot reach this folder.
        quota: The limits of projects without their own; no limits by default.

    Attributes:
        looks: How often it has looked at the studies, with or without the lock.
        looked_at: Time of its last look, in seconds since 1970; 0 before the first.
    """

    def __init__(
        self,
        store: Store,
        launcher: Launcher,
        token: Callable[[str, str], str],
        *,
        cluster: Callable[[Driven], str | None] = lambda study: "ray",
        per_project: int | None = None,
        every_s: float = 1.0,
        start_seconds: float = 600.0,
        back_seconds: float = 60.0,
        answers: Callable[[], bool] = lambda: True,
        steady: Callable[[], float] = time.monotonic,
        checkpoints: str | None = None,
        quota: Quota | None = None,
    ) -> None:
        self._steady = steady
        self._store = store
        self._launcher = launcher
        self._token = token
        self._cluster = cluster
        self._per_project = per_project
        self._every_s = every_s
        self._start_seconds = start_seconds
        self._back_seconds = back_seconds
        self._answers = answers
        self._unanswered = float("-inf")  # when the API last failed to answer, on the store's clock
        self._started: dict[str, Launched] = {}  # by study id
        self._unsure: set[str] | None = None  # studies whose launcher has not answered yet; None without the lock
        self._pauses = Pauses(steady)
        self._gpu_hours = GpuHours(store, quota or Quota(), steady)
        self._cleanup = Cleanup(store, launcher, checkpoints, quota or Quota(), steady)
        self._collected = float("-inf")
        self._ahead: float | None = None  # by how much the store's clock is ahead of the monotonic one
        self._calm_at = float("-inf")
        self._name = f"{holder()}/{id(self):x}"
        self._stop = threading.Event()
        self._look = threading.Event()
        self._thread: threading.Thread | None = None
        self.looks = 0
        self.looked_at = 0.0

    def start(self) -> None:
        """Run in a thread until `close`."""
        self._thread = threading.Thread(target=self._run, name="driftline-scheduler", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Look at once instead of after the pause."""
        self._look.set()

    def close(self) -> None:
        """Stop the loop and release the lock; drivers keep running."""
        self._stop.set()
        self._look.set()
        if self._thread is not None:
            self._thread.join(CLOSE_S)
        try:
            self._store.locks.release(_LOCK, self._name)
        except DriftlineError as error:
            _LOG.warning("the scheduler's lock could not be released, and will expire: %s", error)

    @property
    def acting(self) -> bool:
        """Whether this scheduler had the lock at its last look."""
        return self._unsure is not None

    def step(self) -> list[Action]:
        """Look once and act; returns the actions. Does nothing if another scheduler has the lock."""
        locked = self._store.locks.take(_LOCK, self._name, _LOCK_S)
        self.looks, self.looked_at = self.looks + 1, self._store.session.clock()
        if not locked:
            self._stand_back()
            return []
        if not self._calm():
            return []
        self._gpu_hours.step()
        studies = {study.id: study for study in self._store.leases.driven()}
        clusters = {study.id: self._cluster(study) or study.id for study in studies.values()}
        now = self._store.session.clock()
        for study_id, driver in self._started.items():
            self._started[study_id] = self._seen(study_id, driver, studies.get(study_id), now)
        unsure = self._adopt(studies, clusters, now)
        if (
            any(driver.alive and driver.silent_since is not None for driver in self._started.values())
            and not self._answers()
        ):
            self._unanswered = now
        self._pauses.keep([study.id for study in studies.values() if study.state not in ("PAUSING", "CANCELLING")])
        actions = reconcile(
            [study for study in studies.values() if study.held or study.lost or not self._pauses.holds(study.id)],
            {**unsure, **self._started},
            clusters,
            now,
            start_seconds=self._start_seconds,
            back_seconds=self._back_seconds,
            unanswered=self._unanswered,
            served=self._store.studies.last_started() if len(studies) > 1 else None,
            per_project=self._per_project,
        )
        for action in actions:
            if not self._store.locks.keep(_LOCK, self._name, _LOCK_S):
                _LOG.warning("looking at the studies took so long that another scheduler acts now")
                self._stand_back()
                return []
            try:
                self._do(action, studies.get(action.study_id), clusters.get(action.study_id, ""))
            except (Forbidden, Unavailable) as error:  # the next look tries it again
                _LOG.warning("%s cannot be done at the moment: %s", action, error)
            except DriftlineError as error:  # the study has changed since the look: the next one sees that
                _LOG.info("%s no longer applies: %s", action, error)
        self._collect()
        self._cleanup.step()
        return actions

    def _stand_back(self) -> None:
        """Forgets what it saw, because another scheduler acts and may change everything."""
        self._started.clear()
        self._pauses.keep(())
        self._unsure = None

    def _calm(self) -> bool:
        """Whether leases can be judged: after the clock was set, only once drivers have had time to renew them."""
        running = self._steady()
        ahead = self._store.session.clock() - running
        moved = 0.0 if self._ahead is None else ahead - self._ahead
        self._ahead = ahead
        if abs(moved) > _JUMP_S:
            self._calm_at = running + self._store.session.lease_seconds
            self._unanswered += moved
            _LOG.warning("the clock was set by %.0f s: leases are not judged until all drivers could renew them", moved)
            for study_id, driver in self._started.items():
                idle = None if driver.idle_since is None else driver.idle_since + moved
                silent = None if driver.silent_since is None else driver.silent_since + moved
                since = driver.since + moved
                self._started[study_id] = replace(driver, since=since, idle_since=idle, silent_since=silent)
        return running >= self._calm_at

    def _ask(self, study_id: str) -> Seen | None:
        """The driver as its launcher sees it; None if the launcher cannot say for now."""
        try:
            return self._launcher.seen(study_id)
        except DriftlineError as error:
            _LOG.warning("the launcher cannot report the status of the driver of study %s: %s", study_id, error)
            return None

    def _seen(self, study_id: str, driver: Launched, study: Driven | None, now: float) -> Launched:
        """The driver as its launcher sees it now; unchanged if the launcher cannot say."""
        waiting = study is not None and (study.held or study.lost or study.attempt < driver.attempt)
        idle_since = None if waiting else driver.idle_since or now
        silent_since = (driver.silent_since or now) if study is not None and study.lost else None
        seen = self._ask(study_id)
        changes = {} if seen is None else vars(seen)
        since = now if (seen or driver).waiting else driver.since
        return replace(driver, **changes, since=since, idle_since=idle_since, silent_since=silent_since)

    def _adopt(self, studies: dict[str, Driven], clusters: dict[str, str], now: float) -> dict[str, Launched]:
        """Takes over the drivers that are already running, once after this scheduler got the lock.

        Returns:
            Drivers that may be running, because their launcher does not answer. They are left alone.
        """
        if self._unsure is None:
            self._unsure = set(studies) | set(self._store.studies.ended_since(now - _ENDED_S, _ENDED_MOST))
        unanswered: dict[str, Launched] = {}
        for study_id in sorted(self._unsure):
            study = studies.get(study_id)
            attempt = 0 if study is None else study.attempt + (not (study.held or study.lost))
            name, cluster = (study.name, clusters[study_id]) if study else (study_id, study_id)
            project = study.project if study else ""
            seen = self._ask(study_id)
            driver = Launched(
                **vars(seen or Seen(True)),
                attempt=attempt,
                since=now,
                cluster=cluster,
                project=project,
                study=name,
                silent_since=now if study is not None and study.lost else None,
                adopted=True,
            )
            if seen is None:
                unanswered[study_id] = driver
                continue
            self._unsure.discard(study_id)
            if seen.alive:
                _LOG.info("the driver of study %s runs already", study_id)
                self._started[study_id] = driver
        return unanswered

    def _do(self, action: Action, study: Driven | None, cluster: str) -> None:
        study_id = action.study_id
        match action:
            case Start() if study is not None:
                self._start(study, action.attempt, cluster)
            case Queue():
                self._store.leases.settle(study_id, "QUEUED", action.reason)
            case Note():
                self._store.leases.note(study_id, action.attempt, action.reason)
            case Lost():
                self._store.leases.lost(
                    study_id, action.attempt, action.reason, counted=action.counted, early=action.early
                )
            case Stop():
                self._launcher.stop(study_id)
                self._started.pop(study_id, None)
            case Kill():
                if study_id in self._started and not self._started[study_id].killed:
                    self._started[study_id] = replace(self._started[study_id], killed=True)
                    _LOG.warning("the driver of study %s is killed: %s", study_id, action.reason)
                self._launcher.kill(study_id)
            case Forget():
                self._started.pop(study_id, None)
            case Settle():
                self._store.leases.settle(study_id, action.state, action.reason)

    def _start(self, study: Driven, attempt: int, cluster: str) -> None:
        """Starts a driver. If its launcher cannot do so for now, the study waits, and no driver is counted as lost."""
        try:
            launch = self._launch(study, attempt)
            self._launcher.start(launch)
        except InvalidSpec as error:  # every other start would fail in the same way
            self._store.leases.settle(study.id, "FAILED", error.message)
        except DriftlineError as error:
            self._pauses.lengthen(study.id)
            _LOG.warning("the driver of study %s cannot be started at the moment: %s", study.id, error)
            reason = f"it cannot be started at the moment: {error.message}"
            if (study.state, study.reason) != ("QUEUED", reason):
                self._store.leases.settle(study.id, "QUEUED", reason)
        except Exception as error:
            _LOG.exception("the driver of study %s could not be started", study.id)
            self._store.leases.lost(study.id, study.attempt, f"it could not be started: {error}", early=True)
            self._store.leases.settle(study.id, "QUEUED", f"it could not be started: {error}; it is started again")
        else:
            self._pauses.end(study.id)
            self._started[study.id] = Launched(
                alive=True,
                attempt=attempt,
                since=self._store.session.clock(),
                cluster=cluster,
                project=study.project,
                study=study.name,
            )

    def _launch(self, study: Driven, attempt: int) -> Launch:
        document = self._store.studies.get(study.id).study
        resources, program = document.resources, document.program
        secrets = () if program is None else tuple(program.secrets)
        image = None if program is None else program.image
        rule = "must be left out: this service's launcher has none for programs"
        if secrets and not self._launcher.secrets:
            raise InvalidSpec("program.secrets", rule)
        if image is not None and not self._launcher.images:
            raise InvalidSpec("program.image", rule)
        return Launch(
            study_id=study.id,
            name=study.name,
            project=study.project,
            token=self._token(study.id, study.project),
            attempt=attempt,
            cpus=resources.cpus,
            gpus=None if resources.gpu == "auto" else resources.gpu,
            nodes=resources.nodes,
            pool=resources.pool,
            secrets=secrets,
            image=image,
        )

    def _collect(self) -> None:
        """Once a minute, makes the launcher end remaining drivers of studies that were deleted or cancelled."""
        if time.monotonic() - self._collected < _COLLECT_S:
            return
        self._collected = time.monotonic()
        try:
            self._launcher.collect(self._store.studies.not_cancelled())
        except DriftlineError as error:
            _LOG.warning("drivers of deleted or cancelled studies could not be ended: %s", error)

    def _run(self) -> None:
        logged = ""  # about a failure that lasts, only once
        while not self._stop.is_set():
            try:
                self.step()
            except DriftlineError as error:
                if logged != (logged := str(error)):
                    _LOG.warning("the scheduler cannot look at the studies, and goes on trying: %s", error)
            except Exception as error:
                if logged != (logged := repr(error)):
                    _LOG.exception("the scheduler failed; it continues")
            else:
                if logged:
                    _LOG.info("the scheduler looks at the studies again")
                logged = ""
            self._look.wait(self._every_s)
            self._look.clear()
