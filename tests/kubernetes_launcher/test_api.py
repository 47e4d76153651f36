"""The launcher against a real Kubernetes API server with KubeRay's CRDs."""

import base64
import gc
import threading
import time
from pathlib import Path

import pytest

from driftline.errors import Conflict, DriftlineError, Forbidden, InvalidSpec, NotFound, Unavailable
from service.launchers.base import Seen
from service.launchers.kubernetes.api_server import Expired
from service.launchers.kubernetes.informer import Mirror
from service.launchers.kubernetes.launcher import KubernetesLauncher, build
from service.launchers.kubernetes.naming import job_name, selector
from tests.kubernetes_launcher.made import STUDY, config, launch
from tests.kubernetes_launcher.place import Place
from tests.kubernetes_launcher.plane import OWN_CERTIFICATE
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), OWN_CERTIFICATE]
OTHER = "01k6vq8r9s2t3v4w5x6y7z8zzz"


@pytest.fixture
def place(plane):
    made = Place(plane)
    yield made
    made.close()


def test_a_driver_from_start_to_end(plane, place):
    name = job_name(STUDY, 1)
    assert place.launcher.seen(STUDY) == Seen(False, "its RayJob is gone")
    place.launcher.start(launch())
    assert place.launcher.seen(STUDY) == Seen(True)
    job, secret = place.jobs()[name], place.secrets()[name]
    assert job["spec"]["entrypoint"].startswith(f"python -P -m service.driver --study {STUDY}")
    assert {field["manager"] for field in job["metadata"]["managedFields"]} == {"driftline"}
    assert secret["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
    assert base64.b64decode(secret["data"]["driver_token"]).decode() == launch().token
    plane.status(place.namespace, name, jobDeploymentStatus="Initializing")
    place.until(STUDY, Seen(True))
    plane.status(place.namespace, name, jobDeploymentStatus="Failed", reason="AppFailed", message="exit 1")
    place.until(STUDY, Seen(False, "its process ended: exit 1"))
    place.launcher.stop(STUDY)
    assert place.jobs() == {}
    place.until(STUDY, Seen(False, "its RayJob is gone"))
    until(lambda: not place.secrets())  # the garbage collector's work


def test_starting_twice_makes_one(place):
    other = place.another()
    failures = []

    def start(launcher):
        try:
            launcher.start(launch())
        except DriftlineError as error:
            failures.append(error)

    threads = [threading.Thread(target=start, args=(one,)) for one in [place.launcher, other] * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert list(place.jobs()) == [job_name(STUDY, 1)]
    assert list(place.secrets()) == [job_name(STUDY, 1)]
    uid = place.jobs()[job_name(STUDY, 1)]["metadata"]["uid"]
    other.start(launch())
    assert place.jobs()[job_name(STUDY, 1)]["metadata"]["uid"] == uid


def test_the_next_attempt_removes_the_one_before(plane, place):
    place.launcher.start(launch())
    place.launcher.start(launch(OTHER))
    place.launcher.start(launch(attempt=2))
    assert set(place.jobs()) == {job_name(STUDY, 2), job_name(OTHER, 1)}
    assert place.another().seen(STUDY) == Seen(True)
    place.launcher.start(launch(attempt=1))  # a scheduler that is behind
    assert set(place.jobs()) == {job_name(STUDY, 2), job_name(OTHER, 1)}
    until(lambda: set(place.secrets()) == {job_name(STUDY, 2), job_name(OTHER, 1)})


def test_a_failed_start_is_repeated_under_another_name(plane, place):
    place.launcher.start(launch())
    plane.status(place.namespace, job_name(STUDY, 1), jobDeploymentStatus="Failed", reason="SubmissionFailed")
    place.launcher.start(launch())
    assert list(place.jobs()) == [job_name(STUDY, 1, 1)]
    assert place.launcher.seen(STUDY) == Seen(True)
    owner = place.secrets()[job_name(STUDY, 1)]["metadata"]["ownerReferences"]
    assert [one["name"] for one in owner] == [job_name(STUDY, 1, 1)]
    time.sleep(3)  # the garbage collector looks at what the first RayJob owned
    assert list(place.secrets()) == [job_name(STUDY, 1)]


def test_one_that_is_on_its_way_out_is_in_nobodys_way(plane, place):
    """KubeRay's finalizer keeps a deleted RayJob for a while."""
    name = job_name(STUDY, 1)
    path = f"/apis/ray.io/v1/namespaces/{place.namespace}/rayjobs/{name}"
    place.launcher.start(launch())
    merge = "application/merge-patch+json"
    plane.send("PATCH", path, {"metadata": {"finalizers": ["ray.io/rayjob-finalizer"]}}, content=merge)
    plane.send("DELETE", path)
    place.until(STUDY, Seen(False, "its RayJob is being deleted"))
    place.launcher.start(launch())
    assert set(place.jobs()) == {name, job_name(STUDY, 1, 1)}
    assert place.launcher.seen(STUDY) == Seen(True)
    plane.send("PATCH", path, {"metadata": {"finalizers": None}}, content=merge)
    until(lambda: set(place.jobs()) == {job_name(STUDY, 1, 1)})
    assert place.launcher.seen(STUDY) == Seen(True)


@pytest.mark.parametrize("phase", ["Running", "Complete"])
def test_a_stopped_driver_leaves_nothing_and_the_next_one_has_a_rayjob_of_its_own(plane, place, phase):
    place.launcher.start(launch())
    plane.status(place.namespace, job_name(STUDY, 1), jobDeploymentStatus=phase, jobStatus="PENDING")
    place.launcher.stop(STUDY)
    place.launcher.stop(STUDY)
    assert place.jobs() == {}
    until(lambda: place.secrets() == {}, 60)
    place.another().start(launch(attempt=2))
    assert list(place.jobs()) == [job_name(STUDY, 2)]


@pytest.mark.parametrize("attempt", [1, 2])
def test_a_rayjob_that_somebody_has_suspended_is_replaced(plane, place, attempt):
    name = job_name(STUDY, 1)
    place.launcher.start(launch())
    path = f"/apis/ray.io/v1/namespaces/{place.namespace}/rayjobs/{name}"
    plane.send("PATCH", path, {"spec": {"suspend": True}}, content="application/merge-patch+json")
    plane.status(place.namespace, name, jobDeploymentStatus="Suspended")
    place.until(STUDY, Seen(False, "somebody has suspended its RayJob"))
    place.another().start(launch(attempt=attempt))
    [job] = place.jobs().values()
    assert job["metadata"]["name"] != name
    assert job["spec"]["suspend"] is False
    place.until(STUDY, Seen(True))


def test_orphans_are_collected_and_nothing_else(plane, place):
    foreign = Place(plane, instance="another", namespace=None)
    foreign.namespace = place.namespace
    other = KubernetesLauncher(config(instance="another"), plane.api(place.namespace), url="u", folder="s3://b/x")
    place.launcher.start(launch())
    place.launcher.start(launch(OTHER))
    other.start(launch("01k6zzzzzzzzzzzzzzzzzzzzzz"))
    by_hand = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "by-hand"}, "spec": {}}
    plane.send("POST", f"/apis/ray.io/v1/namespaces/{place.namespace}/rayjobs", by_hand)
    other.collect({"something"})  # younger than orphan_seconds
    place.launcher.collect({STUDY})
    assert set(place.jobs()) == {job_name(STUDY, 1), "by-hand", job_name("01k6zzzzzzzzzzzzzzzzzzzzzz", 1)}
    other.close()
    foreign.close()


def test_what_the_api_server_refuses(plane, place):
    api = plane.api(place.namespace)
    with pytest.raises(NotFound, match="404"):
        api.get("rayjobs", "nothing")
    with pytest.raises(NotFound):
        api.merge("rayjobs", "nothing", {"spec": {"suspend": True}})
    place.launcher.start(launch())
    name = job_name(STUDY, 1)
    with pytest.raises(Conflict, match="409"):
        api.merge("rayjobs", name, {"metadata": {"resourceVersion": "1"}, "spec": {"suspend": True}})
    job = api.get("rayjobs", name)
    with pytest.raises(InvalidSpec, match="suspend"):
        api.merge("rayjobs", name, {"spec": {"suspend": "perhaps"}})  # 422
    wrong = {key: job[key] for key in ("apiVersion", "kind")}
    wrong |= {"metadata": {"name": "x"}, "spec": {"rayClusterSpec": {"headGroupSpec": {}}}}
    with pytest.raises(InvalidSpec, match=r"422.*template"):
        api.apply("rayjobs", wrong)
    api.delete("rayjobs", {"metadata": {"name": name, "uid": "of another"}})
    assert api.get("rayjobs", name)["metadata"]["uid"] == job["metadata"]["uid"]
    with pytest.raises(Expired):
        list(api.watch("rayjobs", selector("driftline"), "1", 5))
    api.close()


def test_a_quota_on_rayjobs_says_so(plane, place):
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"count/rayjobs.ray.io": "0"}}}
    plane.send("POST", f"/api/v1/namespaces/{place.namespace}/resourcequotas", quota)
    path = f"/api/v1/namespaces/{place.namespace}/resourcequotas/few"
    until(lambda: "hard" in plane.send("GET", path)[1].get("status", {}))
    with pytest.raises(Forbidden, match=r"quota: few"):  # exceeded, or not counted yet: both are the quota's no
        place.launcher.start(launch())


def test_a_watch_that_is_too_old_or_ends_is_taken_up_again(plane, place):
    mirror = Mirror(plane.api(place.namespace), "rayjobs", selector("driftline"), watch_s=2)  # watches of a second
    assert mirror.items() == []
    for attempt in range(1, 6):
        place.launcher.start(launch(attempt=attempt))
        until(lambda wanted=attempt: [job["metadata"]["name"] for job in mirror.items()] == [job_name(STUDY, wanted)])
        time.sleep(0.6)
    mirror.close()


# A server that dies between connect and handshake: CPython's ssl.SSLSocket._create raises without closing the socket.
@pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")
def test_an_api_server_that_is_restarted(plane, place):
    place.launcher.start(launch())
    plane.status(place.namespace, job_name(STUDY, 1), jobDeploymentStatus="Initializing")
    place.until(STUDY, Seen(True))
    argv = plane.kill_apiserver()
    assert place.launcher.seen(STUDY) == Seen(True)  # what was seen last holds for a while
    with pytest.raises(Unavailable):
        place.launcher.start(launch(OTHER))
    with pytest.raises(Unavailable):
        place.launcher.collect({STUDY})
    blind = place.another()
    with pytest.raises(Unavailable, match="rayjobs cannot be seen"):
        blind.seen(STUDY)
    plane.revive(argv)
    plane.status(place.namespace, job_name(STUDY, 1), jobDeploymentStatus="Failed", reason="AppFailed", message="m")
    place.until(STUDY, Seen(False, "its process ended: m"))
    place.launcher.start(launch(attempt=2))
    assert list(place.jobs()) == [job_name(STUDY, 2)]
    gc.collect()  # such a socket is found here, not in the next test


def test_settings_from_a_file_reach_the_cluster(plane, place, tmp_path, monkeypatch):
    made = build(
        config(kubeconfig=str(plane.kubeconfig), namespace=place.namespace), url="http://a", checkpoints="s3://b/x"
    )
    made.start(launch())
    assert list(place.jobs()) == [job_name(STUDY, 1)]
    made.close()
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setattr("service.launchers.kubernetes.api_server._OWN_NAMESPACE", Path("/nonexistent"))
    with pytest.raises(InvalidSpec, match="kubeconfig: must name a cluster"):
        build(config(kubeconfig=str(tmp_path / "none")), url="http://a", checkpoints="s3://b/x")


def allow_scheduler(plane, home, namespace):
    """Gives the ServiceAccount `scheduler` of a namespace the rights of docs/kubernetes.md in this one."""
    rules = [
        {"apiGroups": ["ray.io"], "resources": ["rayjobs"], "verbs": ["list", "watch", "create", "patch", "delete"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "patch"]},
        {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["create", "patch"]},
        {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ["create", "patch"]},
    ]
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    account = {"metadata": {"name": "scheduler"}}
    plane.send("POST", f"/api/v1/namespaces/{home}/serviceaccounts", account, ok=(201, 409))
    plane.send("POST", f"{rbac}/roles", {"metadata": {"name": "scheduler"}, "rules": rules})
    binding = {
        "metadata": {"name": "scheduler"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "scheduler"},
        "subjects": [{"kind": "ServiceAccount", "name": "scheduler", "namespace": home}],
    }
    plane.send("POST", f"{rbac}/rolebindings", binding)


def test_least_rights_suffice_and_no_others_are_needed(plane, place):
    """A ServiceAccount with exactly what docs and chart give the scheduler."""
    at = place.namespace
    allow_scheduler(plane, at, at)
    api = plane.api_of(at, "scheduler")
    made = KubernetesLauncher(config(network_policy=True), api, url="http://a", folder="s3://b/x")
    made.start(launch())
    made.start(launch())
    assert made.seen(STUDY) == Seen(True)
    made.stop(STUDY)
    made.start(launch(attempt=2))
    assert made.seen(STUDY).alive
    made.collect({STUDY})
    made.stop(STUDY)
    assert place.jobs() == {}
    for kind, name in (("secrets", job_name(STUDY, 1)), ("pods", "x")):
        with pytest.raises(Forbidden, match=r"cannot get resource"):
            api.get(kind, name)
    with pytest.raises(Forbidden, match="cannot list resource"):
        api.within("default").items("rayjobs", "")
    made.close()


def names(plane, namespace, path):
    found = plane.send("GET", path.format(namespace=namespace))[1]["items"]
    return {item["metadata"]["name"] for item in found if item["metadata"].get("labels", {}).get("driftline.io/study")}


ACCOUNTS = "/api/v1/namespaces/{namespace}/serviceaccounts"
POLICIES = "/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"


def test_an_account_and_a_policy_come_and_go_with_their_study(plane):
    place = Place(plane, network_policy=True)
    other = place.another()
    for made in (place.launcher, other):
        made.start(launch())
        made.start(launch(OTHER))
    for path in (ACCOUNTS, POLICIES):
        assert names(plane, place.namespace, path) == {job_name(STUDY, 1), job_name(OTHER, 1)}
    plane.status(place.namespace, job_name(STUDY, 1), jobDeploymentStatus="Failed", reason="SubmissionFailed")
    place.launcher.start(launch())  # under another name, which the garbage collector must not take along
    for path in (ACCOUNTS, POLICIES):
        until(lambda path=path: names(plane, place.namespace, path) == {job_name(STUDY, 1, 1), job_name(OTHER, 1)}, 60)
    place.launcher.stop(OTHER)
    place.launcher.start(launch(OTHER))  # under the same name, perhaps before the garbage collector has looked
    job = place.jobs()[job_name(OTHER, 1)]["metadata"]
    for path in (ACCOUNTS, POLICIES):
        made = plane.send("GET", f"{path.format(namespace=place.namespace)}/{job['name']}")[1]["metadata"]
        assert [owner["uid"] for owner in made["ownerReferences"]] == [job["uid"]]
    place.launcher.stop(STUDY)
    place.launcher.stop(OTHER)
    for path in (ACCOUNTS, POLICIES):
        until(lambda path=path: names(plane, place.namespace, path) == set(), 60)
    place.close()


def test_projects_have_namespaces_and_one_that_is_closed_affects_its_own_studies_only(plane):
    home, theirs, closed = (plane.namespace() for _ in range(3))
    for namespace in (home, theirs):
        allow_scheduler(plane, home, namespace)
    projects = {
        "team-a": {"namespace": theirs, "queue": "gpus", "checkpoints": "s3://team-a/x"},
        "team-b": {"namespace": closed},
    }
    settings = config(projects=projects, orphan_seconds=0)
    made = KubernetesLauncher(settings, plane.api_of(home, "scheduler"), url="http://a", folder="s3://b/x")

    def jobs(namespace):
        found = plane.send("GET", f"/apis/ray.io/v1/namespaces/{namespace}/rayjobs")[1]["items"]
        return {job["metadata"]["labels"]["driftline.io/study"]: job for job in found}

    made.start(launch())
    made.start(launch(OTHER, project="team-a"))
    assert (jobs(home).keys(), jobs(theirs).keys()) == ({STUDY}, {OTHER})
    job = jobs(theirs)[OTHER]
    assert "--folder s3://team-a/x" in job["spec"]["entrypoint"]
    assert (job["spec"]["suspend"], job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]) == (True, "gpus")
    assert names(plane, theirs, ACCOUNTS) == {job_name(OTHER, 1)}
    secrets = plane.send("GET", f"/api/v1/namespaces/{theirs}/secrets")[1]["items"]
    assert job_name(OTHER, 1) in {item["metadata"]["name"] for item in secrets}
    assert made.seen(STUDY) == Seen(True)
    assert made.seen(OTHER).waiting
    with pytest.raises(Forbidden, match=closed):
        made.start(launch("01k6zzzzzzzzzzzzzzzzzzzzzz", project="team-b"))
    assert made.seen("01k6zzzzzzzzzzzzzzzzzzzzzz") == Seen(False, "its RayJob is gone")
    made.collect({STUDY})
    assert (jobs(home).keys(), jobs(theirs).keys()) == ({STUDY}, set())
    made.stop(STUDY)
    assert jobs(home) == {}
    made.close()
