"""Every phase of a RayJob, every reason for its end, and what its pods say, as the scheduler gets to hear it."""

import pytest

from service.launchers.kubernetes_rayjob.phases import judge, tail
from service.launchers.kubernetes_rayjob.pods import Patience, quota
from service.launchers.protocol import Seen
from tests.kubernetes_launcher.made import NOW, at, job, pod

PATIENCE = Patience(unschedulable=900, image_pull=300)
RUNNING = {"jobStatus": "RUNNING", "rayJobInfo": {"startTime": at(100)}}


def seen(a_job, *pods):
    return judge(a_job, pods, PATIENCE, NOW)


@pytest.mark.parametrize(
    ("a_job", "expected"),
    [
        (job("", age=5), Seen(True)),
        (job("Initializing"), Seen(True)),
        (job("Running"), Seen(True)),
        (job("Complete", jobStatus="SUCCEEDED"), Seen(False)),
        (job("Complete", jobStatus="STOPPED"), Seen(False, "its Ray job was stopped")),
        (job("Running", suspend=True), Seen(False, "its RayJob is suspended")),
        (job("Suspending", suspend=True), Seen(False, "its RayJob is suspended")),
        (job("Suspended", suspend=True), Seen(False, "its RayJob is suspended")),
        (job("Suspending"), Seen(True, "its RayJob is being resumed")),
        (job("Suspended"), Seen(True, "its RayJob is being resumed")),
        (job("Retrying", message="again"), Seen(True, "KubeRay tries again: again")),
        (job("Waiting"), Seen(True, "KubeRay has it waiting")),
        (job("Scheduling"), Seen(True, "KubeRay has it scheduling")),
        (job("Scheduled"), Seen(True, "KubeRay has it scheduled")),
        (job("Dancing"), Seen(True, "KubeRay reports Dancing, which this version does not know")),
        (job("Running", deleted=True), Seen(False, "its RayJob is being deleted")),
        (job("ValidationFailed", message="bad name"), Seen(False, "KubeRay refuses the RayJob: bad name", True)),
        (job("Complete", suspend=True, jobStatus="SUCCEEDED"), Seen(False)),
    ],
    ids=lambda value: value["status"].get("jobDeploymentStatus", "new") if isinstance(value, dict) else "",
)
def test_phases(a_job, expected):
    assert seen(a_job) == expected


@pytest.mark.parametrize(
    ("reason", "said", "hopeless"),
    [
        ("DeadlineExceeded", "it ran longer than deadline_seconds allows: m", True),
        ("PreRunningDeadlineExceeded", "its pods did not come up in time: m", True),
        ("SubmissionFailed", "KubeRay could not submit it to Ray: m", False),
        ("AppFailed", "its process ended: m", False),
        ("JobStatusCheckTimeoutExceeded", "the head was lost: KubeRay no longer reaches it: m", False),
        (
            "JobDeploymentStatusTransitionGracePeriodExceeded",
            "its Ray job ended, and KubeRay did not notice in time: m",
            False,
        ),
        ("Novel", "its RayJob failed (Novel): m", False),
        ("", "its RayJob failed (no reason given): m", False),
    ],
)
def test_reasons_of_a_failed_rayjob(reason, said, hopeless):
    assert seen(job("Failed", reason=reason, message="m")) == Seen(False, said, hopeless)


def test_a_failed_entrypoint_shows_the_end_of_its_log():
    message = "Job entrypoint command failed with exit code 1, last available logs (truncated to 20,000 chars):\n"
    message += "\n".join(f"line {number}" for number in range(40))
    found = seen(job("Failed", reason="AppFailed", message=message))
    assert found.reason == (
        "its process ended: Job entrypoint command failed with exit code 1; "
        "its last lines: line 35 | line 36 | line 37 | line 38 | line 39"
    )
    assert len(tail(message.replace("line", "x" * 5000))) < 1100


def test_an_out_of_memory_head_is_named():
    dead = pod("head", "Failed", ended={"reason": "OOMKilled", "exitCode": 137})
    found = seen(job("Failed", reason="JobStatusCheckTimeoutExceeded", message="no answer"), dead)
    assert found.reason.endswith("; the head: it ran out of memory (limit 4Gi): give it more")
    assert seen(job("Running", **RUNNING), dead) == Seen(
        False, "the head was lost: it ran out of memory (limit 4Gi): give it more"
    )


@pytest.mark.parametrize(
    ("heads", "said"),
    [
        ([], "its pod is gone"),
        ([pod("head", cluster="another")], "its pod is gone"),
        ([pod("head", age=50)], "its pod was replaced"),
        ([pod("head", "Failed", ended={"reason": "Error", "exitCode": 1})], "it ended with exit code 1 (Error)"),
        (
            [pod("head", "Failed", reason="Evicted", message="The node was low on resource: memory.")],
            "it was evicted (Evicted: The node was low on resource: memory.)",
        ),
    ],
)
def test_a_lost_head(heads, said):
    assert seen(job("Running", **RUNNING), *heads) == Seen(False, f"the head was lost: {said}")


def test_a_head_that_has_only_just_come_is_not_lost():
    assert seen(job("Running", jobStatus="PENDING"), pod("head", age=2)) == Seen(True)
    assert seen(job("Running", **RUNNING), pod("head", age=200)) == Seen(True)
    assert seen(job("Running", **RUNNING), pod("head", age=200), pod("head", "Failed", age=400)) == Seen(True)


@pytest.mark.parametrize("kind", ["head", "worker"])
@pytest.mark.parametrize(
    ("reason", "young", "old"),
    [
        ("ErrImagePull", False, True),
        ("ImagePullBackOff", False, True),
        ("InvalidImageName", True, True),
        ("ErrImageNeverPull", True, True),
        ("CreateContainerConfigError", False, True),
        ("CreateContainerError", False, True),
        ("CrashLoopBackOff", False, False),
        ("PodInitializing", None, None),
        ("ContainerCreating", None, None),
    ],
)
def test_containers_that_do_not_start(kind, reason, young, old):
    others = [] if kind == "head" else [pod("head")]
    for age, hopeless in ((100, young), (400, old)):
        found = seen(job("Initializing"), *others, pod(kind, "Pending", age=age, waiting=(reason, "why")))
        if hopeless is None:
            assert found == Seen(True)
        else:
            what = "the head" if kind == "head" else "a worker"
            assert what in found.reason
            assert "why" in found.reason
            assert (found.alive, found.hopeless) == (not hopeless, hopeless)


@pytest.mark.parametrize(("waited", "alive"), [(10, True), (899, True), (901, False)])
def test_gpus_that_no_node_has(waited, alive):
    found = seen(job("Initializing", age=1000), pod("head"), pod("worker", "Pending", unplaced=waited))
    assert found == Seen(
        alive,
        f"no node takes a worker, for {waited} s now: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        not alive,
    )


def test_a_study_with_some_workers_goes_on_without_the_others():
    late = pod("worker", "Pending", unplaced=5000)
    assert seen(job("Running", **RUNNING), pod("head"), pod("worker"), late).alive
    assert seen(job("Running", **RUNNING), pod("head"), late).hopeless


QUOTA = (
    'Failed to create worker Pod: pods "w" is forbidden: exceeded quota: gpus, '
    "requested: requests.nvidia.com/gpu={asked}, used: requests.nvidia.com/gpu={used}, "
    "limited: requests.nvidia.com/gpu=4"
)


@pytest.mark.parametrize(("asked", "used", "never"), [(2, 3, False), (4, 1, False), (5, 0, True)])
def test_quotas_are_waited_for_unless_they_never_suffice(asked, used, never):
    text = QUOTA.format(asked=asked, used=used)
    for cluster in (
        {"conditions": [{"type": "ReplicaFailure", "status": "True", "message": text}]},
        {"reason": text},
    ):
        found = seen(job("Initializing", rayClusterStatus=cluster), pod("head"))
        assert (found.alive, found.hopeless) == (not never, never)
        assert ("can never allow" if never else "waits for the quota gpus") in found.reason
    assert quota("some other failure") is None


def test_a_quota_failure_that_is_over_counts_no_more():
    condition = {"type": "ReplicaFailure", "status": "False", "message": QUOTA.format(asked=5, used=0)}
    assert seen(job("Initializing", rayClusterStatus={"conditions": [condition]}), pod("head")) == Seen(True)


@pytest.mark.parametrize(("age", "alive"), [(59, True), (61, True), (901, False)])
def test_an_operator_that_is_not_there(age, alive):
    found = seen(job("", age=age))
    assert (found.alive, found.hopeless) == (alive, not alive)
    assert bool(found.reason) is (age > 60)
    if found.reason:
        assert "is its operator running" in found.reason
