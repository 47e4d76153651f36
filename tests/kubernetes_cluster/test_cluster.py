"""End to end on a real node: a study that Ray's autoscaler gives a second worker, and that outlives workers, its head
and a pause; studies that cannot run, and what people are told of it.

The tests build on each other: what cannot run is tried while the large study pauses. KubeRay's operator is stood in for
by tests/kubernetes_cluster/kuberay.py; all else is what people run.
"""

import pytest

from driftline.errors import InvalidSpec
from driftline.sdk.job import StudyFailed
from tests.kubernetes_cluster.node import say
from tests.kubernetes_cluster.release import PODS, STUDIES_CORE, until
from tests.kubernetes_cluster.studies import ROUNDS, SPEC, TRIALS, attempts, done, replicas, said, told
from tests.kubernetes_launcher.plane import OWN_CERTIFICATE

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(1500), OWN_CERTIFICATE]
STARVED = "a worker was lost: it ran out of memory (limit 3Gi): give it more"
HEAD_KILLED = ("the head was lost: ", "its process ended: ")
"""A dying head may still report that its process has failed, before KubeRay sees that the pod is gone."""


@pytest.fixture(scope="module")
def study(deployed):
    """The study that trains."""
    with deployed.node.inside():
        made = deployed.submit(SPEC)
    say(f"submitted {made.id}")
    return made


def test_a_study_gets_a_second_worker_and_outlives_workers_its_head_and_a_pause(deployed, study):
    until(lambda: done(study) > 0.01, "the study trains", 420)
    [group] = deployed.raycluster(study.id)["spec"]["workerGroupSpecs"]
    assert (group["minReplicas"], group["maxReplicas"]) == (1, 2)
    until(lambda: replicas(deployed, study) == 2, "Ray's autoscaler has asked for a second worker", 120)
    [autoscaler] = [
        one for one in deployed.raycluster(study.id)["metadata"]["managedFields"] if one["manager"] == "python-requests"
    ]  # what Ray's node provider calls itself
    assert "f:workerGroupSpecs" in autoscaler["fieldsV1"]["f:spec"]
    until(lambda: len(deployed.pods("worker", study.id)) == 2, "the second worker is there", 240)
    # A worker is one core and one GPU: two packs at once are on two workers.
    until(lambda: len({trial.pack for trial in study.trials(state="RUNNING")}) == 2, "both workers train", 300)
    for worker in deployed.pods("worker", study.id):
        spec = deployed.rest.get(f"{STUDIES_CORE}/pods/{worker}")["spec"]["containers"][0]
        assert spec["resources"]["limits"]["nvidia.com/gpu"] == "1"

    say(f"{done(study):.0%} are done")
    worker = deployed.pods("worker", study.id)[0]
    deployed.kill(worker)
    at = done(study)
    until(lambda: done(study) > at + 0.03, "it goes on after a worker was killed", 420)
    assert worker not in deployed.pods("worker", study.id)

    other = deployed.running("worker", study.id)[0]
    deployed.starve(other)
    until(lambda: said(study, STARVED), "it says that a worker ran out of memory", 60)
    assert study.state == "RUNNING"
    until(lambda: other not in deployed.pods("worker", study.id), "its pod is replaced", 60)

    attempt = attempts(deployed, study)
    [head] = deployed.pods("head", study.id)
    deployed.kill(head)
    until(lambda: attempts(deployed, study) > attempt, "another attempt is started after its head was killed", 120)
    at = done(study)
    until(lambda: done(study) > at + 0.03, "it goes on after its head was killed", 420)
    study.pause()
    until(lambda: study.state == "PAUSED", "it is paused")
    say(f"{done(study):.0%} are done")
    for read in deployed.read.values():  # the next tests would end studies that are just starting
        read.result(600)


def test_an_image_that_cannot_be_had_fails_the_study(deployed):
    images = ["ctr", "-a", str(deployed.node.folder / "containerd.sock"), "-n", "k8s.io", "images"]
    [image] = [name for name in deployed.node.run(*images, "ls", "-q").split() if "/driftline@" in name]
    repository = deployed.node.registry.folder / "docker/registry/v2/repositories/driftline"
    away = repository.with_name("away")
    deployed.node.run(*images, "rm", image)
    repository.rename(away)
    try:
        job = deployed.submit(SPEC, name="no-image")
        why = r"the image localhost:5080/driftline:\S+ of (the head|a worker) cannot be pulled \(\w+\): .*"
        with pytest.raises(StudyFailed, match=why):
            job.wait(timeout_s=180)
    finally:
        away.rename(repository)


def test_a_study_too_large_for_the_api_is_refused_and_the_api_lives_on(deployed):
    task = {"name": "quadratic", "problem": "random", "clients": 100, "dimension": 1000}  # 763 MiB, to measure it
    methods = [{"name": "fedavg", "space": "theory"}]
    with pytest.raises(InvalidSpec, match=r"task: its sizes must fit this computer|could not be checked within"):
        deployed.submit(SPEC, name="too-large", task=task, methods=methods)
    pods = deployed.rest.items(f"{PODS}?labelSelector=app.kubernetes.io/component%3Dapi")
    assert [status["restartCount"] for pod in pods for status in pod["status"]["containerStatuses"]] == [0]


def test_a_quota_is_waited_for_and_one_that_never_allows_it_fails_the_study(deployed):
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "100"}}}
    deployed.rest.send("POST", f"{STUDIES_CORE}/resourcequotas", quota)
    try:
        path = f"{STUDIES_CORE}/resourcequotas/few"
        until(lambda: deployed.rest.get(path).get("status", {}).get("used"), "the quota counts", 60)
        # Pods that are on their way out count until they have gone.
        pods = deployed.rest.items(f"{STUDIES_CORE}/pods")
        living = sum("deletionTimestamp" not in pod["metadata"] for pod in pods)
        full = {"pods": str(max(living, 1))}  # with 0 it could never be allowed
        deployed.rest.merge(path, {"spec": {"hard": full}})
        until(lambda: deployed.rest.get(path)["status"]["hard"] == full, "the quota is full", 60)
        job = deployed.submit(SPEC, name="quota")
        reason = until(lambda: job.record().reason, "it says why it waits", 120)
        assert reason.startswith("it waits for the quota few: asked pods=1"), reason
        deployed.rest.merge(path, {"spec": {"hard": {"pods": "0"}}})
        with pytest.raises(StudyFailed, match=r"the quota few can never allow it: a pod asks for pods=1"):
            job.wait(timeout_s=120)
    finally:
        deployed.rest.delete(f"{STUDIES_CORE}/resourcequotas/few")


def test_a_study_goes_on_after_a_pause_gives_back_what_is_idle_and_ends(deployed, study, request):
    until(lambda: not deployed.pods("head", study.id) + deployed.pods("worker", study.id), "its pods are gone", 180)
    assert study.state == "PAUSED"
    until(lambda: not deployed.rayjobs(study.id), "its RayJob is deleted", 60)
    study.resume()
    until(lambda: replicas(deployed, study) == 2, "a second worker is asked for again", 240)
    request.getfixturevalue("on_data")  # submitted now: the node has room for another study beside it
    say(f"{done(study):.0%} are done")
    until(lambda: replicas(deployed, study) == 1, "the idle worker is given back while the last trial trains", 420)
    assert not study.record().finished
    study.wait(timeout_s=600)
    say("the study has finished")
    request.getfixturevalue("on_own_image")  # starts while the cluster of this one goes
    assert any(text in reason for reason in told(study) for text in HEAD_KILLED), told(study)
    assert any(reason.startswith(STARVED) for reason in told(study)), told(study)

    trials = study.trials()
    assert len(trials) == TRIALS
    assert {trial.state for trial in trials} == {"COMPLETE"}
    assert {trial.rounds_done for trial in trials} == {ROUNDS}
    for curve in study.curves().values():
        assert curve["round"] == sorted(set(curve["round"]))
        assert curve["round"][-1] == ROUNDS
    found = study.frontier().data["methods"]["fedavg"]
    assert found["frontier"]
    assert found["ledger"]["trials"] == TRIALS
    # A worker that Ray's autoscaler has forgotten (kuberay#3738) stays until here at most.
    until(lambda: not deployed.pods("head", study.id) + deployed.pods("worker", study.id), "its cluster is gone", 180)
    until(lambda: not deployed.rayjobs(study.id), "its RayJob is gone", 180)
    assert len({line.attempt for line in study.logs()}) >= 3  # of all its heads, which are gone
    until(lambda: deployed.runs_in_mlflow(SPEC["name"]) >= TRIALS, "MLflow has all trials", 180)


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
