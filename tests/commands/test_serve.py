"""`driftline serve` and `driftline migrate`: a service as processes, from the first start to SIGTERM."""

import ctypes
import fcntl
import os
import signal
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import Result

from driftline.errors import InvalidSpec, Unavailable
from service.cli import serve
from service.server import compose
from service.server.home import ADMIN_TOKEN, SECRET, kept
from service.settings import read_service
from service.sqlite_address import sqlite_file
from service.store import database
from tests.clients import EveryClient
from tests.commands.processes import Processes
from tests.ports import free_port
from tests.waiting import until


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    made = Processes(tmp_path / "home", DRIFTLINE_MLFLOW_URL="none")
    yield made
    made.end()


def test_the_first_start_makes_what_is_needed_and_says_how_to_go_on(processes: Processes) -> None:
    port = free_port()
    process = processes.start("--port", str(port))
    until(lambda: processes.ready(port), 120)
    for name in (SECRET, ADMIN_TOKEN):
        assert stat.S_IMODE((processes.home / name).stat().st_mode) == 0o600
    assert stat.S_IMODE((processes.home / "driftline.db").stat().st_mode) == 0o600
    token = (processes.home / ADMIN_TOKEN).read_text().strip()
    until(lambda: "driftline submit" in processes.said())
    assert f"DRIFTLINE_URL=http://127.0.0.1:{port}" in processes.said()
    assert token not in processes.said()
    with EveryClient(f"http://127.0.0.1:{port}", token) as client:
        assert (client.whoami().name, client.whoami().project) == ("admin token", "default")
    interrupts_no_wait(process.pid)
    assert process.wait(30) == 0
    assert "Traceback" not in processes.said()
    assert processes.said().rstrip().endswith("Ended.")


def interrupts_no_wait(pid: int) -> None:
    """Sends SIGTERM to another thread than the main one.

    Python notes the signal and the main thread's wait goes on: as after a signal that comes just before the wait.
    """
    thread = max(int(task.name) for task in Path(f"/proc/{pid}/task").iterdir())
    assert thread != pid
    assert ctypes.CDLL(None).tgkill(pid, thread, signal.SIGTERM) == 0


def test_a_second_start_uses_what_is_kept(tmp_path: Path) -> None:
    settings = read_service({"DRIFTLINE_HOME": str(tmp_path / "home"), "DRIFTLINE_MLFLOW_URL": "none"})
    first = compose.Service(settings, host="127.0.0.1", port=0, only="api")
    token = (tmp_path / "home" / ADMIN_TOKEN).read_text().strip()
    port = int(first.url.rpartition(":")[2])
    with pytest.raises(Unavailable, match=rf"port {port} of 127.0.0.1 must be free"):
        compose.Service(settings, host="127.0.0.1", port=port, only="api")
    second = compose.Service(settings, host="127.0.0.1", port=0, only="api")
    assert (first.first, second.first) == (True, False)
    with EveryClient(second.url, token) as client:
        assert client.studies() == []
    with httpx.Client(base_url=second.url) as browser:
        assert browser.post("/sign-in", data={"token": token}).status_code == 303
        assert "<h1>Studies</h1>" in browser.get("/").text
    first.close()
    second.close()


def test_a_scheduler_alone_answers_probes_and_nothing_else(tmp_path: Path) -> None:
    settings = read_service({"DRIFTLINE_HOME": str(tmp_path / "home"), "DRIFTLINE_MLFLOW_URL": "none"})
    service = compose.Service(settings, host="127.0.0.1", port=0, only="scheduler")
    with httpx.Client(base_url=service.url) as http:
        assert http.get("/readyz").status_code == 200
        assert http.get("/healthz").status_code == http.get("/metrics").status_code == 200
        assert http.get("/v1/studies").status_code == 404
        assert http.get("/openapi.json").status_code == http.get("/").status_code == 404
    assert not (tmp_path / "home" / ADMIN_TOKEN).exists()
    service.close()


@pytest.mark.parametrize(("host", "warned"), [("0.0.0.0", True), ("127.0.0.1", False)])
def test_an_outside_address_comes_with_a_warning(
    host: str, warned: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = read_service({"DRIFTLINE_HOME": str(tmp_path / "home"), "DRIFTLINE_MLFLOW_URL": "none"})
    service = compose.Service(settings, host=host, port=0, only="api")
    serve.say(service, settings, host, "api")
    said = capsys.readouterr().err
    assert ("TLS" in said) is warned
    assert f"export DRIFTLINE_URL=http://127.0.0.1:{service.url.rpartition(':')[2]} " in said
    service.close()


def test_the_command_passes_on_how_many_studies_of_a_project_may_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., Result]
) -> None:
    monkeypatch.setenv("DRIFTLINE_HOME", str(tmp_path))
    monkeypatch.setenv("DRIFTLINE_LAUNCHER", "kubernetes")
    monkeypatch.setattr(serve.signal, "signal", lambda *_: None)
    given: dict[str, Any] = {}

    def made(_settings: object, **options: Any) -> None:
        given.update(options)
        raise Unavailable("the command has come this far")

    monkeypatch.setattr(serve, "Service", made)
    assert isinstance(run("serve", "--per-project", 1).exception, Unavailable)
    assert given["per_project"] == 1


def test_a_service_that_waits_for_its_database_ends_when_told_to(processes: Processes) -> None:
    nobody = f"postgresql://nobody@127.0.0.1:{free_port()}/none"
    process = processes.start("--port", str(free_port()), DRIFTLINE_DATABASE_URL=nobody)
    until(lambda: "waiting for the database" in processes.said())
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0  # it would wait for a minute
    assert processes.said().endswith("Ended before it was ready.\n")


def test_a_database_is_migrated_as_often_as_one_likes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "folder" / "service.db"
    said = []
    for step in ("fresh", "again", "old"):
        if step == "old":
            old = database.Database(file, upgraded=False)
            database.downgrade(old, "0007")
            old.close()
        serve.migrate(f"sqlite:///{file}")
        said.append(capsys.readouterr().err)
    head = database.migrate(file)[1]
    ends = ("it was empty", "nothing to do", "it was at 0007")
    assert [text.split(", ")[1] for text in said] == [f"{head} ({end}).\n" for end in ends]


def test_all_processes_get_one_secret(tmp_path: Path) -> None:
    for home in (tmp_path / str(number) for number in range(30)):  # one try alone seldom meets another at work
        home.mkdir(mode=0o700)
        draft = home / f".{SECRET}.part"
        draft.write_text("of a process that died")
        draft.chmod(0o600)
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(lambda _, home=home: kept(home, SECRET), range(8)))
        assert len({text for text, _ in found}) == 1
        assert sum(made for _, made in found) == 1
        assert len(found[0][0]) >= 40
        assert [path.name for path in home.iterdir()] == [SECRET]
        assert stat.S_IMODE((home / SECRET).stat().st_mode) == 0o600
    (home / SECRET).write_text("")
    with pytest.raises(InvalidSpec, match="empty file"):
        kept(home, SECRET)


def test_nobody_else_can_open_a_secret_before_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[int] = []
    monkeypatch.setattr(fcntl, "flock", lambda file, _: modes.append(stat.S_IMODE(os.stat(file.fileno()).st_mode)))
    umask = os.umask(0)
    try:
        kept(tmp_path, SECRET)
    finally:
        os.umask(umask)
    assert modes == [0o600]


def test_settings_that_cannot_be_right_are_said_before_anything_is_opened(tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    with pytest.raises(InvalidSpec, match="DRIFTLINE_LAUNCHER: must be one of kubernetes, local, ray_jobs"):
        compose.Service(read_service({"DRIFTLINE_HOME": home, "DRIFTLINE_LAUNCHER": "cloud"}), host="::1", port=0)
    assert not Path(home).exists()
    with pytest.raises(InvalidSpec, match="must be api or scheduler, got 'ui'"):
        serve.serve("127.0.0.1", None, "ui", None)
    file = tmp_path / "limits.yaml"
    file.write_text("requests_per_secnd: 3")
    with pytest.raises(InvalidSpec, match="requests_per_second"):
        compose.Service(read_service({"DRIFTLINE_HOME": home, "DRIFTLINE_LIMITS": str(file)}), host="127.0.0.1", port=0)
    file.write_text("- 3")
    with pytest.raises(InvalidSpec, match="must hold a mapping"):
        compose.read_yaml(file, "DRIFTLINE_LIMITS")
    file.write_text("studies: 1e3\nburst: 010\nburst: 20")
    with pytest.raises(InvalidSpec, match=r"^DRIFTLINE_LIMITS: .*limits.yaml: line 3, .*.burst. is given twice"):
        compose.read_yaml(file, "DRIFTLINE_LIMITS")
    file.write_text("studies: 1e3\nburst: 010")
    assert compose.read_yaml(file, "DRIFTLINE_LIMITS") == {"studies": 1000, "burst": 10}
    with pytest.raises(InvalidSpec, match="must start with http"):
        read_service({"DRIFTLINE_API_URL": "tuner:8080"})
    config = tmp_path / "launcher.yaml"
    config.write_text("cpus: 3")
    values = {"DRIFTLINE_HOME": home, "DRIFTLINE_LAUNCHER_CONFIG": str(config), "DRIFTLINE_MLFLOW_URL": ""}
    with pytest.raises(InvalidSpec, match="num_cpus"):
        compose.Service(read_service(values), host="127.0.0.1", port=0)


def test_settings() -> None:
    plain = read_service({"DRIFTLINE_HOME": "/srv/tuner"})
    assert plain.mlflow_url == "sqlite:////srv/tuner/mlflow.db"
    assert plain.mlflow_artifacts == "file:///srv/tuner/mlartifacts"
    escaped = read_service({"DRIFTLINE_HOME": "/srv/a?b%2F"})
    assert sqlite_file(escaped.database) == Path("/srv/a?b%2F/driftline.db")
    assert sqlite_file(str(escaped.mlflow_url)) == Path("/srv/a?b%2F/mlflow.db")
    with pytest.raises(InvalidSpec, match="DRIFTLINE_MLFLOW_URL: SQLite has no option 'b'"):
        read_service({"DRIFTLINE_MLFLOW_URL": "sqlite:////srv/a?b=2/mlflow.db"})
    with pytest.raises(InvalidSpec, match="DRIFTLINE_HOME: must have a name of valid UTF-8"):
        read_service({"DRIFTLINE_HOME": os.fsdecode(b"/srv/\xff")})
    assert (plain.checkpoints, plain.launcher, plain.api_url) == ("/srv/tuner/checkpoints", "local", None)
    shared = read_service({"DRIFTLINE_DATABASE_URL": "postgresql://db/x", "DRIFTLINE_CHECKPOINTS": "s3://bucket/x"})
    assert (shared.mlflow_url, shared.checkpoints) == (None, "s3://bucket/x")
    server = read_service({"DRIFTLINE_MLFLOW_URL": "http://mlflow:5000", "DRIFTLINE_API_URL": "http://api:8080/"})
    assert (server.mlflow_url, server.mlflow_artifacts) == ("http://mlflow:5000", None)
    assert server.api_url == "http://api:8080"
