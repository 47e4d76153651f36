"""Pausing studies when the GPU-hours of their project are used up."""

from driftline.wire.access import Quota
from service.scheduler.gpu_hours import EVERY_S
from service.store.store import Store

from .conftest import SPEC, Clock
from .scheduler_setup import SQLITE, FakeLauncher, scheduler
from .store_setup import packed

pytestmark = SQLITE
REASON = "project default has used 1 of its 1 GPU-hours; resume it when there are more"


def training(store: Store, clock: Clock, project: str = "default") -> str:
    """A study that uses a GPU from now on."""
    clock.now += 1
    return packed(store, gpus=1.0, project=project)[0]


def states(store: Store) -> dict[str, tuple[str, str]]:
    return {study.id: (study.state, study.reason) for study in store.studies.find()}


def test_studies_stop_cleanly_and_say_why(store: Store, clock: Clock) -> None:
    store.quotas.set("free", Quota(gpu_hours=1))
    study, other, free = (training(store, clock, project) for project in ("default", "other", "free"))
    waiting = store.studies.create(SPEC, "f" * 64).id
    launcher = FakeLauncher(running=dict.fromkeys((study, other, free), ("", 1)))
    quota = Quota(gpu_hours=1, gpu_hours_pause=True)
    store.quotas.set("other", Quota(gpu_hours=5, gpu_hours_pause=True))
    loop = scheduler(store, launcher, quota=quota)
    loop.step()
    clock.now += 3600.0
    for name in (study, other, free):
        store.leases.heartbeat(name, 1)
    loop.step()
    found = states(store)
    assert found[study] == ("PAUSING", REASON)
    assert (found[other], found[free]) == (("RUNNING", ""), ("RUNNING", ""))
    assert found[waiting] == ("PAUSED", REASON)  # it is not even started
    assert store.leases.heartbeat(study, 1) == "pause"
    store.leases.release(study, 1, "PAUSED")
    assert states(store)[study] == ("PAUSED", REASON)
    events = store.audit.find(action="study.pause")
    assert {event.target: event.details for event in events} == {
        study: {"was": "RUNNING", "reason": REASON},
        waiting: {"was": "QUEUED", "reason": REASON},
    }
    assert {event.actor_name for event in events} == {""}
    clock.now += EVERY_S
    loop.step()
    assert len(store.audit.find(action="study.pause")) == 2


def test_a_study_whose_driver_dies_while_it_is_paused_says_why_too(store: Store, clock: Clock) -> None:
    study = training(store, clock)
    launcher = FakeLauncher(running={study: ("", 1)})
    loop = scheduler(store, launcher, quota=Quota(gpu_hours=0, gpu_hours_pause=True))
    loop.step()
    assert store.studies.get(study).state == "PAUSING"
    launcher.running.clear()
    for _ in range(3):
        loop.step()
    assert states(store)[study][0] == "PAUSED"
    assert states(store)[study][1].startswith("project default has used 0 of its 0 GPU-hours")
