"""Programs of people's own as trials: what they report, and studies of them."""

import os
import shutil
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from driftline.study.spec import Study
from service.api.computed_results import computed_frontier
from service.driver import checkpoints
from service.driver.job import PackJob
from service.driver.programs.program_pack import ProgramPack
from service.driver.programs.report_lines import ReportLines
from tests.driver.shell_programs import GOOD, Started, lines_of, trial_of
from tests.driver.store_client import StoreClient
from tests.driver.test_search import Bench, curves, facts, ran
from tests.waiting import until


def test_its_lines_are_those_of_a_trial(started: Started) -> None:
    pack = started(f"""say '{{"round": 0, "loss": null}}'; {GOOD}""")
    assert lines_of(pack) == [
        {"round": 0, "loss": None, "tokens": 0, "diverged": False},
        {"round": 1, "loss": 0.5, "tokens": 10, "diverged": False},
        {"round": 2, "loss": 0.25, "tokens": 20, "diverged": False},
    ]
    assert (pack.round, pack.done) == (2, True)


def test_it_goes_on_from_a_checkpoint_that_it_wrote(started: Started) -> None:
    save = 'mkdir "$saved/draft"; echo state > "$saved/draft/model"; mv "$saved/draft" "$saved/1"'
    script = f"""
    if [ -n "$resume" ]; then [ "$(cat "$resume/model")" = state ] && say '{{"round": 2, "loss": 0.25, "tokens": 20}}'
    else say '{{"round": 1, "loss": 0.5, "tokens": 10}}'; {save}; fi"""
    first = started(script, until=1, checkpoints=True)
    assert [line["round"] for line in first.advance()] == [1]
    assert not first.done, "it has ended at a rung"
    data = first.to_bytes()
    first.close()
    second = started(script, checkpoints=True, saved=data)
    assert second.round == 1
    assert lines_of(second) == [{"round": 2, "loss": 0.25, "tokens": 20, "diverged": False}]
    with pytest.raises(OSError, match="is damaged"):
        started(script, checkpoints=True, saved=data[: len(data) // 2])


def test_a_checkpoint_is_asked_for_and_taken_when_its_round_is_reported(started: Started) -> None:
    script = """
    say '{"round": 1, "loss": 1}'
    until grep -q '"checkpoint": 1' "$control"; do sleep 0.02; done
    mkdir "$saved/draft"; mv "$saved/draft" "$saved/1"; sleep 60"""
    pack = started(script, checkpoints=True)
    lines: list[Any] = []
    until(lambda: bool(lines.extend(pack.advance(seconds=0.05)) or lines), 120)
    assert pack.newest() is None
    found: list[Any] = []
    until(lambda: bool(found.extend(filter(None, [pack.newest()])) or found), 120)
    assert found[0][0] == 1
    assert pack.newest() is None, "it is not written twice"


def test_bytes_of_both_directions_are_one_cost() -> None:
    lines = ReportLines({"loss": "falls"}, ["bytes"], "loss", last=2)
    assert lines.read(b'{"round": 1, "bytes": 8}') == {"round": 1, "bytes_up": 8, "bytes_down": 0, "diverged": False}
    assert lines.read(b'{"round": 2}')["bytes_up"] == 8, "a cost that is left out has not grown"


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_the_program_in_c_follows_the_whole_contract(tmp_path: Path) -> None:
    """In a folder whose name has letters of all kinds."""
    folder = tmp_path / os.fsdecode("gr\u00f6\u00dfe \udcff".encode("utf-8", "surrogateescape"))
    folder.mkdir()
    source = Path(__file__).parents[2] / "examples" / "programs" / "descent.c"
    subprocess.run(["cc", "-o", str(tmp_path / "descent"), str(source)], check=True, timeout=120)
    document = trial_of("", tmp_path, rounds=3, command=["./descent"], checkpoints=True)
    document["hyperparameters"] = {"rate": 0.25}
    first = ProgramPack(PackJob("pack", document, "", until=1, place=str(folder / "trial")))
    assert [line["loss"] for line in first.advance()] == [4.0]
    data = first.to_bytes()
    first.close()
    second = ProgramPack(PackJob("pack", document, "", place=str(folder / "trial")), data)
    assert [line["loss"] for line in lines_of(second)] == [1.0, 0.25]
    second.close()
    document["program"]["checkpoints"] = False
    waiting = ProgramPack(PackJob("pack", document, "", until=1, place=str(folder / "trial")))
    assert [line["loss"] for line in waiting.advance()] == [4.0]
    assert waiting.waits
    assert waiting.go_on(3)
    assert [line["loss"] for line in lines_of(waiting)] == [1.0, 0.25]
    waiting.close()


# ---- in a study

TINY = """
import json, os, pathlib, time
from driftline import trial
t = trial.current(client_lr=0.1)

def save():
    with t.checkpoint() as folder:
        json.dump(x, open(folder / "x", "w"))

x = json.load(open(t.resume / "x")) if t.resume else 1.0
if t.resume is None:
    t.report(0, loss=x * x, tokens=0)
for r in t.rounds():
    x -= t["client_lr"] * x + t.seed * 1e-6
    t.report(r, loss=x * x, tokens=r)
    if t.checkpoint_due:
        save()
    held = pathlib.Path(os.environ.get("HELD", "/"), str(t.seed))
    if r == 6 and "HELD" in os.environ and not held.exists():
        held.touch()
        while not t.stopping:
            time.sleep(0.01)
            if t.checkpoint_due:
                save()
"""
"""Trains a number. With HELD it waits after round 6, once for each seed, until it is killed or stopped."""


def tiny(tmp_path: Path, env: dict[str, str] | None = None) -> Study:
    (tmp_path / "tiny.py").write_text(TINY)
    root = str(Path(__file__).parents[2])
    document = {
        "name": "tiny",
        "program": {
            "command": ["python", "-S", "tiny.py"],
            "metrics": {"loss": "falls"},
            "costs": ["tokens"],
            "checkpoints": True,
            "env": {"PYTHONPATH": root, **(env or {})},
            "folder": str(tmp_path),
        },
        "methods": [{"label": "mine", "space": {"client_lr": {"float": [0.01, 1.5]}}}],
        "objective": {"cost": "tokens"},
        "budget": {"trials_per_method": 4, "rounds": 9, "rungs": "auto", "seeds": 1, "confirm": 1},
        "sampler": "quasi_random",
    }
    return Study.from_json(document)


def test_rungs_deaths_and_stops_change_no_trial(client: StoreClient, tmp_path: Path) -> None:
    study, held = tiny(tmp_path), tiny(tmp_path, {"HELD": str(tmp_path / "held")})
    (tmp_path / "held").mkdir()
    whole, disturbed = client.submit(study), client.submit(held)
    Bench(client, whole, study, tmp_path / "whole", slots=1).run()
    bench = Bench(client, disturbed, held, tmp_path / "other", chunk_seconds=0.1, checkpoint_seconds=0.0)
    fates = ["killed", "stopped"]
    for turn in range(2000):
        while bench.start():
            pass
        if bench.search.finished:
            break
        pack = sorted(bench.workers)[turn % len(bench.workers)]
        worker = bench.workers[pack]
        newest = next(row.checkpoint for row in client.store.trials.find(disturbed) if row.pack == pack)
        if not fates or checkpoints.round_of(newest) < 6 or worker.job.rounds_known >= 6:
            bench.step(pack)
        elif fates.pop(0) == "killed":
            worker.cleanup()  # as the guard does when a worker is killed
            bench.kill(pack)
        else:
            worker.request_stop()
            assert bench.step(pack)["stopped"]
    assert fates == []

    assert facts(client, whole) == facts(client, disturbed)
    states = [row.state for row in client.store.trials.find(whole)]
    assert states.count("STOPPED") == 3
    assert states.count("COMPLETE") == 2
    assert not list(tmp_path.rglob("*.work"))


def test_without_checkpoints_a_program_waits_at_rungs_and_nothing_is_trained_twice(
    client: StoreClient, tmp_path: Path
) -> None:
    document = tiny(tmp_path, {"STARTS": str(tmp_path / "starts")}).to_json()
    document["program"]["checkpoints"] = False
    document["budget"] |= {"asking": "asynchronous", "trials_per_method": 6}
    study = Study.from_json(document)
    count = 'open(os.environ["STARTS"], "a").write("x")'
    (tmp_path / "tiny.py").write_text(TINY.replace("\nt = ", f"\n{count}\nt = ", 1))
    study_id = ran(client, study, tmp_path / "out", slots=2)
    rows, found = client.store.trials.find(study_id), curves(client, study_id)
    assert len((tmp_path / "starts").read_text()) == len(rows) == 7
    rounds = {row.state: set() for row in rows}
    for row in rows:
        assert found[row.id]["round"] == list(range(row.rounds_done + 1))
        rounds[row.state].add(row.rounds_done)
    assert rounds["COMPLETE"] == {9}
    assert rounds["STOPPED"] <= {1, 3}
    assert any(row.phase == "search" and row.rounds_done > 1 for row in rows), "some have gone on"


@pytest.mark.parametrize("checkpoints", [True, False])
def test_rounds_may_be_left_out(client: StoreClient, tmp_path: Path, checkpoints: bool) -> None:
    document = tiny(tmp_path).to_json()
    document["program"]["checkpoints"] = checkpoints
    document["budget"] |= {} if checkpoints else {"asking": "asynchronous"}
    few = TINY.replace("if t.resume is None:", "if False:")
    few = few.replace("    t.report(r", "    if r % 2 == 0 or t.report_due: t.report(r")
    (tmp_path / "tiny.py").write_text(few)
    study_id = ran(client, Study.from_json(document), tmp_path / "out", slots=1)
    rows, found = client.store.trials.find(study_id), curves(client, study_id)
    assert {row.state for row in rows} == {"COMPLETE", "STOPPED"}
    whole = {number for row in rows for number in found[row.id]["round"]}
    assert whole == {1, 2, 3, 4, 6, 8, 9}
    assert computed_frontier(client.store, study_id)["methods"]["mine"]["recommendations"]


def test_a_program_that_always_fails_fails_its_study_with_its_own_words(client: StoreClient, tmp_path: Path) -> None:
    study = tiny(tmp_path)
    (tmp_path / "tiny.py").write_text("raise SystemExit('no data here')")
    bench = Bench(client, client.submit(study), study, tmp_path / "out")
    with pytest.raises(Exception, match=r"exit code 1, after round 0 of 1; log: .*mine-search-\d.log; stderr: no data"):
        bench.run()
    for worker in bench.workers.values():
        worker.cleanup()


def test_a_program_that_another_attempt_does_not_help_is_started_once_for_a_trial(
    client: StoreClient, tmp_path: Path
) -> None:
    study = tiny(tmp_path)
    (tmp_path / "tiny.py").write_text("raise SystemExit(2)")
    bench = Bench(client, client.submit(study), study, tmp_path / "out", slots=1)
    with pytest.raises(
        Exception, match=r"nothing could be trained; the last error: .* exit code 2, after round 0 of 1"
    ):
        bench.run()
    assert client.calls.count("start_pack") == 3
    assert client.finished[0].error.startswith("ProgramError: the program ended with exit code 2")  # type: ignore[union-attr]


TOKENS = {
    "DRIFTLINE_TOKEN": "token-of-the-driver",
    "DRIFTLINE_ADMIN_TOKEN": "token-of-the-api",
    "DRIFTLINE_DATABASE_URL": "postgresql://tuner:token-of-the-database@db/tuner",
    "RAY_AUTH_TOKEN": "token-of-ray",
    "AWS_SECRET_ACCESS_KEY": "token-of-the-storage",
    "MLFLOW_TRACKING_PASSWORD": "token-of-mlflow",
    "WANDB_API_KEY": "token-of-the-person",
    "DRIFTLINE_SECRET_HF_KEY": "token-of-the-program",
}


@pytest.mark.parametrize(("where", "secret"), [("at home", "WANDB_API_KEY"), ("on a service", "HF_KEY")])
def test_its_environment_has_no_token_but_its_own_secrets(
    where: str, secret: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, token in TOKENS.items():
        monkeypatch.setenv(name, token)
    script = f"env > {tmp_path}/printed; {GOOD}"
    document = trial_of(script, tmp_path, secrets=["WANDB_API_KEY"], env={"LEVEL": "3"})
    place = str(tmp_path / "trial")
    if where == "on a service":
        document["program"]["folder"] = ""
    with closing(ProgramPack(PackJob("pack", document, "", place=place, files=str(tmp_path)))) as pack:
        assert len(lines_of(pack)) == 2
    printed = (tmp_path / "printed").read_text()
    seen = dict(line.split("=", 1) for line in printed.splitlines() if "=" in line)
    token = TOKENS.get(secret, TOKENS["DRIFTLINE_SECRET_HF_KEY"])
    assert (seen[secret], seen["LEVEL"]) == (token, "3")
    assert printed.count("token-of-") == 1
    ours = {"DRIFTLINE_TRIAL", "DRIFTLINE_NODE_RANK", "DRIFTLINE_NODES"}
    assert {name for name in seen if name.startswith(("DRIFTLINE_", "RAY_"))} == ours
