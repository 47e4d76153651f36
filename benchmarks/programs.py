"""What a study costs around a program of people's own, beside a shell loop that starts the same program.

    OMP_NUM_THREADS=1 python -m benchmarks.programs [--trials 24] [--reports 1000] [--whole]

The program sleeps for no time and reports its rounds. Each study is `driftline run` in a new process; its first trials,
in which Ray starts, are left out. Processor time is that of the command and of everything that it has started,
programs included, as the kernel counts it, between the start of one program and that of a later one. The loop is
`for i in ...; do python program.py; done`, right after the study. `around` is what a trial takes beyond a turn of the
loop. A report costs the difference between trials with many and with one, on both sides of the file. With --whole it
runs one study of --trials trials alone, and gives its time from command to exit and the processor time until its last
trial starts, Ray's start included, beside those of the loop. On a busy machine the processor time, divided by the
number of cores, says how long the study would take on an idle one at least.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.processor_time import descendants
from driftline.study.spec import Study
from driftline.study.trial_document import trial_document
from service.driver.job import PackJob
from service.driver.programs.program_pack import ProgramPack

PROGRAM = """
import os
open(os.environ["STARTS"], "ab").write(b"x")
from driftline import trial
t = trial.current(rate=0.1)
x = 1.0
for r in t.rounds():
    x -= t["rate"] * x
    t.report(r, loss=x * x)
"""
SKIPPED = 6  # trials until all workers have started
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Costs:
    """Of one trial, or of one turn of the loop: seconds, and seconds of processors."""

    wall: float
    cpu: float


def counted_seconds(root: int) -> float:
    """Processor seconds of a process and of all below it, with those that have ended and were waited for."""
    total = 0
    for process in [root, *descendants(root)]:
        try:
            text = Path(f"/proc/{process}/stat").read_text()
        except OSError:
            continue
        total += sum(map(int, text[text.rindex(")") + 2 :].split()[11:15]))
    return total / _TICKS


def document(folder: Path, trials: int, rounds: int) -> dict[str, Any]:
    """The study of a run."""
    (folder / "program.py").write_text(PROGRAM)
    return {
        "name": "programs",
        "program": {
            "command": ["python", "program.py"],
            "metrics": {"loss": "falls"},
            "env": {"STARTS": str(folder / "starts")},
        },
        "methods": [{"label": "mine", "space": {"rate": {"float": [0.1, 0.9]}}}],
        "objective": {"quality": "loss", "cost": "rounds"},
        "sampler": "random",
        "budget": {"trials_per_method": trials, "rounds": rounds, "seeds": 0},
        "resources": {"gpu": 0},
    }


def study(trials: int, rounds: int) -> tuple[Costs, Costs]:
    """Costs of a trial between the starts of a first and a last one; and those of the whole command."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "study.json").write_text(json.dumps(document(folder, trials, rounds)))
        command = [sys.executable, "-m", "service.cli", "run", "study.json", "--out", "out"]
        began = time.monotonic()
        run = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": os.getcwd()}
        )
        marks: list[tuple[int, float, float]] = []
        while run.poll() is None:
            started = (folder / "starts").stat().st_size if (folder / "starts").exists() else 0
            if started >= SKIPPED and (not marks or started > marks[-1][0]) and (len(marks) < 1 or started >= trials):
                marks.append((started, time.monotonic(), counted_seconds(run.pid)))
            time.sleep(0.02)
        if run.returncode or len(marks) < 2:
            raise SystemExit(f"the study must start {trials} programs, got exit code {run.returncode}, {marks}")
        (first, *before), (last, *after) = marks
        wall, cpu = ((later - earlier) / (last - first) for earlier, later in zip(before, after, strict=True))
        return Costs(wall, cpu), Costs(time.monotonic() - began, after[1])


def loop(turns: int, rounds: int) -> Costs:
    """Costs of a turn of a shell loop that starts the program."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "program.py").write_text(PROGRAM)
        own = {"PYTHONPATH": os.getcwd(), "STARTS": str(folder / "starts"), "DRIFTLINE_ROUNDS": str(rounds)}
        script = f"for i in $(seq {turns}); do {sys.executable} program.py > reports; done"
        began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(["sh", "-c", script], cwd=folder, env={**os.environ, **own}, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Costs((time.monotonic() - began) / turns, cpu / turns)


def reused(trials: int) -> Costs:
    """Costs of a trial of a program that stays (`reuse`), in this process, without driver and Ray."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        head, _, body = PROGRAM.partition("t = trial.current(rate=0.1)\n")
        lines = "".join(f"    {line}\n" for line in body.splitlines())
        given = document(folder, trials, 1)
        (folder / "program.py").write_text(f"{head}for t in trial.each(rate=0.1):\n{lines}")
        given["program"] |= {"reuse": True, "folder": str(folder)}
        given["program"]["env"]["PYTHONPATH"] = os.getcwd()
        study = Study.from_json(given)
        resting, began, before = None, 0.0, 0.0
        for number in range(trials + 1):
            if number == 1:  # the first one starts the program
                began, before = time.monotonic(), counted_seconds(os.getpid())
            trial = trial_document(study, "mine", [{"rate": 0.5}], number)
            pack = ProgramPack(PackJob("pack", trial, "", place=str(folder / str(number))), resting=resting)
            while not pack.done:
                pack.advance()
            resting, pack.resting = pack.resting, None
            pack.close()
        costs = Costs((time.monotonic() - began) / trials, (counted_seconds(os.getpid()) - before) / trials)
        if resting is not None:
            resting.process.dismiss()
        return costs


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--reports", type=int, default=1000)
    parser.add_argument("--whole", action="store_true", help="one study alone, from command to exit")
    given = parser.parse_args()
    print(f"{os.cpu_count()} processors, Python {sys.version.split()[0]}, load {os.getloadavg()[0]:.1f}\n")
    if given.whole:
        (each, whole), turn = study(given.trials, 1), loop(given.trials, 1)
        print(f"{given.trials} trials: {whole.wall:.0f} s, {whole.cpu:.0f} CPU-s, {1e3 * each.cpu:.0f} CPU-ms a trial")
        print(f"the loop: {turn.wall * given.trials:.0f} s, {turn.cpu * given.trials:.0f} CPU-s")
        print(f"load at the end: {os.getloadavg()[0]:.1f}")
        return
    stays = reused(10 * given.trials)
    print(f"with reuse, without driver and Ray: {1e3 * stays.wall:.0f} ms and {1e3 * stays.cpu:.1f} CPU-ms a trial\n")
    print("| reports | trial, CPU-ms | turn of the loop, CPU-ms | around, CPU-ms | trial / turn | trial, ms |")
    print("|---|---|---|---|---|---|")
    rows = {}
    for reports in (1, given.reports):
        trial, _ = study(given.trials, reports)
        turn = loop(given.trials, reports)
        rows[reports] = trial
        numbers = f"{1e3 * trial.cpu:.0f} | {1e3 * turn.cpu:.0f} | {1e3 * (trial.cpu - turn.cpu):.0f}"
        print(f"| {reports} | {numbers} | {trial.cpu / turn.cpu:.1f} | {1e3 * trial.wall:.0f} |", flush=True)
    each = (rows[given.reports].cpu - rows[1].cpu) / (given.reports - 1)
    print(f"\na report: {1e3 * each:.2f} CPU-ms")


if __name__ == "__main__":
    main()
