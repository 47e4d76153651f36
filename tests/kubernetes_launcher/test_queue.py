"""Studies that wait in a queue of Kueue: what is sent, what is said of them, what the scheduler decides."""

import pytest

from driftline.errors import InvalidSpec
from service.launchers.base import Seen
from service.launchers.kubernetes import kueue, manifests
from service.launchers.kubernetes.config import Config
from service.launchers.kubernetes.pod_problems import Patience
from service.launchers.kubernetes.rayjob_status import judge, waits
from service.scheduler.reconcile import Forget, Launched, Lost, Queue, Settle, Start, Stop, reconcile
from service.store.leases import Driven
from tests.kubernetes_launcher.made import FULL, NOW, STUDY, at, config, job, launch

FIXED = {**FULL, "workers": {**FULL["workers"], "min": 4, "max": 4}, "queue": "gpu-queue"}
PATIENCE = Patience(900, 300)


def sent(**values):
    return manifests.rayjob(
        Config.from_json({**FIXED, **values}), launch(), "n", "ns", url="http://a", folder="s3://b/x"
    )


def test_a_rayjob_in_a_queue_starts_suspended_and_names_queue_and_priority():
    made = sent(queue_priority_class="low")
    assert made["spec"]["suspend"] is True
    assert made["spec"]["shutdownAfterJobFinishes"] is True
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpu-queue"
    assert made["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "low"
    cluster = made["spec"]["rayClusterSpec"]
    assert "enableInTreeAutoscaling" not in cluster
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):  # Kueue would queue the pods, too
        assert not any(key.startswith("kueue") for key in group["template"]["metadata"]["labels"])
    assert all(group["groupName"] != "head" for group in cluster["workerGroupSpecs"])  # Kueue's name for the head's


def test_without_a_queue_nothing_is_kueues():
    made = sent(queue=None)
    assert made["spec"]["suspend"] is False
    assert not any(key.startswith("kueue") for key in made["metadata"]["labels"])


def test_the_secret_keeps_the_name_that_waiting_pods_read():
    first = {**sent(), "metadata": {**sent()["metadata"], "uid": "u"}}
    one, two = (manifests.secret(config(), launch(attempt=attempt), first) for attempt in (1, 2))
    assert one["metadata"]["name"] == two["metadata"]["name"] == manifests.secret_name(first)
    assert one["stringData"] == two["stringData"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"queue": "q", "workers": {"min": 1, "max": 4}}, "workers: must have min equal to max in a queue"),
        ({"queue_priority_class": "low"}, "queue_priority_class: must have queue set as well"),
        ({"labels": {kueue.QUEUE: "q"}}, "labels: must not hold kueue.x-k8s.io/queue-name"),
        ({"queue": "Not A Name"}, "queue: must be "),
    ],
)
def test_settings_that_kueue_would_refuse_are_refused_here(values, said):
    with pytest.raises(InvalidSpec) as caught:
        config(**values)
    assert str(caught.value).startswith(said)


def test_an_elastic_job_may_scale():
    """Kueue's ElasticJobsViaWorkloadSlices: kueue#7605."""
    made = config(queue="q", workers={"min": 1, "max": 4}, annotations={kueue.ELASTIC: "true"})
    assert manifests.rayjob(made, launch(), "n", "ns", url="u", folder="f")["spec"]["rayClusterSpec"][
        "enableInTreeAutoscaling"
    ]


def queued(phase="", *, suspend=True, age=300):
    found = job(phase, suspend=suspend, age=age)
    found["metadata"]["labels"] = {kueue.QUEUE: "gpu-queue"}
    return found


@pytest.mark.parametrize("phase", ["", "Suspended", "Suspending", "Running"])
def test_one_that_waits_is_alive_whatever_its_phase(phase):
    assert judge(queued(phase), (), PATIENCE, NOW) == Seen(True, "it waits in the queue gpu-queue", waiting=True)


def test_one_that_runs_has_ended_or_that_somebody_has_suspended_does_not_wait():
    assert not waits(queued("Running", suspend=False))
    assert not waits(queued("Complete"))
    assert not waits(queued("Failed"))
    assert not waits(job("Suspended", suspend=True))
    assert judge(job("Suspended", suspend=True), (), PATIENCE, NOW) == Seen(False, "somebody has suspended its RayJob")


def workload(active=True, **conditions):
    made = [
        {"type": key, "status": status, "reason": reason, "message": message}
        for key, (status, reason, message) in conditions.items()
    ]
    metadata = {"name": "w", "creationTimestamp": at(100)}
    return {"metadata": metadata, "spec": {"active": active}, "status": {"conditions": made}}


FULL_QUEUE = "couldn't assign flavors to pod set packs: insufficient unused quota for nvidia.com/gpu"
REASONS = [
    ([workload()], "it waits in the queue gpu-queue"),
    ([workload(QuotaReserved=("False", "Pending", FULL_QUEUE))], f"it waits in the queue gpu-queue: {FULL_QUEUE}"),
    (
        [workload(Evicted=("True", "Preempted", "for another"), QuotaReserved=("False", "Pending", ""))],
        "it was stopped by Kueue (Preempted) and waits in the queue gpu-queue again: for another",
    ),
    (
        [workload(Evicted=("True", "Preempted", "for another"), QuotaReserved=("False", "Pending", FULL_QUEUE))],
        f"it was stopped by Kueue (Preempted) and waits in the queue gpu-queue again: {FULL_QUEUE}",
    ),
    (
        [workload(QuotaReserved=("True", "QuotaReserved", ""))],
        "it has its quota in the queue gpu-queue and waits for Kueue's admission checks",
    ),
    (
        [workload(QuotaReserved=("True", "", ""), Admitted=("True", "", "")), workload(active=False)],
        "it was admitted by the queue gpu-queue",
    ),
    (
        [workload(active=False, Evicted=("True", "Deactivated", "The workload is deactivated"))],
        "Kueue has taken it out of the queue gpu-queue until somebody puts it back: The workload is deactivated",
    ),
]


@pytest.mark.parametrize(("workloads", "said"), REASONS)
def test_why_it_waits(workloads, said):
    assert kueue.reason(queued(), workloads[:1], NOW) == said


def test_a_kueue_that_takes_no_notice_is_named():
    assert kueue.reason(queued(age=10), [], NOW) == "it waits in the queue gpu-queue"
    assert "is Kueue running, and does it manage RayJobs" in kueue.reason(queued(age=61), [], NOW)


# ---- what the scheduler makes of it


def study(state="RUNNING", **values):
    defaults = {"reason": "", "attempt": 1, "held": False, "lost": False, "deaths": 0}
    return Driven(id=STUDY, project="default", name="a", state=state, **{**defaults, **values})


def decided(found, *, attempt=1, since=0.0, reason="it waits", now=1e6):
    about = {"cluster": STUDY, "project": "default", "study": "a", "waiting": True}
    ours = Launched(alive=True, attempt=attempt, since=since, reason=reason, **about)
    return reconcile([found] if found else [], {STUDY: ours}, {}, now)


def test_waiting_takes_as_long_as_it_takes_and_says_so():
    assert decided(study("PENDING", attempt=0)) == [Queue(STUDY, "it waits")]
    assert decided(study("QUEUED", attempt=0, reason="it waits")) == []


def test_a_study_that_lost_its_place_is_not_blamed_and_finds_its_rayjob_again():
    assert decided(study(held=True)) == []  # its lease still runs
    assert decided(study(lost=True)) == [Lost(STUDY, 1, "it waits", counted=False), Forget(STUDY, "it waits")]
    assert decided(study()) == [Forget(STUDY, "it waits")]  # the driver had let go when it was told to end
    assert reconcile([study()], {}, {}, 1e6) == [Start(STUDY, 2)]


@pytest.mark.parametrize(("state", "end"), [("PAUSING", "PAUSED"), ("CANCELLING", "CANCELLED")])
def test_a_study_that_waits_can_be_paused_and_cancelled(state, end):
    assert decided(study(state, attempt=0)) == [Stop(STUDY, "its study needs no driver")]
    assert decided(study(state, lost=True))[1] == Stop(STUDY, "its study needs no driver")
    assert reconcile([study(state)], {}, {}, 0) == [Settle(STUDY, end, "")]
    assert decided(None) == [Stop(STUDY, "its study needs no driver")]  # it has ended or is paused already
