"""Every phase of a RayJob, every reason for its end, and what its pods say, as the scheduler gets to hear it."""

import threading

import pytest

from service.launchers.base import Seen
from service.launchers.kubernetes.api_server import Expired
from service.launchers.kubernetes.informer import Mirror
from service.launchers.kubernetes.pod_problems import Patience, quota, starved
from service.launchers.kubernetes.rayjob_status import judge, tail
from tests.kubernetes_launcher.made import NOW, at, job, pod
from tests.waiting import until

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
        (job("Running", suspend=True), Seen(False, "somebody has suspended its RayJob")),
        (job("Suspending", suspend=True), Seen(False, "somebody has suspended its RayJob")),
        (job("Suspended", suspend=True), Seen(False, "somebody has suspended its RayJob")),
        (job("Suspending"), Seen(True, "it was admitted: KubeRay resumes its RayJob")),
        (job("Suspended"), Seen(True, "it was admitted: KubeRay resumes its RayJob")),
        (job("Retrying", message="again"), Seen(True, "KubeRay tries again: again")),
        (job("Waiting"), Seen(True, "its RayJob is waiting")),
        (job("Scheduling"), Seen(True, "its RayJob is scheduling")),
        (job("Scheduled"), Seen(True, "its RayJob is scheduled")),
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


OOM = {"reason": "OOMKilled", "exitCode": 137}
LOST = "a worker was lost: it ran out of memory (limit 4Gi): give it more"


def restarted(**status):
    """A worker whose container was started again, as some clusters' webhooks have it."""
    found = pod("worker", **status)
    found["status"]["containerStatuses"][0]["lastState"] = {"terminated": OOM}
    return found


def test_an_out_of_memory_worker_is_named_and_the_study_goes_on():
    dead = pod("worker", "Failed", ended=OOM)
    running = job("Running", **RUNNING)
    assert seen(running, pod("head"), pod("worker"), dead) == Seen(True, LOST)
    assert seen(running, pod("head"), restarted()) == Seen(True, LOST)
    again = LOST.replace("lost", "lost (5 so far)")
    assert seen(running, pod("head"), *[dead] * 4, restarted()) == Seen(True, again)
    assert seen(running, pod("head"), *[dead] * 5) == Seen(True, again)  # its driver says when a trial is given up
    late = pod("worker", "Pending", unplaced=20)
    placed = "no node takes a worker, for 20 s now: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    assert seen(running, pod("head"), dead, late) == Seen(True, f"{LOST}; {placed}")


def test_a_worker_that_ended_otherwise_or_elsewhere_is_not_out_of_memory():
    running = job("Running", **RUNNING)
    assert seen(running, pod("head"), pod("worker", "Failed", ended={"reason": "Error", "exitCode": 137})) == Seen(True)
    assert seen(running, pod("head"), pod("worker", "Failed", cluster="an earlier one", ended=OOM)) == Seen(True)
    assert seen(job("", age=5), pod("worker", "Failed", cluster="an earlier one", ended=OOM)) == Seen(True)


@pytest.mark.parametrize("kind", ["head", "worker"])
def test_pods_that_do_not_even_hold_ray_are_hopeless_from_the_third_on(kind):
    others = [] if kind == "head" else [pod("head")]
    fresh, dead = pod(kind, "Pending"), pod(kind, "Failed", ended=OOM)
    lost = LOST if kind == "worker" else LOST.replace("a worker", "the head")
    starting = job("Initializing")
    assert seen(starting, *others, fresh, dead) == Seen(True, lost)
    assert seen(starting, *others, fresh, dead, dead) == Seen(True, lost.replace("lost", "lost (2 so far)"))
    hopeless = Seen(False, lost.replace("lost", "lost (3 so far)"), True)
    assert seen(starting, *others, fresh, dead, dead, dead) == hopeless
    assert seen(starting, *others, pod(kind), dead, dead, dead).alive


class Scripted:
    """An API server that lists and tells what it is given."""

    def __init__(self, listed, told=()):
        self._listed, self._told = list(listed), list(told)
        self.over = threading.Event()

    def items(self, kind, selector):
        return self._listed.pop(0), "1"

    def watch(self, kind, selector, version, seconds):
        while self._told:
            yield self._told.pop(0)
        if self._listed:
            raise Expired("the version is too old")
        self.over.wait(30)


def named(a_pod, uid, version):
    """A pod as the API server has it."""
    a_pod["metadata"] |= {"uid": uid, "resourceVersion": str(version)}
    return a_pod


def mirrored(api, enough):
    """What a mirror comes to show."""
    mirror = Mirror(api, "pods", "", remembered=starved)
    until(lambda: enough(mirror.items()), why=mirror.items)
    found = mirror.items()
    mirror.close()
    api.over.set()
    return found


def test_a_worker_that_kuberay_has_removed_is_told_of_all_the_same():
    dying = named(pod("worker", ended=OOM), "one", 2)  # its phase may come too late, or never
    other = named(pod("worker", "Failed", ended={"reason": "Error", "exitCode": 1}), "two", 4)
    fresh = named(pod("worker"), "three", 6)
    api = Scripted(
        [[named(pod("worker"), "one", 1)]],
        [("MODIFIED", dying), ("DELETED", dying), ("ADDED", other), ("DELETED", other), ("ADDED", fresh)],
    )
    found = mirrored(api, lambda items: any(item["metadata"]["uid"] == "three" for item in items))
    assert [item["metadata"]["uid"] for item in found] == ["three", "one"]
    running = job("Running", **RUNNING)
    assert seen(running, pod("head"), *found) == Seen(True, LOST)
    gone = [item for item in found if item["metadata"]["uid"] == "one"]
    assert seen(running, *gone, pod("head", "Failed")) == Seen(False, "the head was lost: its pod is gone")


def test_a_worker_that_went_while_nobody_watched_is_told_of_for_a_while(monkeypatch):
    dead = named(pod("worker", "Failed", ended=OOM), "one", 1)
    found = mirrored(Scripted([[dead], []]), lambda items: "deletionTimestamp" in items[0]["metadata"])
    assert seen(job("Running", **RUNNING), pod("head"), *found) == Seen(True, LOST)
    monkeypatch.setattr("service.launchers.kubernetes.informer._REMEMBERED_S", 0.0)
    assert mirrored(Scripted([[dead], []]), lambda items: not items) == []


@pytest.mark.parametrize(
    ("heads", "said"),
    [
        ([], "its pod is gone"),
        ([pod("head", cluster="another")], "its pod is gone"),
        ([pod("head", age=50)], "its pod was replaced"),
        ([pod("head", "Failed", ended={"reason": "Error", "exitCode": 1})], "it ended with exit code 1 (Error)"),
        ([pod("head", "Failed", reason="Evicted", message="memory is low")], "it was evicted (Evicted: memory is low)"),
    ],
)
def test_a_lost_head(heads, said):
    """Also where KubeRay says RUNNING for ever: kuberay#3860, #3903, #4217, and #4914 before 1.7."""
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
    ],
)
def test_containers_that_do_not_start(kind, reason, young, old):
    others = [] if kind == "head" else [pod("head")]
    for age, hopeless in ((100, young), (400, old)):
        found = seen(job("Initializing"), *others, pod(kind, "Pending", age=age, waiting=(reason, "why")))
        assert ("the head" if kind == "head" else "a worker") in found.reason
        assert "why" in found.reason
        assert (found.alive, found.hopeless) == (not hopeless, hopeless)


@pytest.mark.parametrize("kind", ["head", "worker"])
@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("ContainerCreating", "it pulls the image driftline:test, or waits for a volume"),
        ("PodInitializing", "its init containers have not finished"),
    ],
)
def test_a_pod_that_its_node_prepares_for_minutes_says_so_and_is_waited_for(kind, reason, cause):
    """Without a reason, the study would be PENDING in silence."""
    others, what = ([], "the head") if kind == "head" else ([pod("head")], "a worker")

    def preparing(**times):
        return pod(kind, "Pending", waiting=(reason, ""), **times)

    assert seen(job("Initializing"), *others, preparing(age=30)) == Seen(True)
    assert seen(job("Initializing"), *others, preparing(age=900, placed=30)) == Seen(True)  # waited for its node before
    said = f"its node has been preparing {what} for 120 s ({reason}): {cause}; see kubectl describe pod {kind}-1"
    assert seen(job("Initializing"), *others, preparing(age=900, placed=130)) == Seen(True, said)
    assert seen(job("Initializing"), *others, preparing(age=5000)).alive
    refused = pod(kind, "Pending", waiting=("InvalidImageName", "why"))
    assert seen(job("Initializing"), *others, preparing(age=900), refused).hopeless  # a real problem comes first


def test_a_pod_that_waited_long_for_its_node_has_all_its_time_to_pull():
    late = pod("worker", "Pending", age=5000, placed=5, waiting=("ErrImagePull", "TLS handshake timeout"))
    found = seen(job("Initializing"), pod("head"), late)
    assert (found.alive, found.hopeless) == (True, False)
    assert "TLS handshake timeout" in found.reason
    over = pod("worker", "Pending", age=5000, placed=400, waiting=("ErrImagePull", "TLS handshake timeout"))
    assert seen(job("Initializing"), pod("head"), over).hopeless


@pytest.mark.parametrize(
    ("waited", "shown", "alive"),
    [(9, 0, True), (59, 50, True), (60, 60, True), (599, 540, True), (899, 600, True), (7300, 7200, False)],
)
def test_gpus_that_no_node_has(waited, shown, alive):
    found = seen(job("Initializing", age=1000), pod("head"), pod("worker", "Pending", unplaced=waited))
    said = f"no node takes a worker, for {shown} s now: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    assert found == Seen(alive, said, not alive)


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
    for cluster in ({"conditions": [{"type": "ReplicaFailure", "status": "True", "message": text}]}, {"reason": text}):
        found = seen(job("Initializing", rayClusterStatus=cluster), pod("head"))
        assert (found.alive, found.hopeless) == (not never, never)
        assert ("can never allow" if never else "waits for the quota gpus") in found.reason
    assert quota("some other failure") is None


def test_a_quota_failure_that_is_over_counts_no_more():
    condition = {"type": "ReplicaFailure", "status": "False", "message": QUOTA.format(asked=5, used=0)}
    assert seen(job("Initializing", rayClusterStatus={"conditions": [condition]}), pod("head")) == Seen(True)


@pytest.mark.parametrize(("age", "shown", "alive"), [(59, 0, True), (61, 60, True), (901, 600, False)])
def test_an_operator_that_is_not_there(age, shown, alive):
    found = seen(job("", age=age))
    assert (found.alive, found.hopeless) == (alive, not alive)
    said = f"KubeRay has not taken up the RayJob for {shown} s: is its operator running, and new enough?"
    assert found.reason == (said if age > 60 else "")
