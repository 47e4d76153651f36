"""End to end on a real node: a study that Ray's autoscaler gives a second worker, and that outlives a worker, its head
and a pause; studies that cannot run, and what people are told of it.

KubeRay's operator is stood in for by tests/kubernetes_cluster/kuberay.py; all else is what people run.
"""

import pytest

from service.sdk.job import StudyFailed
from tests.kubernetes_cluster.node import say
from tests.kubernetes_cluster.release import CORE, PODS, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.cluster,
    pytest.mark.timeout(1500),
    pytest.mark.filterwarnings("ignore:Unverified HTTPS request"),  # the test server's certificate is its own
]
ROUNDS = 80_000  # about 2,000 a second: the study must last until its worker and its head were killed
SPEC = {
    "name": "on-kubernetes",
    "task": {"name": "quadratic", "problem": "random", "clients": 6, "dimension": 3},
    "methods": [
        {
            "label": "fedavg",
            "name": "fedavg",
            "space": {
                "client_lr": {"float": [1e-3, 0.1], "log": True},
                "server_lr": 0.05,
                "local_steps": {"choice": [1, 5]},
            },
        }
    ],
    "objective": {"quality": "train_loss", "cost": "rounds"},
    "budget": {"trials_per_method": 7, "rounds": ROUNDS, "seeds": 1, "front": 1},
    "resources": {"gpu": 0.5, "packs": 2},
}
TRIALS = 8  # the last of them, a repeat, trains alone


def done(job):
    """The share of the search's rounds that has been reported."""
    return job.record().progress["fedavg"].rounds_done / (TRIALS * ROUNDS)


def told(job):
    """All that was ever said of a finished study's state."""
    return [event.data.get("reason", "") for event in job.events() if event.kind == "state"]


def test_a_study_gets_a_second_worker_and_outlives_a_worker_its_head_and_a_pause(deployed):
    job = deployed.submit(SPEC)
    say(f"submitted {job.id}")
    until(lambda: done(job) > 0.01, "the study trains", 420)
    [group] = deployed.raycluster(job.id)["spec"]["workerGroupSpecs"]
    assert (group["minReplicas"], group["maxReplicas"]) == (1, 2)
    until(lambda: replicas(deployed, job) == 2, "Ray's autoscaler has asked for a second worker", 120)
    [autoscaler] = [
        one for one in deployed.raycluster(job.id)["metadata"]["managedFields"] if one["manager"] == "python-requests"
    ]  # what Ray's node provider calls itself
    assert "f:workerGroupSpecs" in autoscaler["fieldsV1"]["f:spec"]
    until(lambda: len(deployed.pods("worker", job.id)) == 2, "the second worker is there", 60)
    # A worker is one core and one GPU: two packs at once are on two workers.
    until(lambda: len({trial.pack for trial in job.trials(state="RUNNING")}) == 2, "both workers train", 180)
    for worker in deployed.pods("worker", job.id):
        spec = deployed.rest.get(f"{PODS}/{worker}")["spec"]["containers"][0]
        assert spec["resources"]["limits"]["nvidia.com/gpu"] == "1"

    [worker, _] = sorted(deployed.pods("worker", job.id))
    deployed.kill(worker)
    at = done(job)
    until(lambda: done(job) > at + 0.03, "it goes on after a worker was killed", 420)
    assert worker not in deployed.pods("worker", job.id)

    attempt = attempts(deployed, job)
    [head] = deployed.pods("head", job.id)
    deployed.kill(head)
    later = until(
        lambda: [
            one for one in deployed.rayjobs(job.id) if int(one["metadata"]["labels"]["driftline.io/attempt"]) > attempt
        ],
        "another attempt is started after its head was killed",
        120,
    )
    assert later[0]["metadata"]["name"].startswith(f"driftline-{job.id}-")
    at = done(job)
    until(lambda: done(job) > at + 0.03, "it goes on after its head was killed", 420)

    job.pause()
    until(lambda: job.state == "PAUSED", "it is paused")
    until(lambda: not deployed.pods("head", job.id) + deployed.pods("worker", job.id), "its pods are gone", 180)
    assert all(one["spec"].get("suspend") for one in deployed.rayjobs(job.id))
    job.resume()
    until(lambda: replicas(deployed, job) == 2, "a second worker is asked for again", 180)
    until(lambda: replicas(deployed, job) == 1, "the idle worker is given back while the last trial trains", 420)
    assert not job.record().finished
    job.wait(timeout_s=600)
    say("the study has finished")
    assert any("the head was lost: " in reason for reason in told(job)), told(job)

    trials = job.trials()
    assert len(trials) == TRIALS
    assert {trial.state for trial in trials} == {"COMPLETE"}
    assert {trial.rounds_done for trial in trials} == {ROUNDS}
    for curve in job.curves().values():
        assert curve["round"] == sorted(set(curve["round"]))
        assert curve["round"][-1] == ROUNDS
    found = job.frontier().data["methods"]["fedavg"]
    assert found["points"]
    assert found["ledger"]["trials"] == TRIALS
    until(lambda: not deployed.pods("head", job.id), "its Ray cluster is gone", 180)
    until(lambda: not deployed.rayjobs(job.id), "its RayJob is gone", 180)
    until(lambda: deployed.runs_in_mlflow(SPEC["name"]) >= TRIALS, "MLflow has all trials", 180)


def said(job, beginning):
    """What is said of a study now, if it begins so; else ""."""
    reason = job.record().reason
    return reason if reason.startswith(beginning) else ""


def replicas(deployed, job):
    """How many workers the study's newest RayCluster is to have."""
    cluster = deployed.raycluster(job.id)
    return cluster and cluster["spec"]["workerGroupSpecs"][0]["replicas"]


def attempts(deployed, job):
    """The newest attempt for which there is a RayJob."""
    return max((int(one["metadata"]["labels"]["driftline.io/attempt"]) for one in deployed.rayjobs(job.id)), default=0)


def test_a_study_that_fits_no_worker_fails_with_a_reason(deployed):
    job = deployed.submit(SPEC, name="too-much", resources={"gpu": 3})
    with pytest.raises(StudyFailed, match=r"resources.gpu: must be at most the 1 of a worker, got 3"):
        job.wait(timeout_s=120)
    assert deployed.rayjobs(job.id) == []


def test_a_quota_is_waited_for_and_one_that_never_allows_it_fails_the_study(deployed):
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "100"}}}
    deployed.rest.send("POST", f"{CORE}/resourcequotas", quota)
    try:
        path = f"{CORE}/resourcequotas/few"
        used = until(lambda: deployed.rest.get(path).get("status", {}).get("used"), "the quota counts", 60)
        deployed.rest.merge(path, {"spec": {"hard": used}})
        until(lambda: deployed.rest.get(path)["status"]["hard"] == used, "the quota is full", 60)
        job = deployed.submit(SPEC, name="quota")
        reason = until(lambda: job.record().reason, "it says why it waits", 120)
        assert reason.startswith("it waits for the quota few: asked pods=1"), reason
        deployed.rest.merge(path, {"spec": {"hard": {"pods": "0"}}})
        with pytest.raises(StudyFailed, match=r"the quota few can never allow it: a pod asks for pods=1"):
            job.wait(timeout_s=120)
    finally:
        deployed.rest.delete(f"{CORE}/resourcequotas/few")


def test_an_image_that_cannot_be_had_fails_the_study(deployed):
    name = "localhost/driftline:test"
    images = ["ctr", "-a", str(deployed.node.folder / "containerd.sock"), "-n", "k8s.io", "images"]
    deployed.node.run(*images, "tag", "--force", name, "localhost/kept:test")
    deployed.node.run(*images, "rm", name)
    try:
        job = deployed.submit(SPEC, name="no-image")
        with pytest.raises(
            StudyFailed,
            match=rf"the image {name} of (the head|a worker) cannot be pulled \(ErrImageNeverPull\): .*{name}",
        ):
            job.wait(timeout_s=120)
    finally:
        deployed.node.run(*images, "tag", "--force", "localhost/kept:test", name)


def test_a_study_without_a_node_says_so_and_leaves_nothing_when_it_is_cancelled(deployed):
    label = {"metadata": {"labels": {"nvidia.com/gpu.present": None}}}
    deployed.rest.merge("/api/v1/nodes/node-0", label)
    try:
        job = deployed.submit(SPEC, name="cancelled")
        until(lambda: deployed.rayjobs(job.id), "its RayJob is there", 60)
        reason = until(lambda: said(job, "no node takes a worker, for "), "it says why it waits", 120)
        assert "0/1 nodes are available: 1 node(s) didn't match" in reason
        job.cancel()
        until(lambda: job.state == "CANCELLED", "it is cancelled", 120)
        until(lambda: not deployed.rayjobs(job.id), "its RayJob is gone", 120)
        until(lambda: not deployed.pods("head", job.id), "its pods are gone", 120)
    finally:
        label["metadata"]["labels"]["nvidia.com/gpu.present"] = "true"
        deployed.rest.merge("/api/v1/nodes/node-0", label)
