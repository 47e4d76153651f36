"""`driftline run`, `driftline resume` and `driftline retry`: a study in this process, from the file to the table."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

import typer

from driftline.client.environment import environment
from driftline.study.spec import Study
from service.embedded.run import EmbeddedRun
from service.embedded.studies import EmbeddedJob


def run_study(file: Path, out: Path | None, ray_address: str | None) -> None:
    """Runs a study into a folder, goes on with it, or shows what is finished."""
    study = Study.from_yaml(file)
    for remark in study.check():
        typer.echo(f"note: {remark}", err=True)
    folder = out or environment().out / study.name
    with EmbeddedRun(folder, study, ray_address=ray_address, source=file.read_text(encoding="utf-8")) as run:
        _follow(run)


def resume_study(folder: Path, ray_address: str | None) -> None:
    """Goes on with the study of a folder, or shows what is finished."""
    with EmbeddedRun(folder, ray_address=ray_address) as run:
        _follow(run)


def retry_trials(folder: Path, trials: Sequence[str], ray_address: str | None) -> None:
    """Runs FAILED trials of a folder's study again, those that are named or all of them."""
    with EmbeddedRun(folder, ray_address=ray_address) as run:
        run.api.retry(run.study_id, trials)
        _follow(run)


def _follow(run: EmbeddedRun) -> None:
    job = EmbeddedJob(run)
    with _clean_stops(run):
        if job.record().state == "SUCCEEDED":
            typer.echo(f"This study is finished; the result in {run.folder}:", err=True)
            if not run.shown():
                run.finish()
        else:
            run.start()
            job.wait(progress=True)
    typer.echo(job.frontier().table())
    typer.echo(run.summary())


@contextlib.contextmanager
def _clean_stops(run: EmbeddedRun) -> Iterator[None]:
    """Has SIGTERM, and SIGHUP of a closed terminal, stop a study as Ctrl-C does, and says how to go on.

    Raises:
        typer.Exit: Stopped; with 128 and the signal's number, as shells have it.
    """
    received = [signal.SIGINT]

    def stop(number: int, frame: FrameType | None) -> None:
        received[:] = [signal.Signals(number)]
        raise KeyboardInterrupt

    before = {}
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup has it ignored
            before[number] = signal.signal(number, stop)
    try:
        yield
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):  # the terminal may be gone
            text = "Stopped; every round that was reported is kept. Go on with:  driftline resume "
            typer.echo(text + shlex.quote(str(run.folder)), err=True)
        if run.abandoned:
            run.close()
            os._exit(128 + received[0])  # Ray's own ending, with the driver still in it, takes long and complains
        raise typer.Exit(128 + received[0]) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
