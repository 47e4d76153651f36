"""What can go wrong with a program of people's own as a trial, and what is left of it afterwards."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.driver import checkpoints
from service.driver.job import PackJob
from service.driver.programs import process, program_pack, saved_folder
from service.driver.programs.report_lines import ProgramError
from service.driver.programs.run_log import RunLog
from service.driver.ray import worker
from service.driver.ray.worker import Worker
from tests.driver.shell_programs import GOOD, Started, alive, lines_of, trial_of
from tests.waiting import until

FAULTS = {
    "exit code": ('say \'{"round": 1, "loss": 1}\'; exit 3', "ended with exit code 3, after round 1 of 2"),
    "signal": ("kill -9 $$", "was killed by SIGKILL, as for lack of memory, after round 0 of 2"),
    "real-time signal": ("kill -40 $$", "was killed by SIG40, after round 0 of 2"),
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
    "round beyond the last": ("say '{\"round\": 3}'; sleep 9", "reported round 3, must end or wait with round 2"),
    "falling cost": (
        'say \'{"round": 0, "tokens": 5}\'; say \'{"round": 1, "tokens": 4}\'; sleep 9',
        "reported tokens=4 after 5: a cost must not fall",
    ),
    "cost that is not finite": (
        'say \'{"round": 1, "tokens": NaN}\'; sleep 9',
        "reported tokens=NaN, a cost must be finite",
    ),
    "too few rounds": ('say \'{"round": 1, "loss": 1}\'', "ended after round 1 of 2, must report the last one"),
    "silence": ("sleep 60", "reported nothing for 3 s (program.silence) after round 0"),
    "no end": (f"{GOOD}; sleep 60", "did not end within 3 s (program.silence) after round 2, its last one"),
    "torn line": ('printf \'{"rou\' >> "$reports"; kill -9 $$', "was killed by SIGKILL"),
    "line without an end": (
        "head -c 2000000 /dev/zero | tr '\\0' x >> \"$reports\"; sleep 60",
        "reported a line of more than 1048576 bytes",
    ),
    "replaced reports": (
        'echo > new; mv new "$reports"; sleep 60',
        "has replaced its file of reports: append lines to",
    ),
    "diverged is no boolean": (
        'say \'{"round": 1, "diverged": "no"}\'; sleep 60',
        'reported diverged="no", must be true or false',
    ),
    "no such program": ("", "cannot be started in {folder}: {folder}/missing, which does not exist; log"),
    "not executable": ("", "cannot be started in {folder}: {folder}/plain, which may not be executed: allow it"),
    "no interpreter": (
        "",
        'cannot be started in {folder}: {folder}/strange, whose first line names an interpreter that does not exist, "',
    ),
    "no format": ("", "cannot be started in {folder}: [Errno 8] Exec format error"),
    "a folder": ("", "cannot be started in {folder}: {folder}/inside, which is no file"),
}
COMMANDS = {
    "no such program": "./missing",
    "not executable": "./plain",
    "no interpreter": "./strange",
    "no format": "unknown",
    "a folder": "./inside",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_line_with_the_log_and_the_end_of_stderr(fault: str, started: Started, tmp_path: Path) -> None:
    script, said = FAULTS[fault]
    keys: dict[str, Any] = {"silence": 3.0} if fault in ("silence", "no end") else {}
    if fault in COMMANDS:
        keys["command"] = [COMMANDS[fault]]
        (tmp_path / "inside").mkdir()
        (tmp_path / "plain").touch()
        for name, content in (("strange", "#!/no/interpreter\r\n"), ("unknown", "no program")):
            (tmp_path / name).write_text(content)
            (tmp_path / name).chmod(0o755)
    with pytest.raises(ProgramError) as caught:
        lines_of(started(f"echo first >&2; echo trouble >&2; {script}", **keys))
    text = str(caught.value)
    assert text.startswith(f"the program {said.replace('{folder}', str(tmp_path))}"), text
    assert "\n" not in text
    assert f"log: {tmp_path / 'trial.log'}" in text
    assert text.endswith("" if fault in COMMANDS else "stderr: first | trouble")
    if fault in COMMANDS:
        assert caught.value.final
        assert not list(tmp_path.glob("*.work"))


def test_a_whole_round_may_be_written_as_a_fraction(started: Started) -> None:
    assert [line["round"] for line in lines_of(started("say '{\"round\": 1.0}'; say '{\"round\": 2e0}'"))] == [1, 2]


def test_a_program_is_looked_for_in_its_folder_first(started: Started, tmp_path: Path) -> None:
    (tmp_path / "sleep").write_text("#!/bin/sh\nexit 9")
    (tmp_path / "sleep").chmod(0o755)
    with pytest.raises(ProgramError, match="exit code 9"):
        lines_of(started("", command=["sleep", "1000"]))


def test_a_process_that_hides_is_told_of(started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunLog.close, "__defaults__", (0.3,))
    hidden = "env -i setsid sh -c 'echo $$ > child; exec sleep 1000' & until [ -s child ]; do sleep 0.02; done"
    pack = started(f"{hidden}; {GOOD}")
    lines_of(pack)
    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
    assert pack.remark.startswith("the program left a process that hides and keeps its output open")


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
def test_a_quality_that_is_not_finite_ends_the_trial_as_diverged(value: str, started: Started) -> None:
    pack = started(f'say \'{{"round": 1, "loss": {value}}}\'; sleep 60')
    assert lines_of(pack) == [{"round": 1, "loss": None, "tokens": 0, "diverged": True}]
    assert pack.done


def test_a_line_without_an_end_counts_when_the_program_has_ended(started: Started) -> None:
    assert len(lines_of(started('say \'{"round": 1}\'; printf \'{"round": 2, "loss": 1}\' >> "$reports"'))) == 2


def test_a_flood_of_output_is_bounded(started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunLog.__init__, "__defaults__", (10_000,))
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
    assert pack.remark.startswith("the program ignored SIGTERM for 0.2 s and was killed: ")


@pytest.mark.parametrize("session", ["", "setsid "], ids=["in its group", "in a group of its own"])
def test_processes_that_it_leaves_are_ended(session: str, started: Started, tmp_path: Path) -> None:
    child = f"{session}sh -c 'echo $$ > child; exec sleep 1000' & until [ -s child ]; do sleep 0.02; done"
    pack = started(f"{child}; {GOOD}")
    lines_of(pack)
    until(lambda: not alive(int((tmp_path / "child").read_text())), 120)
    assert pack.remark == f"the program left a process behind, now ended: {tmp_path / 'trial.log'}"


@pytest.mark.parametrize("name", ["trial", "trial\nOF=another"])
def test_it_ends_with_its_worker_and_nobody_else(name: str, tmp_path: Path) -> None:
    """A worker that is killed runs no code of its own any more; nor does a signal to the group end the guard alone."""
    script = (
        "trap '' TERM; kill -TERM 0; sleep 1000 & first=$!; setsid sh -c 'echo $$ > other; exec sleep 1000' & "
        "until [ -s other ]; do sleep 0.02; done; echo $$ $first $(cat other) > ids; wait"
    )
    code = (
        "import sys; from service.driver.programs.process import Process; "
        "from service.driver.programs.run_log import RunLog; from pathlib import Path; "
        f"Process(['/bin/sh', '-c', {script!r}], {str(tmp_path)!r}, {{'DRIFTLINE_TRIAL': {str(tmp_path / name)!r}}}, "
        f"RunLog(Path({str(tmp_path / 'log')!r}))); print('started', flush=True); sys.stdin.read()"
    )
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(["sleep", "1000"], env={"PATH": os.environ["PATH"], "OF": "another"}) as another:
        with subprocess.Popen([sys.executable, "-c", code], **pipes) as worker:
            until(lambda: (tmp_path / "ids").exists() and (tmp_path / "ids").read_text().endswith("\n"), 60)
            *group, left = ids = list(map(int, (tmp_path / "ids").read_text().split()))
            assert all(map(alive, ids))
            group.append(os.getpgid(group[0]))  # the guard, which ends after all others
            worker.kill()
        if "\n" in name:  # a mark of two lines finds no processes that have left the group
            until(lambda: not any(map(alive, group)), 120)
            os.kill(left, signal.SIGKILL)
        until(lambda: not any(map(alive, [*group, left])), 120)
        assert another.poll() is None
        another.kill()


def test_a_program_that_ends_its_group_at_once_does_not_end_a_slow_guard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_GUARD", f"sleep 0.2; {process._GUARD}")
    run = process.Process(
        ["/bin/sh", "-c", "trap '' TERM; kill -TERM 0; exec sleep 1000"], str(tmp_path), {}, RunLog(tmp_path / "log")
    )
    time.sleep(0.5)
    assert run._guard.poll() is None
    run.end()


@pytest.mark.parametrize("instead", [":", 'ln -s /etc "$saved/1"'], ids=["nothing", "a link to a folder"])
def test_a_rung_without_a_checkpoint_is_a_fault(instead: str, started: Started) -> None:
    with pytest.raises(ProgramError, match="ended at the rung, after round 1 of 1, without a checkpoint"):
        started(f'say \'{{"round": 1, "loss": 1}}\'; {instead}', until=1, checkpoints=True).advance()


def test_a_checkpoint_has_a_bound(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_folder, "MOST_BYTES", 10)
    script = 'say \'{"round": 1, "loss": 1}\'; mkdir "$saved/1"; echo much more than ten bytes > "$saved/1/model"'
    pack = started(script, until=1, checkpoints=True)
    pack.advance()
    with pytest.raises(OSError, match="the checkpoint 1 must have at most"):
        pack.to_bytes()


@pytest.mark.parametrize("value", ["true", "1"])
def test_a_program_may_say_that_it_has_diverged(value: str, started: Started) -> None:
    pack = started(f'say \'{{"round": 1, "diverged": 0}}\'; say \'{{"round": 2, "diverged": {value}}}\'; sleep 60')
    assert [line["diverged"] for line in lines_of(pack)] == [False, True]


def test_what_is_trained_after_divergence_is_no_fault(started: Started) -> None:
    pack = started('say \'{"round": 1, "loss": NaN}\'; say \'{"round": 2, "loss": 1}\'; sleep 60')
    assert [line["round"] for line in lines_of(pack)] == [1]


@pytest.mark.parametrize(
    ("script", "final"),
    [
        ("exit 2", True),
        ("exit 127", True),
        ("exit 1", False),
        ("say '{\"round\": 1}'; exit 2", False),
        ('say \'{"round": 1, "other": 2}\'; sleep 60', True),
    ],
)
def test_what_another_attempt_would_repeat_is_final(script: str, final: bool, started: Started) -> None:
    with pytest.raises(ProgramError) as caught:
        lines_of(started(script))
    assert caught.value.final == final


def test_reports_that_are_cut_are_a_fault(started: Started) -> None:
    pack = started("say '{\"round\": 1}'; sleep 60")
    lines: list[Any] = []
    until(lambda: bool(lines.extend(pack.advance(seconds=0.05)) or lines), 120)
    os.truncate(pack._reports, 0)
    with pytest.raises(ProgramError, match="has cut its file of reports: append lines to it"):
        pack.advance()


def test_very_many_rounds_are_handed_on_in_parts(started: Started) -> None:
    rounds = 60_000
    count = f"""awk 'BEGIN {{ for (i = 1; i <= {rounds}; i++) printf "{{\\"round\\": %d, \\"loss\\": 1}}\\n", i }}'"""
    pack = started(f'{count} >> "$reports"', rounds=rounds)
    parts = []
    while not pack.done:
        parts.append(pack.advance())
    assert [line["round"] for part in parts for line in part] == list(range(1, rounds + 1))
    assert max(map(len, parts)) < 40_000


def test_the_end_of_stderr_is_named_as_a_terminal_shows_it(started: Started) -> None:
    with pytest.raises(ProgramError, match=r"stderr: 100 % \| a red word$"):
        lines_of(started(r"printf '1 %%\r100 %%\r\na \033[31mred\033[0m\000word' >&2; exit 3"))


def test_a_log_of_several_runs_is_bounded(tmp_path: Path) -> None:
    for letter in (b"a", b"b", b"c"):
        log = RunLog(tmp_path / "log", most_bytes=100)
        reading, writing = os.pipe()
        os.write(writing, letter * 80)
        os.close(writing)
        log.drain(os.fdopen(reading, "rb"), named=False)
        log.close()
    text = (tmp_path / "log").read_text()
    assert text.startswith("a" * 50)
    assert text.endswith("c" * 50)
    assert len(text) < 200


# ---- checkpoints


def test_a_checkpoint_keeps_links_within_it_and_refuses_others(started: Started) -> None:
    script = """
    if [ -n "$resume" ]; then cat "$resume/last" >&2; exit 3; fi
    say '{"round": 1, "loss": 1}'; mkdir "$saved/draft"; echo state > "$saved/draft/model"
    ln -s model "$saved/draft/last"; %s; mv "$saved/draft" "$saved/1\""""
    pack = started(script % ":", until=1, checkpoints=True)
    pack.advance()
    data = pack.to_bytes()
    with pytest.raises(ProgramError, match="stderr: state"):
        lines_of(started(script, checkpoints=True, saved=data))
    for strange, came in {
        'ln -s /etc/hosts "$saved/draft/hosts"': "a link from hosts to /etc/hosts: copy the file",
        'ln -s ../../control.json "$saved/draft/out"': r"a link from out to \.\./\.\./control.json: copy the file",
        'mkfifo "$saved/draft/pipe"': "pipe, a pipe, socket or device",
    }.items():
        pack = started(script % strange, until=1, checkpoints=True)
        pack.advance()
        with pytest.raises(OSError, match=f"the checkpoint 1 must hold .*, got {came}"):
            pack.to_bytes()


def test_a_checkpoint_has_the_costs_of_its_round(
    started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if many rounds were reported after it, or its own was not."""
    monkeypatch.setattr(program_pack, "_ROUNDS_COUNTED", 1)
    script = """
    for r in 1 2; do say "{\\"round\\": $r, \\"tokens\\": ${r}0}"; done; mkdir "$saved/%d"
    for r in 4 5 6 7; do say "{\\"round\\": $r, \\"tokens\\": ${r}0}"; done; sleep 60"""
    for number in (2, 3):
        pack = started(script % number, rounds=9, checkpoints=True)
        lines: list[Any] = []
        until(lambda pack=pack, lines=lines: lines.extend(pack.advance(seconds=0.05)) or len(lines) == 6, 120)
        found = pack.newest()
        assert found[0] == number
        state = saved_folder.unpacked(found[1], tmp_path / str(number))
        assert state["costs"] == {"tokens": 20}
        assert state["seconds"] == lines[1]["wall_seconds"]


# ---- as a worker trains them


def trained(script: str, tmp_path: Path, **keys: Any) -> Worker:
    """A worker that has taken a trial of two rounds, and writes no checkpoints but at its end."""
    document = trial_of(script, tmp_path, **keys)
    job = PackJob("pack", document, str(tmp_path / "pack"), place=str(tmp_path / "run"), checkpoint_seconds=1e9)
    taken = Worker.__new__(Worker)  # without Tune's folders
    taken.take(job.config())
    return taken


def reports_of(taken: Worker) -> list[dict[str, Any]]:
    """All reports of a worker until its trial ends."""
    reports = []
    while not reports or not (reports[-1]["done"] or reports[-1]["stopped"] or reports[-1]["error"]):
        reports.append(json.loads(taken.step()["report"]))
    return reports


def test_a_checkpoint_from_before_a_fault_is_kept(tmp_path: Path) -> None:
    script = 'say \'{"round": 1, "loss": 1}\'; mkdir "$saved/draft"; mv "$saved/draft" "$saved/1"; exit 3'
    last = reports_of(trained(script, tmp_path, checkpoints=True))[-1]
    assert "exit code 3, after round 1 of 2" in last["error"]
    assert not last["final"]
    assert last["rounds_done"] == checkpoints.round_of(last["checkpoint"]) == 1


def test_a_trial_that_is_told_to_stop_and_reaches_its_end_is_done(tmp_path: Path) -> None:
    script = """trap 'say "{\\"round\\": 2, \\"loss\\": 1}"; exit 0' TERM; say '{"round": 1, "loss": 1}'
    while :; do sleep 0.05; done"""
    taken = trained(script, tmp_path)
    until(lambda: json.loads(taken.step()["report"])["rounds_done"] == 1, 120)
    taken.request_stop()
    last = reports_of(taken)[-1]
    assert (last["done"], last["stopped"], last["rounds_done"]) == (True, False, 2)


def test_a_lack_of_room_is_not_taken_for_a_damaged_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = trained(GOOD, tmp_path)
    data = saved_folder.packed(tmp_path, {"round": 1})
    checkpoints.write(taken.job.prefix, (0, 0), 1, data)
    job = replace(taken.job, resume=True, rounds_known=1)

    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(program_pack, "unpacked", full)
    with pytest.raises(OSError, match="No space left"):
        worker.build(job)
    monkeypatch.undo()
    checkpoints.remove(taken.job.prefix)
    checkpoints.write(taken.job.prefix, (0, 1), 1, data[:-1])
    pack, url, remark = worker.build(job)
    pack.close()
    assert url is None
    assert "cannot be used: is damaged" in str(remark)


def test_a_full_disk_costs_a_checkpoint_and_the_end_of_a_log_not_the_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = """ln -s /dev/full "${control%.json}.draft"; say '{"round": 1, "loss": 1}'
    until [ -e go ]; do sleep 0.02; done; echo lost; say '{"round": 2, "loss": 1}'"""
    taken = trained(script, tmp_path, checkpoints=True)
    until(lambda: json.loads(taken.step()["report"])["rounds_done"] == 1, 120)
    taken.job = replace(taken.job, checkpoint_seconds=0.0)
    report = json.loads(taken.step()["report"])
    assert report["error"] is None
    assert "no checkpoint could be written to" in report["remark"]
    assert "No space left on device" in report["remark"]
    monkeypatch.setattr(RunLog, "_write", full_log)
    (tmp_path / "go").touch()
    assert reports_of(taken)[-1]["done"]


def full_log(log: RunLog, data: bytes, written: Any = RunLog._write) -> None:
    """As `RunLog._write`, on a full disk."""
    own = os.dup(log._file)
    with open("/dev/full", "wb", buffering=0) as full:
        os.dup2(full.fileno(), log._file)
    try:
        written(log, data)
    finally:
        os.dup2(own, log._file)
        os.close(own)


def test_a_fault_of_the_worker_itself_names_the_log_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = trained('echo trouble >&2; say \'{"round": 1, "loss": 1}\'; sleep 60', tmp_path)
    until(lambda: json.loads(taken.step()["report"])["rounds_done"] == 1, 120)
    monkeypatch.setattr(program_pack.ProgramPack, "_read", broken)
    last = reports_of(taken)[-1]
    assert last["error"] == f"OSError: [Errno 5] Input/output error; log: {tmp_path / 'run.log'}; stderr: trouble"


def broken(*arguments: Any) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_program_that_leaves_out_a_rung_is_told_so(started: Started) -> None:
    pack = started("sleep 60", rounds=3, until=2, silence=0.5)
    with pytest.raises(
        ProgramError, match=r"reported nothing for 0.5 s \(program.silence\) after round 0, must report round 2, a rung"
    ):
        pack.advance()
