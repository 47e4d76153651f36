"""`driftline validate`: everything that can be said about a study before anything is started."""

from __future__ import annotations

from pathlib import Path

import typer

from driftline.sdk.progress import clock_text
from driftline.study.spec import Study


def validate_study(file: Path, *, estimate: bool) -> None:
    """Checks a study; prints what it would do and how long that takes here."""
    study = Study.from_yaml(file)
    remarks = study.check()
    budget = study.budget
    repeats = min(budget.confirm, budget.trials_per_method) * budget.seeds
    again = f" and {repeats} repeats on {budget.seeds} fresh seeds" if repeats else ""
    each = f"{budget.trials_per_method} trials{again}"
    typer.echo(f"{file}: the study {study.name!r} is right.")
    for remark in remarks:
        typer.echo(f"note: {remark}")
    typer.echo(f"{len(study.labels)} methods ({', '.join(study.labels)}), each {each}, {budget.rounds} rounds a trial.")
    if estimate:
        from service.scheduler.estimate import estimate as measure

        found = measure(study)
        wide = max(len(label.label) for label in found.labels) + 2
        for label in found.labels:
            cost = f"{1000 * label.seconds_a_round:.2f} ms a round of one trial, in packs of {label.width}"
            typer.echo(f"  {label.label:<{wide}}{cost}")
        typer.echo(
            f"About {clock_text(found.seconds)} on {found.workers} CPU workers of this computer, and 20 s to start Ray."
        )
