"""The main job through the real parts: app, scheduler, driver, Ray Tune and MLflow in this process, over one folder."""

import asyncio
import contextlib
import csv
import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest
import yaml
from typer.testing import CliRunner

from driftline import AsyncClient, Client, Study, Time, compare, frontier
from driftline.errors import InvalidSpec
from service.cli.main import app
from service.cli.run import resume_study
from service.embedded.embedded_run import EmbeddedRun
from service.embedded.folder_results import stored_link
from service.store.store import Store
from tests import mlflow_warnings
from tests.command_line import printed, refusal
from tests.embedded.stored import in_mlflow, shown
from tests.waiting import until

RATE = {"float": [0.05, 0.5], "log": True}
PROX = {"float": [0.01, 1.0], "log": True}
STUDY: dict[str, Any] = {
    "name": "small",
    "task": {"name": "digits", "clients": 8, "partition": {"dirichlet": 0.3}},
    "methods": [
        {"name": "fedavg", "space": {"client_lr": RATE, "server_lr": 0.2, "local_steps": {"choice": [1, 5]}}},
        {"name": "fedprox", "space": {"client_lr": 0.1, "server_lr": 0.2, "local_steps": 5, "prox": PROX}},
    ],
    "batch_size": 10,
    "eval_every": 2,
    "sampler": "quasi_random",
    "objective": {"quality": "test_loss", "cost": "rounds"},
    "budget": {"trials_per_method": 4, "rounds": 20, "seeds": 3, "confirm": 2},
}
FILES = {"frontier.json", "frontier.html", "frontier.png", "frontier.svg", "trials.csv", "driftline.db", "mlflow.db"}

pytestmark = [pytest.mark.ray, *mlflow_warnings.IGNORED]


@contextlib.contextmanager
def among_files_of_the_user(folder: Path) -> Iterator[None]:
    """A working directory whose files hide modules for who looks there; nothing may import them."""
    folder.mkdir()
    for name in ("json", "mlflow", "numpy", "random", "service", "sklearn", "types"):
        (folder / f"{name}.py").write_text(
            f"open({str(folder / 'imported')!r}, 'a').write({name!r}); raise SystemExit(3)"
        )
    with contextlib.chdir(folder):
        yield
    assert not (folder / "imported").exists(), (folder / "imported").read_text()


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the finished study, run by the lines of the README."""
    folder = tmp_path_factory.mktemp("run")
    study = Study(**STUDY)
    client = Client(out=folder)
    with among_files_of_the_user(folder / "work"):
        job = client.submit(study)
        job.wait(progress=True)
    best = job.best(cost=10)
    front = job.frontier()
    assert best == front.best(cost=10)
    front.plot(folder / "picture.png")
    assert "fedavg" in front.table()
    assert job.mlflow_url == f"driftline ui {folder / 'small'}"  # no server runs: there is no link to give
    assert job.record().mlflow_url is None
    client.close()
    return folder / "small"


def test_everything_is_there(out: Path) -> None:
    assert {path.name for path in out.iterdir()} >= FILES
    assert (out.parent / "picture.png").read_bytes().startswith(b"\x89PNG")


def log_settings() -> tuple[int, bool, list[logging.Handler]]:
    """Where the messages of the package go."""
    logger = logging.getLogger("service")
    return logger.level, logger.propagate, list(logger.handlers)


def test_the_log_is_in_the_folder(out: Path) -> None:
    assert "SUCCEEDED" in (out / "driver.log").read_text()


def test_logging_goes_where_it_went_before_whichever_run_is_closed_first(tmp_path: Path) -> None:
    before = log_settings()
    first = EmbeddedRun(tmp_path / "first", Study(**STUDY))
    second = EmbeddedRun(tmp_path / "second", Study(**STUDY))
    first.close()
    assert log_settings() != before, "the second run has no log"
    second.close()
    assert log_settings() == before


def test_no_trial_is_left_over(out: Path) -> None:
    with (out / "trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["state"] for row in rows] == ["COMPLETE"] * 20
    assert {row["rounds_done"] for row in rows} == {"20"}
    assert len({row["trial"] for row in rows}) == 20


def test_mlflow_has_every_trial_and_label(out: Path) -> None:
    assert shown(out) == 20 + 2 + 1


@pytest.mark.parametrize("opened", ["ui", "run"])
def test_a_moved_folder_shows_its_own_artifacts(out: Path, tmp_path: Path, opened: str) -> None:
    """Opened in the UI, or run again: artifacts are read from the new place, and new ones are written there."""
    moved = tmp_path / "it's moved"
    shutil.copytree(out, moved)
    if opened == "ui":
        assert stored_link(moved, 5000).artifact_roots == ((moved / "mlartifacts").as_uri(),)
    else:
        with EmbeddedRun(moved) as run:
            run.finish()
    queries = ("SELECT artifact_uri FROM runs", "SELECT artifact_location FROM experiments WHERE name != 'Default'")
    places = [Path(url2pathname(urlsplit(uri).path)) for query in queries for uri in in_mlflow(moved, query)]
    assert len(places) > 20
    assert {place.parts[: len(moved.parts) + 1] for place in places} == {(moved / "mlartifacts").parts}
    pictures = [place for place in places if (place / "frontier.png").is_file()]
    assert len(pictures) == 1


def test_run_again_shows_what_is_finished(out: Path, tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(yaml.safe_dump(STUDY))
    before = (out / "frontier.json").read_bytes()
    done = CliRunner().invoke(app, ["run", str(file), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "finished" in done.stderr
    assert "starting Ray" not in done.stderr
    assert "fedprox" in done.stdout
    assert (out / "frontier.json").read_bytes() == before


def test_a_folder_keeps_the_code_of_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "studies").mkdir()
    net, file = tmp_path / "studies" / "net.py", tmp_path / "studies" / "own.yaml"
    net.write_text("from torch import nn\n\n\ndef make():\n    return nn.Linear(64, 10)\n")
    task = {"name": "digits", "clients": 5, "model": {"module": "net.py:make"}}
    file.write_text(yaml.safe_dump({**STUDY, "task": task}))
    monkeypatch.chdir(tmp_path)
    with EmbeddedRun(tmp_path / "out", Study.from_yaml(file)) as run:
        model = run.record().study.task["model"]
    assert model["module"] == f"{net}:make"
    monkeypatch.chdir(tmp_path / "studies")
    with EmbeddedRun(tmp_path / "out", Study(**{**STUDY, "task": task})) as run:  # found in the current directory
        assert run.record().study.task["model"] == model
    net.write_text(net.read_text() + "# changed\n")
    with pytest.raises(InvalidSpec, match=r"task\.model\.sha256 is .* there, not"):
        EmbeddedRun(tmp_path / "out", Study.from_yaml(file))


def test_an_asynchronous_client_reads_and_writes_folders_too(out: Path) -> None:
    async def work() -> None:
        async with AsyncClient(out=out.parent) as client:
            job = await client.submit(Study(**STUDY))
            (out / "frontier.svg").unlink()
            assert (await (await job.wait()).record()).state == "SUCCEEDED"
            assert (out / "frontier.svg").is_file()
            assert (await (await client.job("small")).frontier()).data == frontier(out).data

    asyncio.run(work())


def test_read_again_without_running(out: Path) -> None:
    assert frontier(out).data == json.loads((out / "frontier.json").read_text())
    verdict = compare(out, "fedavg", "fedprox")
    assert verdict["verdict"] in (None, "fedavg", "fedprox")
    assert verdict["why"]


def test_read_from_a_folder_of_another_user(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(path.name for path in out.iterdir())
    opened: list[Path] = []
    monkeypatch.setattr("os.access", lambda path, mode: False)
    monkeypatch.setattr("service.embedded.folder_results.Store", lambda path: opened.append(path) or Store(path))
    assert frontier(out).data == json.loads((out / "frontier.json").read_text())
    assert opened[0].parent != out
    assert not opened[0].parent.exists()
    assert sorted(path.name for path in out.iterdir()) == before


def test_the_table_is_printed_before_files_and_mlflow_are_written(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed: list[str] = []
    monkeypatch.setattr(EmbeddedRun, "shown", lambda self: False)
    monkeypatch.setattr(EmbeddedRun, "begin_finishing", lambda self: printed.append(capsys.readouterr().out))
    monkeypatch.setattr(EmbeddedRun, "finish", lambda self: printed.append(capsys.readouterr().out))
    resume_study(out, None, None)
    assert printed == ["", f"{frontier(out).table()}\n"]


def test_a_deleted_mlflow_database_is_written_again(out: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(out, copy)
    with EmbeddedRun(copy) as run:
        assert run.shown()
        (copy / "mlflow.db").unlink()
        assert not run.shown()
        assert f"driftline resume {copy}" in run.summary()
        assert "driftline ui" not in run.summary()
        run.begin_finishing()
        recorder = run._recording()
        until(lambda: not recorder.alive)
        assert run._recording() is recorder, "what has finished must not be started again"
        run.finish()
        assert run.shown()
        assert f"driftline ui {copy}" in run.summary()
    assert shown(copy) == 20 + 2 + 1


def test_resources_may_change_between_runs(out: Path) -> None:
    same = Study(**{**STUDY, "resources": {"packs": 2}})
    with EmbeddedRun(out, same) as run:
        assert run.record().state == "SUCCEEDED"


def test_costs_and_metrics_are_chosen_at_reading(out: Path) -> None:
    rounds, sent = frontier(out).data["methods"], frontier(out, cost="bytes").data["methods"]
    a_round = 2 * 8 * 650 * 4  # down and up, eight clients, 650 parameters of four bytes
    for label, method in rounds.items():
        costs = {row["configuration"]: row["settles"] for row in sent[label]["configurations"]}
        assert costs == {row["configuration"]: a_round * row["settles"] for row in method["configurations"]}
        assert [row["round"] for row in sent[label]["recommendations"]] == [
            row["round"] for row in method["recommendations"]
        ]
    accuracy = frontier(out, quality="test_accuracy").data
    assert accuracy["definitions"]["parameters"]["direction"] == "rises"
    assert 0.5 < accuracy["scale"]["best"] <= 1
    with pytest.raises(InvalidSpec, match="test_accuracy"):
        frontier(out, quality="test_acuracy")
    with pytest.raises(InvalidSpec, match="bytes"):
        frontier(out, cost="byte")


def test_modelled_time_is_read_from_the_stored_counters(out: Path) -> None:
    """A round of fedprox: 50 examples of 2600 operations at 1 MFLOP/s, 10 ms, 5200 bytes at 1 Mbit/s."""
    a_round = 50 * 2600 / 1e6 + 0.01 + 8 * 5200 / 1e6
    timed = frontier(out, cost=Time("1Mbit,10ms", "1MFLOPS")).data
    said = {"network": "1Mbit,10ms", "compute": "1MFLOPS", "stragglers": 0.0, "flops_per_example": 4 * 65 * 10}
    assert timed["definitions"]["parameters"]["time"] == said
    settles = {
        row["configuration"]: row["settles"] for row in frontier(out).data["methods"]["fedprox"]["configurations"]
    }
    found = {row["configuration"]: row["settles"] for row in timed["methods"]["fedprox"]["configurations"]}
    assert found == {number: pytest.approx(a_round * rounds) for number, rounds in settles.items()}

    words = ["--cost", "time", "--network", "1Mbit,10ms", "--compute", "1MFLOPS", "--stragglers", "0.5"]
    head = "small: test_loss (falls) against time (1Mbit,10ms; 1MFLOPS; stragglers 0.5)\n"
    assert printed("frontier", str(out), *words).startswith(head)
    compared = json.loads(printed("compare", str(out), "fedavg", "fedprox", *words, "--json"))
    assert compared["ledger"]["fedprox"]["cost"] == pytest.approx(
        10 * 20 * (a_round + 0.5 * (50 * 2600 / 1e6) * sum(1 / n for n in range(1, 9)))
    )

    with pytest.raises(InvalidSpec, match=r"^cost: time is modelled: give --network and --compute, or Time\("):
        frontier(out, cost="time")


def test_an_invalid_reading_names_the_option(out: Path) -> None:
    for words, message in (
        (["--quality", "accuracy"], "--quality: must be a metric that the trials reported, got"),
        (["--cost", "minutes"], "--cost: must be one of rounds, bytes"),
    ):
        error = refusal("frontier", str(out), *words)
        assert isinstance(error, InvalidSpec)
        assert str(error).startswith(message)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--cost", "time"], "--cost: time is modelled: give --network 10Gbit,10ms as well"),
        (["--cost", "time", "--network", "1Gbit,1ms"], "--cost: time is modelled: give --compute 300GFLOPS as well"),
        (["--compute", "1GFLOPS"], "--compute: needs --cost time"),
        (["--cost", "bytes", "--stragglers", "1"], "--stragglers: is for --cost time alone, got --cost bytes"),
    ],
)
def test_options_of_modelled_time_go_together(words: list[str], message: str) -> None:
    for command in (["frontier", "out"], ["compare", "out", "a", "b"]):
        error = refusal(*command, *words)
        assert isinstance(error, InvalidSpec)
        assert str(error) == message
