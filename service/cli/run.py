"""`driftline run`, `resume`, `retry` and `extend` for a study in this process."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

import typer

from driftline.sdk import shortcuts
from driftline.study.yaml_files import dumped
from service.cli.begun_run import BegunRun
from service.cli.terminal import echo
from service.embedded.embedded_run import EmbeddedRun
from service.embedded.local_studies import WRITING, EmbeddedJob


def run_study(begun: BegunRun, warm_start: Path | None = None, *, as_json: bool = False) -> None:
    """Runs a study into a folder, resumes it, or shows its result if it is finished.

    Args:
        begun: The study and where it runs.
        warm_start: Folder of an earlier study, whose recommendations are tried first.
        as_json: Print frontier.json instead of the table.
    """
    study, source = begun.study, begun.source
    if warm_start is not None:
        study = shortcuts.frontier(warm_start).warm_started(study)
        source = dumped(study.to_json())
    if sys.stderr.isatty():
        echo("Checking the study ...", err=True)
    for remark in study.check():
        echo(f"note: {remark}", err=True)
    with EmbeddedRun(
        begun.folder,
        study,
        ray_address=begun.ray_address,
        source=source,
        early_ray=begun.early_ray,
        cores=begun.cores,
    ) as run:
        _follow(run, as_json=as_json)


def resume_study(folder: Path, ray_address: str | None, cores: int | None, *, as_json: bool = False) -> None:
    """Resumes the study of a folder, or shows its result if it is finished."""
    with EmbeddedRun(folder, ray_address=ray_address, cores=cores) as run:
        _follow(run, as_json=as_json)


def retry_trials(
    folder: Path, trials: Sequence[str], ray_address: str | None, cores: int | None, *, as_json: bool = False
) -> None:
    """Runs FAILED trials of a folder's study again, the given ones or all."""
    with EmbeddedRun(folder, ray_address=ray_address, cores=cores) as run:
        run.api.retry(run.study_id, trials)
        _follow(run, as_json=as_json)


def extend_study(
    folder: Path,
    budget: tuple[int | None, int | None],
    ray_address: str | None,
    cores: int | None,
    *,
    as_json: bool = False,
) -> None:
    """Gives the study of a folder a larger budget (trials of each method, seeds), and runs what is new."""
    trials, seeds = budget
    with EmbeddedRun(folder, ray_address=ray_address, cores=cores) as run:
        run.api.extend(run.study_id, trials_per_method=trials, seeds=seeds)
        _follow(run, as_json=as_json)


def _follow(run: EmbeddedRun, *, as_json: bool) -> None:
    job = EmbeddedJob(run)
    with _clean_stops(run):
        if job.record().state == "SUCCEEDED":
            echo(f"This study is finished; the result in {run.folder}:", err=True)
            complete = run.shown()
        else:
            run.start()
            job.ended(progress=True)
            complete = False
        if not complete:
            run.begin_finishing()
        frontier = job.frontier()
        echo(json.dumps(frontier.data, indent=2) if as_json else frontier.table())
        if not complete:
            echo(WRITING, err=True)
            run.finish()
    echo(run.summary(), err=as_json)


@contextlib.contextmanager
def _clean_stops(run: EmbeddedRun) -> Iterator[None]:
    """Makes SIGTERM and SIGHUP (a closed terminal) stop a study as Ctrl-C does, and prints how to resume it.

    Raises:
        typer.Exit: The study was stopped; exit code 128 + the signal's number, as in shells.
    """
    received = [signal.SIGINT]

    def stop(number: int, frame: FrameType | None) -> None:
        received[:] = [signal.Signals(number)]
        raise KeyboardInterrupt

    before = {}
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # under nohup SIGHUP is ignored
            before[number] = signal.signal(number, stop)
    try:
        yield
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):  # the terminal may be gone
            text = "Stopped; all reported rounds are kept. Resume with:  driftline resume "
            echo(text + shlex.quote(str(run.folder)), err=True)
        if run.abandoned:
            run.close()
            os._exit(128 + received[0])  # Ray's shutdown is slow and noisy while the driver is in it
        raise typer.Exit(128 + received[0]) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
