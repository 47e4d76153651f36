"""A scheduler over a launcher that starts nothing."""

from collections.abc import Callable, Collection
from typing import Any

import pytest

from driftline.errors import Unavailable
from service.launchers.base import Launch, Seen
from service.scheduler.loop import Scheduler
from service.store.store import Store

from .conftest import SPEC, Clock

SQLITE = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
"""SQLite alone: what differs between databases is tested with the store."""


class FakeLauncher:
    """Counts; drivers live until they are ended by hand. What runs may be shared with another one."""

    def __init__(self, running: dict[str, tuple[str, int]] | None = None) -> None:
        self.running: dict[str, tuple[str, int]] = {} if running is None else running
        self.stopped: list[str] = []
        self.started: list[str] = []
        self.launches: list[Launch] = []
        self.killed: list[str] = []
        self.forgotten: list[str] = []
        self.undying = False
        self.known: Collection[str] = ()
        self.says: dict[str, Seen] = {}
        self.away = False
        self.refuses: Callable[[Launch], Exception | None] = lambda launch: None

    def start(self, launch: Launch) -> None:
        if error := self.refuses(launch):
            raise error
        self.launches.append(launch)
        self.started.append(launch.study_id)
        self.running[launch.study_id] = (launch.token, launch.attempt)

    def seen(self, study_id: str) -> Seen:
        if self.away:
            raise Unavailable("the cluster is away")
        return self.says.get(study_id, Seen(study_id in self.running))

    def stop(self, study_id: str) -> None:
        self.stopped.append(study_id)
        self.running.pop(study_id, None)

    def kill(self, study_id: str) -> None:
        self.killed.append(study_id)
        if not self.undying:
            self.running.pop(study_id, None)

    def collect(self, study_ids: Collection[str]) -> None:
        self.known = study_ids

    def forget(self, study_id: str) -> None:
        self.forgotten.append(study_id)

    def close(self) -> None:
        pass


def scheduler(store: Store, launcher: FakeLauncher, **options: Any) -> Scheduler:
    """One whose clocks agree: what the store's clock is moved by has passed."""
    options = {"steady": store.session.clock, **options}
    return Scheduler(store, launcher, lambda study_id, project: f"token {study_id} {project}", **options)


def make(store: Store, clock: Clock) -> str:
    clock.now += 1
    return store.studies.create(SPEC, "f" * 64).id


def driving(store: Store, clock: Clock, launcher: FakeLauncher, **options: Any) -> tuple[str, Scheduler]:
    """A study whose driver runs, elsewhere, and the scheduler that started it."""
    name = make(store, clock)
    loop = scheduler(store, launcher, **options)
    loop.step()
    store.leases.acquire(name, "elsewhere/1")
    return name, loop
