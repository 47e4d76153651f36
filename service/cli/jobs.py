"""The commands for studies on a service."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import typer

from driftline.client.environment import environment
from driftline.errors import InvalidSpec
from driftline.results.show.escaped_text import escaped
from driftline.sdk.client import Client
from driftline.sdk.job import Job
from driftline.study.spec import Study


def address(url: str | None, token_file: Path | None) -> tuple[str, str | None]:
    """The URL of the service, and the token.

    Raises:
        InvalidSpec: No URL is set, or the token file cannot be read.
    """
    where = url or environment().url
    if where is None:
        raise InvalidSpec("", "no service: pass --url or set DRIFTLINE_URL")
    if not where.startswith(("http://", "https://")):
        raise InvalidSpec("--url", f"must start with http:// or https://, got {where!r}")
    if token_file is None:
        return where, environment().token
    try:
        return where, token_file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise InvalidSpec("--token-file", f"must name a file with a token, got {token_file}: {error}") from error


@contextlib.contextmanager
def connected(url: str | None, token_file: Path | None) -> Iterator[Client]:
    """A client of the service."""
    with Client(*address(url, token_file), on_wait=say_waiting) as client:
        yield client


def say_waiting(url: str) -> None:
    """Prints that the service has not answered yet."""
    typer.echo(f"Waiting for an answer from {url} ...", err=True)


def submit(client: Client, file: Path, *, wait: bool, key: str | None, as_json: bool) -> None:
    """Submits a study; prints its id or record, or with `wait` its result."""
    study = Study.from_yaml(file)
    job = client.submit(study, key)
    if not wait:
        _print_record(job) if as_json else typer.echo(job.id)
        return
    typer.echo(f"submitted as {job.id}", err=True)
    _finish(job)
    frontier = job.frontier()
    typer.echo(json.dumps(frontier.data, indent=2) if as_json else frontier.table())
    if job.mlflow_url:
        typer.echo(f"\nMLflow: {job.mlflow_url}", err=True)


def wait(job: Job) -> None:
    """Shows a study's progress until it has finished; the exit code says how it ended."""
    _finish(job)
    typer.echo(f"{job.record().name}: {job.state.lower()}", err=True)


def list_all(client: Client, *, as_json: bool) -> None:
    """Prints all studies."""
    records = client.records()
    if as_json:
        typer.echo(json.dumps([record.model_dump(mode="json") for record in records], indent=2))
        return
    for record in records:
        reason = f"  ({escaped(record.reason)})" if record.reason else ""
        typer.echo(f"{record.id}  {record.state.lower():<10} {record.created_at:%Y-%m-%d %H:%M}  {record.name}{reason}")
    if not records:
        typer.echo("No studies yet: driftline submit STUDY.yaml", err=True)


def say(job: Job, *, as_json: bool) -> None:
    """Prints a study's state after a request such as pause."""
    if as_json:
        _print_record(job)
        return
    record = job.record()
    typer.echo(f"{record.name} ({record.id}): {record.state.lower()}")


def delete(job: Job, *, yes: bool) -> None:
    """Deletes a study, after asking for confirmation.

    Args:
        job: The study.
        yes: Do not ask.

    Raises:
        typer.Exit: 1 if the answer is no.
    """
    record = job.record()
    if not yes:
        trials = sum(sum(one.search.values()) + sum(one.confirmation.values()) for one in record.progress.values())
        what = f"{record.name} ({record.id}), {record.state.lower()}, {trials} trials"
        if not typer.confirm(f"Delete {what}, with curves, checkpoints, logs and runs in MLflow?", err=True):
            raise typer.Exit(1)
    job.delete()
    typer.echo(f"{record.name} ({record.id}): deleted")


def show_logs(job: Job, *, follow: bool, as_json: bool) -> None:
    """Prints the drivers' logs."""
    try:
        for line in job.logs(follow=follow):
            if as_json:
                typer.echo(line.model_dump_json())
            else:
                typer.echo(f"{line.at:%Y-%m-%d %H:%M:%S} {line.attempt} {line.level.upper():<7} {escaped(line.text)}")
            sys.stdout.flush()
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _finish(job: Job) -> None:
    """Waits for the study, showing progress.

    Raises:
        StudyFailed: The study has failed.
        typer.Exit: 1 if the study was cancelled or paused, 130 after Ctrl-C.
    """
    try:
        job.wait(progress=True)
    except KeyboardInterrupt:
        typer.echo(f"The study keeps running; watch it again with:  driftline watch {job.id}", err=True)
        raise typer.Exit(130) from None
    state = job.state
    if state != "SUCCEEDED":
        hint = f": resume it with  driftline resume {job.id}" if state == "PAUSED" else ""
        typer.echo(f"The study is {state.lower()}{hint}", err=True)
        raise typer.Exit(1)


def _print_record(job: Job) -> None:
    typer.echo(json.dumps(job.record().model_dump(mode="json"), indent=2))
