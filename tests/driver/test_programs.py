"""Programs of people's own as trials: what they report, what can go wrong, and what is left of them afterwards."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from driftline.study.spec import Study
from service.api.computed_results import computed_frontier
from service.driver import checkpoints
from service.driver.job import PackJob
from service.driver.programs import program_pack, run_log
from service.driver.programs.program_pack import ProgramPack
from service.driver.programs.report_lines import ProgramError, ReportLines
from tests.driver.stand_ins import StoreClient
from tests.driver.test_search import Bench, curves
from tests.waiting import until

FILES = """
document=$DRIFTLINE_TRIAL
file() { sed -n 's/.*"'$1'": "\\([^"]*\\)".*/\\1/p' "$document"; }
reports=$(file reports); saved=$(file checkpoints); resume=$(file resume); control=$(file control)
say() { printf '%s\\n' "$1" >> "$reports"; }
"""
"""What a program in shell needs of its document: `say LINE`, and places."""

GOOD = """say '{"round": 1, "loss": 0.5, "tokens": 10}'; say '{"round": 2, "loss": 0.25, "tokens": 20}'"""

Started = Callable[..., ProgramPack]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    """Starts a program in shell as a trial of two rounds."""
    packs = []

    def start(
        script: str, *, rounds: int = 2, until: int | None = None, saved: bytes | None = None, **keys: Any
    ) -> Any:
        program = {
            "command": ["/bin/sh", "-c", FILES + script],
            "metrics": {"loss": "falls"},
            "costs": ["tokens"],
            "checkpoints": False,
            "silence": 120.0,
            "grace": 5.0,
            "folder": str(tmp_path),
            **keys,
        }
        document = {
            "label": "mine",
            "hyperparameters": {"client_lr": 0.1},
            "seed": 3,
            "rounds": rounds,
            "quality": "loss",
            "program": program,
        }
        packs.append(ProgramPack(PackJob("pack", document, "", until=until, place=str(tmp_path / "trial")), saved))
        return packs[-1]

    yield start
    for pack in packs:
        pack.close()


def lines_of(pack: ProgramPack) -> list[dict[str, Any]]:
    """All its lines, without seconds."""
    lines: list[dict[str, Any]] = []
    while not pack.done:
        lines += pack.advance()
    for line in lines:
        assert line.pop("wall_seconds") >= 0
    return lines


def test_its_lines_are_those_of_a_trial(started: Started) -> None:
    pack = started(f"""say '{{"round": 0, "loss": null}}'; {GOOD}""")
    assert lines_of(pack) == [
        {"round": 0, "loss": None, "tokens": 0, "diverged": False},
        {"round": 1, "loss": 0.5, "tokens": 10, "diverged": False},
        {"round": 2, "loss": 0.25, "tokens": 20, "diverged": False},
    ]
    assert (pack.round, pack.done) == (2, True)


FAULTS = {
    "exit code": ('say \'{"round": 1, "loss": 1}\'; exit 3', "ended with exit code 3, after round 1 of 2"),
    "signal": ("kill -9 $$", "was killed by SIGKILL, as for lack of memory, after round 0 of 2"),
    "no JSON": ("say 'loss 0.4'; sleep 9", 'reported a line that must be JSON like {"round": 3, "loss": 0.4}, got'),
    "no object": ("say '[1]'; sleep 9", "reported a line that must be JSON like"),
    "unknown metric": (
        'say \'{"round": 1, "los": 1}\'; sleep 9',
        'reported "los", which program.metrics and costs do not have: did you mean loss?',
    ),
    "not a number": ('say \'{"round": 1, "loss": "x"}\'; sleep 9', 'reported loss="x", must be a number or null'),
    "no round": ("say '{\"loss\": 1}'; sleep 9", "reported a line whose round must be a whole number from 0, got null"),
    "falling round": (
        f"{GOOD}; say '{{\"round\": 1}}'; sleep 9",
        "reported round 1 after round 2: rounds must increase",
    ),
    "round beyond the last": ("say '{\"round\": 3}'; sleep 9", "reported round 3, must end with round 2"),
    "falling cost": (
        'say \'{"round": 0, "tokens": 5}\'; say \'{"round": 1, "tokens": 4}\'; sleep 9',
        "reported tokens=4 after 5: a cost must not fall",
    ),
    "cost that is not finite": (
        'say \'{"round": 1, "tokens": NaN}\'; sleep 9',
        "reported tokens=NaN, a cost must be finite",
    ),
    "too few rounds": ('say \'{"round": 1, "loss": 1}\'', "ended after round 1 of 2, must report them all"),
    "silence": ("sleep 60", "reported nothing for 3 s (program.silence) after round 0"),
    "no such program": ("", "cannot be started in"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_line_with_the_log_and_the_end_of_stderr(fault: str, started: Started, tmp_path: Path) -> None:
    script, said = FAULTS[fault]
    keys = {"silence": {"silence": 3.0}, "no such program": {"command": ["./missing"]}}.get(fault, {})
    with pytest.raises(ProgramError) as caught:
        lines_of(started(f"echo first >&2; echo trouble >&2; {script}", **keys))
    text = str(caught.value)
    assert text.startswith(f"the program {said}"), text
    assert "\n" not in text
    assert f"log: {tmp_path / 'trial.log'}" in text
    assert text.endswith("" if fault == "no such program" else "stderr: first | trouble")


def test_what_was_reported_before_a_fault_is_kept(started: Started) -> None:
    pack = started('say \'{"round": 1, "loss": 1}\'; exit 3')
    assert [line["round"] for line in pack.advance()] == [1]
    with pytest.raises(ProgramError, match="exit code 3"):
        pack.advance()


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
def test_a_quality_that_is_not_finite_ends_the_trial_as_diverged(value: str, started: Started) -> None:
    pack = started(f'say \'{{"round": 1, "loss": {value}}}\'; sleep 60')
    assert lines_of(pack) == [{"round": 1, "loss": None, "tokens": 0, "diverged": True}]
    assert pack.done


def test_a_line_without_an_end_counts_when_the_program_has_ended(started: Started) -> None:
    assert len(lines_of(started('say \'{"round": 1}\'; printf \'{"round": 2, "loss": 1}\' >> "$reports"'))) == 2


def test_a_flood_of_output_is_bounded(started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_log, "MOST_BYTES", 10_000)
    monkeypatch.setattr(run_log.RunLog.__init__, "__defaults__", (10_000,))
    script = "echo begin; i=0; while [ $i -lt 3000 ]; do echo 'a line that is long enough'; i=$((i+1)); done; echo end"
    lines_of(started(f"{script}; {GOOD}"))
    text = (tmp_path / "trial.log").read_text()
    assert text.startswith("begin\n")
    assert text.endswith("end\n")
    assert "bytes were left out" in text
    assert len(text) < 11_000


def test_a_program_that_ignores_sigterm_is_killed(started: Started) -> None:
    pack = started("trap '' TERM; say '{\"round\": 1, \"loss\": 1}'; while :; do sleep 0.1; done", grace=0.2)
    lines: list[Any] = []
    until(lambda: bool(lines.extend(pack.advance(seconds=0.05)) or lines), 120)
    assert pack.stop() == []
    assert pack.remark is not None
    assert pack.remark.startswith("the program ignored SIGTERM for 0.2 s and was killed: ")


def test_children_that_it_leaves_are_ended(started: Started, tmp_path: Path) -> None:
    pack = started(f"sleep 1000 & echo $! > {tmp_path / 'child'}; {GOOD}")
    lines_of(pack)
    child = int((tmp_path / "child").read_text())
    until(lambda: not _alive(child), 120)
    assert pack.remark == f"the program left 1 processes behind, which were ended: {tmp_path / 'trial.log'}"


def test_it_ends_with_its_worker(tmp_path: Path) -> None:
    """A worker that is killed runs no code of its own any more."""
    code = (
        "import sys; from service.driver.programs.process import Process; "
        "from service.driver.programs.run_log import RunLog; from pathlib import Path; "
        f"Process(['/bin/sh', '-c', 'sleep 1000 & echo $$ $! > ids; wait'], {str(tmp_path)!r}, {{}}, "
        f"RunLog(Path({str(tmp_path / 'log')!r}))); print('started', flush=True); sys.stdin.read()"
    )
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as worker:
        until(lambda: (tmp_path / "ids").exists() and (tmp_path / "ids").read_text().endswith("\n"), 60)
        ids = list(map(int, (tmp_path / "ids").read_text().split()))
        assert all(map(_alive, ids))
        worker.kill()
    until(lambda: not any(map(_alive, ids)), 120)


def test_its_environment_has_no_secrets(started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DRIFTLINE_TOKEN", "RAY_AUTH_TOKEN", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "secret")
    lines_of(started(f"env > {tmp_path / 'env'}; {GOOD}", env={"MINE": "kept"}))
    text = (tmp_path / "env").read_text()
    assert "secret" not in text
    assert "MINE=kept" in text
    assert "OMP_NUM_THREADS=1" in text


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


def test_a_rung_without_a_checkpoint_is_a_fault(started: Started) -> None:
    with pytest.raises(ProgramError, match="ended at the rung, after round 1 of 1, without a checkpoint"):
        started('say \'{"round": 1, "loss": 1}\'', until=1, checkpoints=True).advance()


def test_a_checkpoint_has_a_bound(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_pack, "MOST_CHECKPOINT_BYTES", 10)
    script = 'say \'{"round": 1, "loss": 1}\'; mkdir "$saved/1"; echo much more than ten bytes > "$saved/1/model"'
    pack = started(script, until=1, checkpoints=True)
    pack.advance()
    with pytest.raises(OSError, match="the checkpoint of round 1 must have at most"):
        pack.to_bytes()


def test_bytes_of_both_directions_are_one_cost() -> None:
    lines = ReportLines({"loss": "falls"}, ["bytes"], "loss", last=2)
    assert lines.read(b'{"round": 1, "bytes": 8}') == {"round": 1, "bytes_up": 8, "bytes_down": 0, "diverged": False}
    assert lines.read(b'{"round": 2}')["bytes_up"] == 8, "a cost that is left out has not grown"


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

    def told(study_id: str) -> list[Any]:
        found = curves(client, study_id)
        rows = client.store.trials.find(study_id)
        return [(row.number, row.phase, row.hyperparameters, row.state, found[row.id]) for row in rows]

    assert told(whole) == told(disturbed)
    states = [row.state for row in client.store.trials.find(whole)]
    assert states.count("STOPPED") == 3
    assert states.count("COMPLETE") == 2
    assert not list(tmp_path.rglob("*.work"))


def test_a_program_that_always_fails_fails_its_study_with_its_own_words(client: StoreClient, tmp_path: Path) -> None:
    study = tiny(tmp_path)
    (tmp_path / "tiny.py").write_text("raise SystemExit('no data here')")
    bench = Bench(client, client.submit(study), study, tmp_path / "out")
    with pytest.raises(Exception, match=r"exit code 1, after round 0 of 1; log: .*mine-search-\d.log; stderr: no data"):
        bench.run()
    for worker in bench.workers.values():
        worker.cleanup()


ENGINE = """
import json, subprocess, sys
from driftline import trial
t = trial.current()
document = {"task": {"name": "quadratic", "problem": "two_clients"}, "method": {"name": "fedavg", **t.hyperparameters}}
document |= {"rounds": t.budget, "seed": t.seed}
names = ("train_loss", "loss", "update_norm", "bytes_up", "bytes_down", "client_gradients", "diverged")

def report(lines):
    for line in lines:
        t.report(line["round"], **{name: line[name] for name in names if line.get(name) is not None})

if t.last == t.budget and t.resume is None:
    command = [sys.executable, "-m", "trainers.run", "-"]
    done = subprocess.run(command, input=json.dumps(document), capture_output=True, text=True, check=True)
    report(map(json.loads, done.stdout.splitlines()))
else:
    from trainers import Pack, parse
    spec = parse(document)
    pack = Pack.from_spec(spec) if t.resume is None else Pack.restore(spec, (t.resume / "pack").read_bytes())
    while pack.round < t.last and not pack.done:
        report(pack.advance(t.last - pack.round))
    if t.checkpoint_due:
        with t.checkpoint() as folder:
            (folder / "pack").write_bytes(pack.to_bytes())
"""
"""Trains with Driftline's engine: a whole trial with `trainers.run`, a part of one with `Pack`."""


def test_a_program_that_calls_the_engine_gives_the_engines_trials_to_the_bit(
    client: StoreClient, tmp_path: Path
) -> None:
    rates = {"client_lr": {"float": [1e-3, 0.7], "log": True}, "server_lr": {"float": [0.1, 1.0]}}
    space = {**rates, "local_steps": {"choice": [1, 5]}}
    shared: dict[str, Any] = {
        "name": "same",
        "objective": {"quality": "loss", "cost": "client_gradients"},
        "budget": {"trials_per_method": 3, "rounds": 18, "rungs": [2, 18], "seeds": 1, "confirm": 1},
        "sampler": "quasi_random",
        "resources": {"gpu": 0, "packs": 1},
    }
    engine = Study.from_json(
        {
            **shared,
            "task": {"name": "quadratic", "problem": "two_clients"},
            "methods": [{"label": "mine", "name": "fedavg", "space": space}],
        }
    )
    (tmp_path / "engine.py").write_text(ENGINE)
    program = {
        "command": ["python", "engine.py"],
        "metrics": {"train_loss": "falls", "loss": "falls", "update_norm": "falls"},
        "costs": ["bytes_up", "bytes_down", "client_gradients"],
        "checkpoints": True,
        "folder": str(tmp_path),
        "env": {"PYTHONPATH": str(Path(__file__).parents[2])},
    }
    own = Study.from_json({**shared, "program": program, "methods": [{"label": "mine", "space": space}]})
    told = []
    for study in (engine, own):
        study_id = client.submit(study)
        Bench(client, study_id, study, tmp_path / study_id).run()
        found, rows = curves(client, study_id), client.store.trials.find(study_id)
        names = (*program["metrics"], *program["costs"], "round", "diverged")
        trials = [
            (row.number, row.phase, row.seed, row.hyperparameters, row.state, row.values)
            for row in sorted(rows, key=lambda row: (row.phase, row.number))
        ]
        columns = {(row.phase, row.number): {name: found[row.id][name] for name in names} for row in rows}
        frontier = computed_frontier(client.store, study_id)
        label = frontier["methods"]["mine"]
        results = [
            label[key] for key in ("recommendations", "frontier", "areas", "cross_fitted", "optimism", "granted")
        ]
        told.append((trials, columns, frontier["scale"], results))
    for part, (engines, programs) in enumerate(zip(*told, strict=True)):
        assert engines == programs, part
    assert {trial[4] for trial in told[0][0]} >= {"COMPLETE", "STOPPED"}


def _alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
