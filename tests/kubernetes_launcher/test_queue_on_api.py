"""Queues of Kueue on a real API server: KubeRay's CRDs, and a stand-in that does to RayJobs what Kueue does."""

import pytest

from service.launchers.base import Seen
from service.launchers.kubernetes import launcher as kubernetes
from service.launchers.kubernetes.naming import job_name
from service.scheduler.loop import Scheduler
from service.scheduler.reconcile import Forget, Lost, Start
from service.store.store import Store
from tests.kubernetes_launcher.kueue_stand_in import Kueue
from tests.kubernetes_launcher.made import STUDY, launch
from tests.kubernetes_launcher.place import Place
from tests.kubernetes_launcher.plane import OWN_CERTIFICATE
from tests.service.conftest import SPEC, Clock

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), OWN_CERTIFICATE]
FULL = "couldn't assign flavors to pod set packs: insufficient unused quota"
WAITS = f"it waits in the queue gpus: {FULL}"
AGAIN = "it was stopped by Kueue (Preempted) and waits in the queue gpus again: for a better one"


@pytest.fixture
def place(plane, monkeypatch):
    monkeypatch.setattr(kubernetes, "_ASK_KUEUE_S", 0.0)
    made = Place(plane, queue="gpus")
    yield made
    made.close()


def test_a_cluster_without_kueue_is_told_apart(place):
    """Before the stand-in is there."""
    place.launcher.start(launch())
    said = "it waits in the queue gpus, but this cluster has no Kueue (kueue.x-k8s.io): install it"
    assert place.launcher.seen(STUDY) == Seen(True, said, waiting=True)


def test_kueue_alone_says_when_a_rayjob_runs(plane, place):
    Kueue.install(plane)
    cluster, name = Kueue(plane, place.namespace), job_name(STUDY, 1)
    place.launcher.start(launch())
    cluster.queue(name, FULL)
    place.until(STUDY, Seen(True, WAITS, waiting=True))
    before = place.jobs()[name]["metadata"]
    assert place.jobs()[name]["spec"]["suspend"] is True
    place.launcher.start(launch())
    place.another().start(launch())
    assert place.jobs()[name]["metadata"]["resourceVersion"] == before["resourceVersion"], "nothing was written"

    cluster.admit(name)
    plane.status(place.namespace, name, jobDeploymentStatus="Initializing")
    place.until(STUDY, Seen(True))
    place.launcher.start(launch())
    assert place.jobs()[name]["spec"]["suspend"] is False, "we must not take its turn away"

    cluster.preempt(name, "for a better one")
    place.until(STUDY, Seen(True, AGAIN, waiting=True))
    place.launcher.start(launch(attempt=2))
    kept = place.jobs()
    assert list(kept) == [name], "it keeps its place"
    assert kept[name]["metadata"]["uid"] == before["uid"]
    assert kept[name]["metadata"]["labels"]["driftline.io/attempt"] == "2"
    assert kept[name]["spec"]["suspend"] is True, "we must not give it a turn"
    assert list(place.secrets()) == [kept[name]["spec"]["rayClusterSpec"]["authOptions"]["secretName"]]
    cluster.admit(name)
    plane.status(place.namespace, name, jobDeploymentStatus="Initializing")
    place.until(STUDY, Seen(True))


def test_a_study_that_ran_before_there_was_a_queue_is_queued_anew(plane, place):
    before = Place(plane)
    before.namespace, before.launcher = place.namespace, None
    old = before.another()
    old.start(launch())
    place.launcher.start(launch(attempt=2))
    assert list(place.jobs()) == [job_name(STUDY, 2)]
    assert place.jobs()[job_name(STUDY, 2)]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
    before.close()


def test_a_study_in_a_queue_from_the_scheduler_to_its_second_turn(plane, place, tmp_path):
    """Waiting for hours is no fault, a turn that is taken away no death, and a study that waits can be cancelled."""
    Kueue.install(plane)
    cluster, clock = Kueue(plane, place.namespace), Clock()
    store = Store(tmp_path / "s.db", clock=clock)
    study = store.studies.create(SPEC, "f" * 64).id
    name = job_name(study, 1)
    options = {"cluster": lambda one: None, "start_seconds": 600, "steady": clock}
    loop = Scheduler(store, place.launcher, lambda one, project: f"driver.{one}", **options)
    assert [type(action) for action in loop.step()] == [Start]
    cluster.queue(name, FULL)
    place.until(study, Seen(True, WAITS, waiting=True))
    for _ in range(10):
        clock.now += 100
        loop.step()
    assert (store.studies.get(study).state, store.studies.get(study).reason) == ("QUEUED", WAITS)
    assert list(place.jobs()) == [name]

    cluster.admit(name)
    plane.status(place.namespace, name, jobDeploymentStatus="Initializing")
    place.until(study, Seen(True))
    loop.step()
    store.leases.acquire(study, "head/1")
    assert loop.step() == []
    cluster.preempt(name, "for a better one")
    place.until(study, Seen(True, AGAIN, waiting=True))
    assert loop.step() == []  # its lease still runs
    clock.now += 40
    assert loop.step() == [Lost(study, 1, AGAIN, counted=False), Forget(study, AGAIN)]
    assert loop.step() == [Start(study, 2)]
    loop.step()
    assert (store.studies.get(study).state, store.studies.get(study).reason) == ("QUEUED", AGAIN)
    assert store.leases.driven()[0].deaths == 0
    assert [(which, job["spec"]["suspend"]) for which, job in place.jobs().items()] == [(name, True)]

    store.studies.intend(study, "cancel")
    loop.step()
    loop.step()
    assert store.studies.get(study).state == "CANCELLED"
    assert place.jobs() == {}
    loop.close()
    store.close()
