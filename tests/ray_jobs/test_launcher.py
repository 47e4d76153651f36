"""The launcher `ray_jobs` against a dashboard that stands in for Ray's: what it asks, and what it makes of answers."""

import io
import json
import re
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from driftline.errors import InvalidSpec, Unavailable
from service.driver import preflight
from service.launchers.base import Launch, Seen
from service.launchers.ray_jobs import launcher as ray_jobs
from service.launchers.ray_jobs.dashboard import Dashboard
from service.launchers.ray_jobs.launcher import Config, RayJobsLauncher, build
from service.launchers.ray_jobs.package import package

URL = "http://tuner:8080"
STUDY = Launch("s1", "small", "vision", "secret", 1, cpus=2.0)


class FakeRay:
    """Ray's dashboard as far as the launcher knows it."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.packages: dict[str, bytes] = {}
        self.nodes: list[dict[str, float]] = [{"CPU": 4.0}]
        self.version = "2.60.0"
        self.logs: dict[str, str] = {}
        self.drops = 0
        self.asked: list[str] = []
        self.hangs = False
        self.deletes = False  # also a job that it takes for alive

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(f"{request.method} {request.url.path}")
        if self.drops:
            self.drops -= 1
            raise httpx.RemoteProtocolError("connection dropped")
        if request.headers.get("Authorization") != "Bearer ray-token":
            return httpx.Response(401, text="Unauthorized: Missing authentication token")
        path = request.url.path
        if path == "/api/version":
            return httpx.Response(200, json={"ray_version": self.version})
        if path == "/api/v0/nodes":
            rows = [{"state": "ALIVE", "resources_total": node} for node in self.nodes]
            rows.append({"state": "DEAD", "resources_total": {"CPU": 64.0, "GPU": 8.0}})
            return httpx.Response(200, json={"data": {"result": {"result": rows}}})
        if path.startswith("/api/packages/gcs/"):
            return self._package(request, path.rpartition("/")[2])
        return self._job(request, path.removeprefix("/api/jobs/"))

    def _package(self, request: httpx.Request, name: str) -> httpx.Response:
        if request.method == "PUT":
            self.packages[name] = request.content
        return httpx.Response(200 if name in self.packages else 404)

    def _job(self, request: httpx.Request, rest: str) -> httpx.Response:
        name, _, verb = rest.partition("/")
        if request.method == "POST" and not name:
            body = json.loads(request.content)
            if body["submission_id"] in self.jobs:
                return httpx.Response(500, text=f"ValueError: Job with submission_id {name} already exists.")
            self.jobs[body["submission_id"]] = {**body, "status": "PENDING", "message": "queued", "start_time": 1}
            self.jobs[body["submission_id"]]["start_time"] = len(self.jobs)
            return httpx.Response(200, json={})
        if not name:
            foreign = {"submission_id": None, "status": "RUNNING"}
            return httpx.Response(200, json=[foreign, *self.jobs.values()])
        if name not in self.jobs:
            return httpx.Response(404, text="does not exist")
        if verb == "stop":
            if not self.hangs:
                self.jobs[name]["status"] = "STOPPED"
        elif verb == "logs":
            return httpx.Response(200, json={"logs": self.logs.get(name, "")})
        elif request.method == "DELETE" and self.jobs[name]["status"] in ("PENDING", "RUNNING") and not self.deletes:
            return httpx.Response(500, text="RuntimeError: Attempted to delete job, but it is in a non-terminal state")
        elif request.method == "DELETE":
            del self.jobs[name]
            return httpx.Response(200, json={})
        return httpx.Response(200, json=self.jobs[name])


@pytest.fixture
def ray() -> FakeRay:
    return FakeRay()


def launcher(ray: FakeRay, token: str = "ray-token", **settings: Any) -> RayJobsLauncher:
    config = Config(address="http://head:8265", **settings)
    dashboard = Dashboard(config.address, token, transport=httpx.MockTransport(ray), sleep=lambda seconds: None)
    return RayJobsLauncher(config, dashboard, url=URL, checkpoints="s3://bucket/x")


def test_a_driver_is_submitted_once_with_our_package(ray: FakeRay) -> None:
    made = launcher(ray, data_dir="/data", environment={"OMP_NUM_THREADS": "1"})
    assert made.seen("s1") == Seen(False)
    made.start(STUDY)
    made.start(STUDY)
    (job,) = ray.jobs.values()
    assert job["submission_id"] == "driftline-s1-1"
    assert job["entrypoint"] == (
        "python -P -m service.driver.preflight && exec python -P -m service.driver --study=s1 --url=http://tuner:8080 "
        "--folder=s3://bucket/x --address=auto"
    )
    environment = job["runtime_env"]["env_vars"]
    assert environment["DRIFTLINE_TOKEN"] == "secret"
    assert (environment["DATA_DIR"], environment["OMP_NUM_THREADS"]) == ("/data", "1")
    assert int(environment["RAY_JOB_STOP_WAIT_TIME_S"]) >= 120
    name, content = package()
    assert job["runtime_env"]["py_modules"] == [f"gcs://{name}"]
    assert ray.packages == {name: content}
    assert job["metadata"]["study"] == "s1"
    assert made.seen("s1") == Seen(True, "its Ray job is pending: queued")
    job["status"] = "RUNNING"
    made._listed = (float("-inf"), [])
    assert made.seen("s1") == Seen(True)
    assert launcher(ray).seen("s1") == Seen(True)  # after a restart
    launcher(ray).start(STUDY)
    assert len(ray.jobs) == 1
    assert sum(line.startswith("PUT") for line in ray.asked) == 1


def test_a_driver_that_died_says_why_and_is_started_again_under_its_name(ray: FakeRay) -> None:
    made = launcher(ray)
    made.start(STUDY)
    ray.jobs["driftline-s1-1"] |= {"status": "FAILED", "message": "exit code 1", "driver_exit_code": 1}
    ray.logs["driftline-s1-1"] = "one\n\x1b[31mtwo\x1b[0m\n\nthree\nfour\n"
    seen = launcher(ray).seen("s1")
    assert seen == Seen(False, "its Ray job failed: two | three | four")
    made.start(STUDY)  # it never took the study: the attempt is the same
    assert ray.jobs["driftline-s1-1"]["status"] == "PENDING"
    assert ray.asked.count("DELETE /api/jobs/driftline-s1-1") == 1
    made.stop("s1")
    assert made.seen("s1") == Seen(False)
    made.stop("s1")
    made.stop("nothing")
    ray.jobs["driftline-s1-1"] |= {"status": "FAILED", "message": "the node\nwas lost"}
    ray.logs.clear()
    assert launcher(ray).seen("s1").reason == "its Ray job failed: the node was lost"


def test_a_driver_that_hangs_is_alive_until_ray_has_ended_its_job(
    ray: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = launcher(ray)
    made.start(STUDY)
    ray.jobs["driftline-s1-1"]["status"] = "RUNNING"
    ray.hangs = True

    def asked(what: str) -> int:
        return ray.asked.count(f"{what} /api/jobs/driftline-s1-1" + ("/stop" if what == "POST" else ""))

    for _ in range(3):
        made.kill("s1")
        made._listed = (float("-inf"), [])
        assert made.seen("s1") == Seen(True, "Ray has not ended its job driftline-s1-1 yet")
    assert (asked("POST"), asked("DELETE")) == (1, 0)  # Ray ends it with SIGKILL
    monkeypatch.setattr(ray_jobs, "_LATE_S", -made._config.stop_seconds)
    made.kill("s1")
    assert asked("DELETE") == 1
    made._listed = (float("-inf"), [])
    assert made.seen("s1").alive  # Ray refused
    ray.deletes = True
    made.kill("s1")
    made._listed = (float("-inf"), [])
    assert made.seen("s1") == Seen(False)
    made.kill("s1")
    made.start(Launch("s1", "small", "vision", "secret", 2))
    assert list(ray.jobs) == ["driftline-s1-2"]
    assert made.seen("s1").reason == "its Ray job is pending: queued"


def test_a_later_attempt_counts(ray: FakeRay) -> None:
    made = launcher(ray)
    made.start(STUDY)
    ray.jobs["driftline-s1-1"]["status"] = "FAILED"
    made.start(Launch("s1", "small", "vision", "secret", 2))
    assert made.seen("s1").alive
    assert set(ray.jobs) == {"driftline-s1-1", "driftline-s1-2"}


@pytest.mark.parametrize(
    ("nodes", "gpus", "reason"),
    [
        ([{"CPU": 1.0}, {"GPU": 1.0}], None, r"a pack needs 2 CPU and 0 GPU .* have 0 CPU and 1 GPU, 1 CPU and 0 GPU"),
        ([{"CPU": 8.0, "GPU": 1.0}], 2.0, "a pack needs 2 CPU and 2 GPU"),
        ([{"CPU": 8.0, "GPU": 1.0}], 0.5, None),
        ([{"CPU": 8.0}], None, None),
    ],
)
def test_resources_are_checked_before_anything_is_submitted(
    ray: FakeRay, nodes: list[dict[str, float]], gpus: float | None, reason: str | None
) -> None:
    ray.nodes = nodes
    made = launcher(ray, node_seconds=0)
    launch = Launch("s1", "small", "vision", "secret", 1, cpus=2.0, gpus=gpus)
    made.start(launch)
    seen = made.seen("s1")
    assert bool(ray.jobs) is seen.alive is (reason is None)
    if reason is not None:
        assert seen.hopeless
        assert re.search(reason, seen.reason)
        made.stop("s1")
        assert made.seen("s1") == Seen(False)
        launcher(ray, autoscaling=True).start(launch)
        assert ray.jobs


def test_a_node_that_comes_up_is_waited_for(ray: FakeRay) -> None:
    ray.nodes = []
    made = launcher(ray)
    made.start(STUDY)
    seen = made.seen("s1")
    assert (seen.alive, seen.hopeless, bool(ray.jobs)) == (True, False, False)
    assert seen.reason.startswith("waits for a node: a pack needs 2 CPU and 0 GPU")
    assert seen.reason.endswith("have nothing yet")
    made.stop("s1")
    ray.nodes = [{"CPU": 2.0}]
    made.start(replace(STUDY, nodes=2))
    assert "a pack needs 2 CPU and 0 GPU on each of 2 nodes, the nodes" in made.seen("s1").reason
    ray.nodes = [{"CPU": 2.0}, {"CPU": 4.0}]
    assert made.seen("s1") == Seen(True)
    assert list(ray.jobs) == ["driftline-s1-1"]


def test_an_old_ray_is_refused(ray: FakeRay) -> None:
    ray.version = "2.54.1"
    made = launcher(ray)
    made.start(STUDY)
    seen = made.seen("s1")
    assert seen == Seen(False, "the Ray cluster must run Ray 2.58 or newer, it runs 2.54.1: upgrade it", hopeless=True)


def test_a_python_without_what_a_driver_needs_is_hopeless(ray: FakeRay) -> None:
    launcher(ray).start(STUDY)
    ray.jobs["driftline-s1-1"] |= {"status": "FAILED", "message": "exit code 79", "driver_exit_code": preflight.UNFIT}
    ray.logs["driftline-s1-1"] = (
        "...\nthe Ray cluster must have what a driver needs: torch 2.13 or newer, it has none\n"
    )
    seen = launcher(ray).seen("s1")
    assert seen.hopeless
    assert seen.reason == "the Ray cluster must have what a driver needs: torch 2.13 or newer, it has none"


def test_dropped_connections_are_taken_up_again(ray: FakeRay) -> None:
    made = launcher(ray)
    ray.drops = 2
    made.start(STUDY)
    assert ray.jobs
    ray.drops = 99
    made._listed = (float("-inf"), [])
    with pytest.raises(Unavailable, match="must answer, got: connection dropped"):
        made.seen("s1")
    ray.drops = 0
    ray.jobs.clear()  # the head was lost, and with it all it knew
    ray.packages.clear()
    assert made.seen("s1") == Seen(False)
    made.start(STUDY)
    assert ray.jobs
    assert ray.packages


def test_a_submission_whose_answer_is_lost_makes_one_job(ray: FakeRay) -> None:
    made = launcher(ray)
    answered = ray.__class__.__call__

    def lossy(request: httpx.Request) -> httpx.Response:
        answer = answered(ray, request)
        if request.method == "POST" and request.url.path == "/api/jobs/" and ray.asked.count("POST /api/jobs/") == 1:
            raise httpx.ReadError("lost on the way back")
        return answer

    made._ray = Dashboard("http://head", "ray-token", transport=httpx.MockTransport(lossy), sleep=lambda seconds: None)
    made.start(STUDY)
    assert list(ray.jobs) == ["driftline-s1-1"]
    assert ray.jobs["driftline-s1-1"]["status"] == "PENDING"


def test_a_wrong_token_is_said(ray: FakeRay) -> None:
    with pytest.raises(Unavailable, match=r"refuses the token \(401\)"):
        launcher(ray, token="other").start(STUDY)


def test_only_our_jobs_of_studies_that_no_longer_exist_are_ended(ray: FakeRay) -> None:
    launcher(ray).start(STUDY)
    launcher(ray).start(Launch("s2", "other", "vision", "secret", 1))
    for name, metadata in (("mine", {}), ("driftline-s3-1", {"study": "s3", "service": "http://another"})):
        ray.jobs[name] = {"submission_id": name, "status": "RUNNING", "message": "", "metadata": metadata}
    launcher(ray).collect({"s1"})
    stopped = [name for name, job in ray.jobs.items() if job["status"] == "STOPPED"]
    assert stopped == ["driftline-s2-1"]


def test_the_token_of_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    plain = Config(address="http://head:8265")
    with pytest.raises(InvalidSpec, match="must be given with auth"):
        plain.token()
    assert Config(address="http://head:8265", auth="disabled").token() is None
    file = tmp_path / "token"
    file.write_text("from-file\n")
    assert Config(address="http://head:8265", token_file=str(file)).token() == "from-file"
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(file))
    assert plain.token() == "from-file"
    monkeypatch.setenv("RAY_AUTH_TOKEN", "from-environment")
    assert plain.token() == "from-environment"
    with pytest.raises(InvalidSpec, match="must name a file"):
        Config(address="x", token_file=str(tmp_path / "none")).token()
    build(plain, url=URL, checkpoints="x", logs=tmp_path).close()


def test_the_package_holds_what_a_driver_imports_and_nothing_else() -> None:
    name, content = package()
    names = set(zipfile.ZipFile(io.BytesIO(content)).namelist())
    assert {
        "driftline/__init__.py",
        "service/driver/__main__.py",
        "trainers/run.py",
        "search_spaces/parameters.py",
    } <= names
    assert any(entry.endswith(".dist-info/METADATA") for entry in names)
    assert not any("tests/" in entry or "__pycache__" in entry for entry in names)
    package.cache_clear()
    assert package()[0] == name  # the same content, the same name


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert preflight.missing() == []
    assert preflight.missing(("no-such-package",)) == ["no-such-package 0 or newer, it has none"]
    with monkeypatch.context() as patched:
        patched.setattr(
            preflight,
            "requires",
            lambda name: ["ray[tune]<99.1,>=99.0; extra == 'local'", "torch>=98.5,<98.6; extra == 'x'"],
        )
        assert preflight.missing(("ray",))[0].startswith("ray 99.0 or newer, it has ")
        assert preflight.missing(("torch",)) == []
        patched.setattr(preflight, "requires", lambda name: ["torch >=98.5, <98.6"])
        assert preflight.missing(("torch",))[0].startswith("torch 98.5 or newer, it has ")
    monkeypatch.setattr(preflight, "version", lambda name: "2.9.1+cpu")
    (only,) = preflight.missing(("torch",))
    assert re.fullmatch(r"torch 2\.\d+ or newer, it has 2\.9\.1\+cpu", only)
    monkeypatch.setattr(sys, "version_info", (3, 10, 2))
    assert preflight.missing(())[0].startswith("Python 3.11 or newer, it has ")
