"""`driftline validate`: everything that can be said about a study before anything is started."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import typer

from driftline.sdk.progress import clock_text
from driftline.study.spec import Study
from driftline.wire.budgets import StudyEstimate


def validate_here(file: Path, *, estimate: bool) -> None:
    """Checks a study; prints what it would do and how long that takes here."""
    study = Study.from_yaml(file)
    _print_plan(file, study, study.check())
    if estimate:
        from service.api.timing import estimate as measure

        found = measure(study)
        wide = max(len(label.label) for label in found.labels) + 2
        for label in found.labels:
            cost = f"unknown: {label.why}"
            if label.seconds_a_round is not None:
                cost = f"{1000 * label.seconds_a_round:.2f} ms a round of one trial, in packs of {label.width}"
            typer.echo(f"  {label.label:<{wide}}{cost}")
        if found.seconds is not None:
            time = f"{clock_text(found.seconds)} on {found.workers} CPU workers of this computer"
            typer.echo(f"About {time}, and 20 s to start Ray.")


def validate_there(file: Path, url: str | None, token_file: Path | None, *, estimate: bool) -> None:
    """Has a service check a study; prints what it would do and what that costs there."""
    from driftline.client.api_client import ApiClient
    from service.cli.jobs import address

    study = Study.from_yaml(file)
    with ApiClient(*address(url, token_file)) as client:
        answer = client.validate(study.to_json())
    _print_plan(file, study, answer["remarks"])
    if estimate and answer["estimate"]:
        _print_estimate(StudyEstimate.model_validate(answer["estimate"]))


def _print_plan(file: Path, study: Study, remarks: Iterable[str]) -> None:
    budget = study.budget
    repeats = min(budget.confirm, budget.trials_per_method) * budget.seeds
    again = f" and {repeats} repeats on {budget.seeds} fresh seeds" if repeats else ""
    each = f"{budget.trials_per_method} trials{again}"
    typer.echo(f"{file}: study {study.name!r} is valid.")
    for remark in remarks:
        typer.echo(f"note: {remark}")
    typer.echo(f"{len(study.labels)} methods ({', '.join(study.labels)}), each {each}, {budget.rounds} rounds a trial.")


def _print_estimate(found: StudyEstimate) -> None:
    """What is known, and a line for each thing that is not."""
    if found.seconds is not None:
        finish = "" if found.finish is None else f", until about {found.finish:%Y-%m-%d %H:%M} UTC"
        typer.echo(f"About {clock_text(found.seconds)} on the service{finish}.")
    for name in ("client_gradients", "bytes_up", "bytes_down", "cpu_hours", "gpu_hours"):
        value = getattr(found, name)
        if value is not None:
            typer.echo(f"  {name:<18}{value:.6g}")
    for line in found.rests_on:
        typer.echo(f"  {line}")
