"""The commands that speak to a service, against a real one."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import Result

from driftline import Client, Study
from driftline.client.environment import environment
from driftline.errors import Conflict, Forbidden, InvalidSpec, NotFound, QuotaExceeded, Unauthorized, Unavailable
from driftline.sdk.job import StudyFailed
from service.cli import jobs
from service.server.compose import Service
from tests.clients import EveryClient
from tests.waiting import until
from tests.web_server import serving

from .conftest import Drivers

Run = Callable[..., Result]


def api() -> EveryClient:
    return EveryClient(environment().url or "", environment().token)


def test_a_study_from_submission_to_comparison(service: Service, run: Run, study_file: Path) -> None:
    done = run("submit", study_file, "--wait")
    assert done.exit_code == 0, done.output
    assert "fedavg: recommendations" in done.stdout
    assert "succeeded | fedavg 3/3 search trials, 3/3 confirmation trials" in done.stderr
    (record,) = json.loads(run("list", "--json").stdout)
    assert (record["name"], record["state"]) == ("small", "SUCCEEDED")
    heading, line = run("list").stdout.splitlines()
    assert heading.split() == ["id", "state", "submitted", "(UTC)", "rounds", "owner", "name"]
    assert line.startswith(f"{record['id']}  succeeded ")
    assert line.endswith("  100 %  admin token  small")
    assert (record["owner"], record["project"]) == ("admin token", "default")
    assert run("list").stderr == "Project default\n"
    assert len(json.loads(run("list", "--json", "--state", "Succeeded", "--state", "failed").stdout)) == 1
    none = run("list", "--state", "running")
    assert (none.stdout, none.stderr) == ("", "No studies in state running\n")
    refused = run("list", "--state", "runing").exception
    assert str(refused) == '--state: no state "runing": did you mean running?'
    assert "fedavg: recommendations" in run("frontier", "small").stdout
    document = json.loads(run("frontier", record["id"], "--json").stdout)
    assert set(document["methods"]) == {"fedavg", "fedsgd"}
    other = json.loads(run("frontier", "small", "--json", "--cost", "client_gradients").stdout)
    assert other["definitions"]["cost"] != document["definitions"]["cost"]
    assert isinstance(run("frontier", "small", "--quality", "los").exception, InvalidSpec)
    at = run("frontier", "small", "--at", "2")
    assert at.stdout.startswith("For up to 2 rounds: ")
    assert {line.split()[0] for line in at.stdout.splitlines()[1:]} == {"fedavg", "fedsgd"}
    said = json.loads(run("compare", "small", "fedavg", "fedsgd", "--at", "0.002k", "--json").stdout)
    assert said["advice"] == at.stdout.splitlines()[0]
    assert {row["label"] for row in said["offers"]} == set(document["methods"])
    refused = run("frontier", "small", "--at", "2 rounds").exception
    assert str(refused) == '--at: must be a positive number such as 20, 392.4k or 1.5M, got "2 rounds"'
    assert run("frontier", "small", "--importance").stdout.startswith("method")
    rows = json.loads(run("frontier", "small", "--importance", "--json").stdout)
    assert {row["label"] for row in rows} == set(document["methods"])
    assert isinstance(run("frontier", "small", "--importance", "--at", "2").exception, InvalidSpec)
    verdict = run("compare", "small", "fedavg", "fedsgd")
    assert verdict.exit_code == 0
    assert verdict.stdout.strip()
    assert json.loads(run("compare", "small", "fedavg", "fedsgd", "--json").stdout)["why"] in verdict.stdout
    assert isinstance(run("compare", "small", "fedavg", "fedprox").exception, NotFound)
    watched = run("watch", "small")
    assert (watched.exit_code, "small: succeeded" in watched.stderr) == (0, True)


def test_a_service_validates_and_estimates(service: Service, run: Run, study_file: Path) -> None:
    document = json.loads(run("validate", study_file, "--json").stdout)
    assert (document["spec"]["name"], document["estimate"]["seconds"]) == ("small", None)
    done = run("validate", study_file)
    assert done.exit_code == 0, done.output
    assert "2 methods (fedavg, fedsgd), each 3 search trials and 3 confirmation trials on 3 fresh seeds" in done.stdout
    assert "time: unknown; without a service, driftline validate measures it" in done.stdout
    assert "time:" not in run("validate", study_file, "--no-estimate").stdout
    with Client() as client:
        checked = client.validate(Study.from_yaml(study_file))
        assert checked.estimate is not None
        assert checked.estimate.trials == 12
        assert checked.estimate.rounds == 12 * Study.from_json(checked.spec).budget.rounds
        assert client.validate(Study.from_yaml(study_file), estimate=False).estimate is None
    assert json.loads(run("list", "--json").stdout) == []


def test_pause_resume_cancel_and_extend(service: Service, run: Run, study_file: Path, gate: threading.Event) -> None:
    gate.clear()
    study = run("submit", study_file).stdout.strip()
    with api() as client:
        until(lambda: client.study(study).state == "RUNNING")
        assert "pausing" in run("pause", study).stdout
        gate.set()
        until(lambda: client.study(study).state == "PAUSED")
        waited = run("watch", study)
        assert waited.exit_code == 1
        assert f"resume it with  driftline resume {study}" in waited.stderr
        assert json.loads(run("resume", study, "--json").stdout)["state"] in ("PENDING", "RUNNING")
        until(lambda: client.study(study).state == "SUCCEEDED")
        assert isinstance(run("cancel", study).exception, Conflict)
        assert isinstance(run("extend", study).exception, InvalidSpec)
        assert run("extend", study, "--trials", 5).exit_code == 0
        until(lambda: client.study(study).state == "SUCCEEDED")
        assert len(client.trials(study, phase="search")) == 2 * 5
        assert isinstance(run("extend", study, "--trials", 2).exception, InvalidSpec)
        gate.clear()
        second = run("submit", study_file).stdout.strip()
        for no in ("n\n", ""):
            refused = run("cancel", second, input=no)
            assert refused.exit_code == 1
            assert f"Cancel small ({second}), " in refused.stderr
        assert client.study(second).state != "CANCELLED"
        assert run("cancel", second, input="y\n").exit_code == 0
        gate.set()
        until(lambda: client.study(second).state == "CANCELLED")
        assert run("submit", study_file, "--key", "one").stdout == run("submit", study_file, "--key", "one").stdout


def test_a_submission_without_an_answer_is_repeated_and_makes_one_study(
    service: Service, run: Run, study_file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    send = httpx.Client.request

    def unheard(http: httpx.Client, *arguments: Any, **options: Any) -> httpx.Response:
        send(http, *arguments, **options)
        raise httpx.ReadTimeout("timed out")

    with api() as client:
        before = len(client.studies())
        with monkeypatch.context() as patch:
            patch.setattr(httpx.Client, "request", unheard)
            patch.setattr("driftline.client.connection.PAUSE_S", 1e9)
            said = str(run("submit", study_file).exception)
        assert "timed out; the study may exist: submit it again with the key " in said
        assert "\n" not in said
        [made, *others] = client.studies()
        assert len(others) == before
        repeated = run("submit", study_file)
        assert repeated.stdout.strip() == made.id
        assert said.split("with the key ")[1].split(",")[0] in repeated.stderr
        assert run("submit", study_file).stdout.strip() != made.id, "another one is wanted now"
        assert list((tmp_path / "cache").rglob("*-*")) == [], "a file for each submission without an answer"


def test_a_service_that_is_away_has_made_nothing(
    run: Run, study_file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("driftline.client.connection.PAUSE_S", 1e9)
    error = run("submit", study_file, "--url", "http://127.0.0.1:9").exception
    assert isinstance(error, Unavailable)
    assert "may exist" not in str(error)
    assert not (tmp_path / "cache").exists()


def test_delete_asks_first(
    service: Service, run: Run, study_file: Path, gate: threading.Event, drivers: Drivers
) -> None:
    drivers.fail = "no room"
    study = run("submit", study_file).stdout.strip()
    with api() as client:
        until(lambda: client.study(study).state == "FAILED")
        for no in ("n\n", ""):
            refused = run("delete", "small", input=no)
            assert refused.exit_code == 1
            asked = f"Delete small ({study}), failed, 0 trials, with curves, checkpoints, logs and runs in MLflow?"
            assert asked in refused.stderr
        assert client.study(study).state == "FAILED"
        assert run("delete", "small", input="y\n").stdout.endswith(f"small ({study}): deleted\n")
        assert isinstance(run("delete", study, "--yes").exception, NotFound)
        drivers.fail = ""
        gate.clear()
        running = run("submit", study_file).stdout.strip()
        until(lambda: client.study(running).state == "RUNNING")
        assert isinstance(run("delete", running, "--yes").exception, Conflict)
        run("cancel", running, "--yes")
        gate.set()
        until(lambda: client.study(running).state == "CANCELLED")
        gone = json.loads(run("delete", running, "--yes", "--json").stdout)
        assert (gone["id"], gone["name"], gone["state"]) == (running, "small", "CANCELLED")
        assert run("list", "--json").stdout.strip() == "[]"


def test_failed_trials_are_retried(service: Service, run: Run, study_file: Path, drivers: Drivers) -> None:
    drivers.deaths = 6  # two trials' three
    assert run("submit", study_file, "--wait").exit_code == 0
    with api() as client:
        (study,) = client.studies()
        failed = [trial.id for trial in client.trials(study.id, state="FAILED")]
        assert len(failed) == 2
        shown = run("retry", "small", "--trial", failed[0])
        assert (shown.exit_code, shown.stdout.startswith(f"small ({study.id}): ")) == (0, True)
        until(lambda: client.study(study.id).state == "SUCCEEDED")
        assert [trial.id for trial in client.trials(study.id, state="FAILED")] == failed[1:]
        assert json.loads(run("retry", study.id, "--json").stdout)["state"] in ("PENDING", "RUNNING")
        until(lambda: client.study(study.id).state == "SUCCEEDED")
        assert client.trials(study.id, state="FAILED") == []
        assert isinstance(run("retry", "small").exception, Conflict)


def test_logs(service: Service, run: Run, study_file: Path, gate: threading.Event) -> None:
    from driftline.wire.logs import NewLine

    gate.clear()
    study = run("submit", study_file).stdout.strip()
    with api() as client:
        until(lambda: client.study(study).state == "RUNNING")
        token = service_token(service, study)
    with EveryClient(service.url, token) as driver:
        lines = [NewLine(at=1.8e9 + number, level="info", text=f"line {number}") for number in range(1100)]
        lines[-1] = lines[-1].model_copy(update={"text": "line 1099\nforged \u202e\x1b]0;title\x07"})
        driver.send_logs(study, 1, lines[:600])
        driver.send_logs(study, 1, lines[600:])
    shown = run("logs", study).stdout.splitlines()
    assert [line.rpartition("  ")[2].strip() for line in (shown[0], shown[-1])] == [
        "line 0",
        r"line 1099\nforged \u202e\u001b]0;title\u0007",
    ]
    assert json.loads(run("logs", "small", "--json").stdout.splitlines()[5])["text"] == "line 5"
    threading.Timer(0.5, gate.set).start()
    followed = run("logs", study, "--follow")
    assert followed.exit_code == 0
    assert len(followed.stdout.splitlines()) == 1100


def service_token(service: Service, study: str) -> str:
    from service.api.auth.tokens import Tokens

    secret = (service._settings.home / "secret").read_text().strip()
    return Tokens({}, secret.encode()).driver(study)


def test_tokens(service: Service, run: Run, study_file: Path, tmp_path: Path) -> None:
    assert run("whoami").stdout.startswith("admin token: project default, may admin")
    made = run("token", "create", "laptop", "--project", "vision", "--scope", "read", "--days", 7)
    assert made.exit_code == 0
    file = tmp_path / "token"
    file.write_text(made.stdout)
    own = json.loads(run("whoami", "--token-file", file, "--json").stdout)
    assert (own["name"], own["project"], own["scopes"]) == ("laptop", "vision", ["read"])
    assert own["expires_at"] is not None
    assert run("list", "--token-file", file).stdout == ""
    assert isinstance(run("submit", study_file, "--token-file", file).exception, Forbidden)
    assert isinstance(run("token", "create", "x", "--scope", "everything").exception, InvalidSpec)
    for option, value, rule in (("--days", -1, "must be above 0"), ("--project", "a b", "must match pattern")):
        error = run("token", "create", "x", option, value).exception
        assert isinstance(error, InvalidSpec)
        assert str(error).startswith(f"{option}: {rule}")
    assert str(run("quota", "--trials", -5).exception).startswith("--trials: must be at least 0")
    empty = tmp_path / "empty"
    empty.write_text("\n")
    assert "which is empty" in str(run("list", "--token-file", empty).exception)
    assert "laptop" in run("token", "list").stdout
    (record,) = json.loads(run("token", "list", "--json").stdout)
    assert run("token", "revoke", record["id"]).stdout == f"{record['id']}: revoked\n"
    revoked = json.loads(run("token", "revoke", record["id"], "--json").stdout)
    assert (revoked["id"], revoked["name"], record["revoked_at"]) == (record["id"], "laptop", None)
    assert revoked["revoked_at"] is not None
    assert isinstance(run("whoami", "--token-file", file).exception, Unauthorized)
    assert isinstance(run("token", "revoke", "nothing").exception, NotFound)


def test_quotas(service: Service, run: Run, study_file: Path, gate: threading.Event, tmp_path: Path) -> None:
    assert run("quota").stdout.splitlines()[:2] == [
        "default: the service's limits",
        "  unfinished studies   0 of unlimited",
    ]
    assert run("quota", "default", "--studies", 1, "--gpu-hours", 2.5).exit_code == 0
    assert run("quota", "default", "--trials", 500).stdout.splitlines() == [
        "default: its own limits",
        "  unfinished studies   0 of 1",
        "  trials in these      0 of 500",
        "  GPU-hours            0 of 2.5",
        "  curves               0.0 MB in 0 rows",
        "  finished studies     are kept forever",
    ]
    assert run("quota", "default", "--retention-days", "30").stdout.splitlines()[-1] == (
        "  finished studies     are deleted 30 days after their end"
    )
    assert run("quota", "default", "--gpu-hours-pause", "yes").stdout.splitlines()[3] == (
        "  GPU-hours            0 of 2.5, then studies are paused"
    )
    gate.clear()
    assert run("submit", study_file).exit_code == 0
    refused = run("submit", study_file)
    assert isinstance(refused.exception, QuotaExceeded)
    assert "may have 1 studies, and has 1" in str(refused.exception)
    assert run("quota", "default", "--studies", "none").exit_code == 0
    assert run("submit", study_file).exit_code == 0
    found = json.loads(run("quota", "--json").stdout)
    limits = {"studies": None, "trials": 500, "gpu_hours": 2.5, "gpu_hours_pause": True, "retention_days": 30}
    assert (found["limits"], found["use"]["studies"]) == (limits, 2)
    for wrong in (("--retention-days", "0"), ("--gpu-hours-pause", "maybe"), ("--studies", "many")):
        assert isinstance(run("quota", "default", *wrong).exception, InvalidSpec), wrong
    file = tmp_path / "token"
    file.write_text(run("token", "create", "ann").stdout)
    assert run("quota", "--token-file", file).exit_code == 0
    assert isinstance(run("quota", "vision", "--token-file", file).exception, Forbidden)


def test_errors_say_what_to_do(
    service: Service, run: Run, study_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = run("pause", "nothing").exception
    assert isinstance(found, NotFound)
    assert "have: none yet" in str(found)
    assert isinstance(run("list", "--url", "ftp://x").exception, InvalidSpec)
    assert isinstance(run("list", "--token-file", tmp_path / "no").exception, InvalidSpec)
    broken = tmp_path / "broken.yaml"
    broken.write_text(study_file.read_text().replace("fedavg", "fedavgg"))
    assert "fedavg" in str(run("submit", broken).exception)
    monkeypatch.delenv("DRIFTLINE_URL")
    environment.cache_clear()
    assert "DRIFTLINE_URL" in str(run("list").exception)
    for command in ("frontier", "watch", "logs"):
        local = run(command, tmp_path).exception  # a folder: nothing is asked of a service
        assert "no study in" in str(local)
        assert "DRIFTLINE_URL" in str(local)


def test_a_study_that_fails_ends_the_command_with_1(service: Service, run: Run, study_file: Path, drivers: Any) -> None:
    drivers.fail = "no room"
    found = run("submit", study_file, "--wait").exception
    assert isinstance(found, StudyFailed)
    assert (found.exit_code, "no room" in str(found)) == (1, True)


def test_a_slow_service_is_named_on_stderr(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("driftline.client.connection.WAIT_S", 0.01)
    announced = threading.Event()
    say = jobs.say_waiting

    def say_waiting(url: str) -> None:
        say(url)
        announced.set()

    monkeypatch.setattr(jobs, "say_waiting", say_waiting)
    with serving() as server:
        server.put("/v1/studies", b'{"studies": []}')
        send = server.answers["/v1/studies"]
        server.answers["/v1/studies"] = lambda handler: send(handler) if announced.wait(60) else None
        url = server.url("")
        done = run("list", "--json", "--url", url)
    assert (done.exit_code, done.stdout) == (0, "[]\n")
    assert done.stderr == f"Waiting for an answer from {url} ...\n"
