"""The commands for studies on a service, and those that read a study in either place."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn, get_args

import typer
from pydantic import BaseModel, ValidationError

from driftline.client.environment import environment
from driftline.errors import InvalidSpec, Unavailable
from driftline.results.show.escaped_text import escaped
from driftline.sdk.client import Client
from driftline.sdk.job import POLL_S, Job, rests
from driftline.sdk.progress_view import done_text
from driftline.study.all_errors import read_study
from driftline.study.spec import Study
from driftline.study.validation import raise_invalid
from driftline.wire.records import STUDY_FINISHED, StudyRecord, StudyState
from service.cli import unanswered
from service.cli.terminal import confirm, echo
from trainers import hint, shown


def is_remote(study: str, url: str | None) -> bool:
    """Whether the study is on a service: a service is set, and there is no such folder."""
    return (url or environment().url) is not None and not Path(study).is_dir()


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
        token = token_file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise InvalidSpec("--token-file", f"must name a file with a token, got {token_file}: {error}") from error
    if not token:
        raise InvalidSpec("--token-file", f"must name a file with a token, got {token_file}, which is empty")
    return where, token


@contextlib.contextmanager
def connected(url: str | None, token_file: Path | None) -> Iterator[Client]:
    """A client of the service."""
    with Client(*address(url, token_file), on_wait=say_waiting) as client:
        yield client


@contextlib.contextmanager
def readable(study: str, url: str | None, token_file: Path | None) -> Iterator[Job]:
    """A study on a service or in an output folder, to watch it or to read its log."""
    if is_remote(study, url):
        with connected(url, token_file) as client:
            yield client.job(study)
        return
    from service.embedded.local_studies import WatchedJob

    yield WatchedJob(Path(study))


def say_waiting(url: str) -> None:
    """Prints that the service has not answered yet."""
    echo(f"Waiting for an answer from {url} ...", err=True)


def submit(
    client: Client, url: str, file: Path, warm_start: str | None = None, *, wait: bool, key: str | None, as_json: bool
) -> None:
    """Submits a study; prints its id or record, or with `wait` its result.

    If the last submission of this study got no answer, its key is used again.

    Args:
        client: Connection to the service.
        url: Its address.
        file: The study's file.
        warm_start: An earlier study on the service, whose recommendations are tried first.
        wait: Whether to wait for the result.
        key: Idempotency key.
        as_json: Whether to print JSON.
    """
    study = read_study(file)
    if warm_start is not None:
        study = client.job(warm_start).frontier().warm_started(study)
    job = _submitted(client, url, study, key)
    if not wait:
        _print_record(job) if as_json else echo(job.id)
        return
    echo(f"submitted as {job.id}", err=True)
    _finish(job, job.id)
    frontier = job.frontier()
    echo(json.dumps(frontier.data, indent=2) if as_json else frontier.table())
    if job.mlflow_url:
        echo(f"\nMLflow: {escaped(job.mlflow_url)}", err=True)


def _submitted(client: Client, url: str, study: Study, key: str | None) -> Job:
    document = study.to_json()
    kept = None if key else unanswered.key(url, document)
    if kept:
        echo(f"The last submission of this study had no answer: repeated with its key {kept}.", err=True)
    key = key or kept or str(uuid.uuid4())
    try:
        job = client.submit(study, key)
    except (Unavailable, KeyboardInterrupt) as error:
        if isinstance(error, KeyboardInterrupt) or error.details.get("arrived"):
            unanswered.keep(url, document, key)
        raise
    unanswered.forget(url, document)
    return job


def wait(job: Job, study: str, *, as_json: bool = False) -> None:
    """Shows a study's progress until it has finished; the exit code says how it ended.

    Args:
        job: The study.
        study: How the user named it.
        as_json: Whether to print its record, as a line of JSON, whenever it has changed.
    """
    _finish(job, shlex.quote(study), as_json=as_json)
    echo(f"{job.record().name}: {job.state.lower()}", err=True)


def list_all(client: Client, states: Sequence[str] = (), *, as_json: bool) -> None:
    """Prints the studies of the token's project.

    Args:
        client: Connection to the service.
        states: Only studies in one of these states, in any case; () is all.
        as_json: Whether to print JSON, with ``owner`` beside each record's keys.

    Raises:
        InvalidSpec: There is no such state.
    """
    selected = {state.upper() for state in states}
    for state in selected - set(get_args(StudyState)):
        raise InvalidSpec("--state", f"no state {shown(state.lower())}: {hint(state, get_args(StudyState)).lower()}")
    records = [record for record in client.records() if not selected or record.state in selected]
    owners = client.owners() if records else {}
    if as_json:
        facts = [record.model_dump(mode="json") | {"owner": owners.get(record.id)} for record in records]
        echo(json.dumps(facts, indent=2))
        return
    if not records:
        which = f"in state {' or '.join(sorted(selected)).lower()}" if selected else "yet: driftline submit STUDY.yaml"
        echo(f"No studies {which}", err=True)
        return
    echo(f"Project {records[0].project}", err=True)
    width = min(24, max(len("owner"), *(len(escaped(owners.get(record.id, ""))) for record in records)))
    echo(f"{'id':<26}  {'state':<10} {'submitted (UTC)':<16}  {'rounds':>6}  {'owner':<{width}}  name")
    for record in records:
        reason = f"  ({escaped(record.reason)})" if record.reason else ""
        state = f"{record.state.lower():<10} {record.created_at:%Y-%m-%d %H:%M}  {done_text(record.progress):>6}"
        owner = escaped(owners.get(record.id, ""))
        owner = owner if len(owner) <= width else owner[: width - 1] + "…"
        echo(f"{record.id}  {state}  {owner:<{width}}  {record.name}{reason}")


def say(job: Job, *, as_json: bool) -> None:
    """Prints a study's state after a request such as pause."""
    if as_json:
        _print_record(job)
        return
    record = job.record()
    echo(f"{record.name} ({record.id}): {record.state.lower()}")


def cancel(job: Job, *, yes: bool, as_json: bool) -> None:
    """Cancels a study, after asking for confirmation; see `_confirm`."""
    if not yes and job.state not in STUDY_FINISHED:
        _confirm(job.record(), "Cancel", "for good (after `driftline pause` it could be resumed)?")
    say(job.cancel(), as_json=as_json)


def delete(job: Job, *, yes: bool, as_json: bool) -> None:
    """Deletes a study, after asking for confirmation (see `_confirm`); as JSON it prints its last record."""
    record = job.record()
    if not yes:
        _confirm(record, "Delete", "with curves, checkpoints, logs and runs in MLflow?")
    job.delete()
    echo(_json(record) if as_json else f"{record.name} ({record.id}): deleted")


def show_logs(job: Job, *, follow: bool, as_json: bool) -> None:
    """Prints the drivers' logs."""
    try:
        for line in job.logs(follow=follow):
            if as_json:
                echo(line.model_dump_json())
            else:
                attempt = f"attempt {line.attempt}: " if line.attempt > 1 else ""  # of a driver that replaced another
                echo(f"{line.at:%Y-%m-%d %H:%M:%S} {escaped(line.level.upper()):<7} {attempt}{escaped(line.text)}")
            sys.stdout.flush()
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _finish(job: Job, study: str, *, as_json: bool = False) -> None:
    """Waits for the study, showing progress; `study` names it in commands.

    Raises:
        StudyFailed: The study has failed.
        typer.Exit: 1 if the study was cancelled or paused, 130 after Ctrl-C.
    """
    try:
        _print_changes(job) if as_json else job.wait(progress=True)
    except KeyboardInterrupt:
        echo(f"The study keeps running; watch it again with:  driftline watch {study}", err=True)
        raise typer.Exit(130) from None
    state = job.state
    if state != "SUCCEEDED":
        hint = f": resume it with  driftline resume {study}" if state == "PAUSED" else ""
        echo(f"The study is {state.lower()}{hint}", err=True)
        raise typer.Exit(1)


def _confirm(record: StudyRecord, action: str, details: str) -> None:
    """Asks whether to do something to a study.

    Raises:
        typer.Exit: 1 if the answer is no.
    """
    trials = sum(
        sum(progress.search.values()) + sum(progress.confirmation.values()) for progress in record.progress.values()
    )
    what = f"{record.name} ({record.id}), {record.state.lower()}, {trials} trials"
    if not confirm(f"{action} {what}, {details}"):
        raise typer.Exit(1)


def _print_changes(job: Job) -> None:
    last = None
    while True:
        record = job.record()
        if record != last:
            echo(record.model_dump_json())
            sys.stdout.flush()
            last = record
        if rests(record, None):
            return
        time.sleep(POLL_S)


def _print_record(job: Job) -> None:
    echo(_json(job.record()))


def _json(record: StudyRecord) -> str:
    return json.dumps(record.model_dump(mode="json"), indent=2)


def refuse(error: ValidationError, model: type[BaseModel], options: Mapping[str, str]) -> NoReturn:
    """Raises the errors of a request that was made from options, under the names of the options."""
    try:
        raise_invalid(error, model)
    except InvalidSpec as invalid:
        raise invalid.moved(lambda path: options.get(path, path)) from None
