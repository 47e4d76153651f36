"""`driftline run` and `driftline resume`: a study in this process, from the file to the table."""

from __future__ import annotations

from pathlib import Path

import typer

from service.embedded.client import EmbeddedJob
from service.embedded.run import EmbeddedRun
from service.schemas.study import Study
from service.settings import settings


def run_study(file: Path, out: Path | None, ray_address: str | None) -> None:
    """Runs a study into a folder, goes on with it, or shows what is finished."""
    study = Study.from_yaml(file)
    for remark in study.check():
        typer.echo(f"note: {remark}", err=True)
    folder = out or settings().out / study.name
    with EmbeddedRun(folder, study, ray_address=ray_address, source=file.read_text(encoding="utf-8")) as run:
        _follow(run)


def resume_study(folder: Path, ray_address: str | None) -> None:
    """Goes on with the study of a folder, or shows what is finished."""
    with EmbeddedRun(folder, ray_address=ray_address) as run:
        _follow(run)


def _follow(run: EmbeddedRun) -> None:
    job = EmbeddedJob(run)
    if job.record().state == "SUCCEEDED":
        typer.echo(f"This study is finished; the result in {run.folder}:", err=True)
        if not run.shown():
            run.finish()
    else:
        run.start()
        _wait(run, job)
    typer.echo(job.frontier().table())
    typer.echo(run.summary())


def _wait(run: EmbeddedRun, job: EmbeddedJob) -> None:
    try:
        job.wait(progress=True)
    except KeyboardInterrupt:
        typer.echo(f"Stopped; every finished round is kept. Go on with:  driftline resume {run.folder}", err=True)
        raise
