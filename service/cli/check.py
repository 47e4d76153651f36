"""`driftline validate`: checks a study and estimates its cost without starting anything."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from driftline.client.environment import environment
from driftline.sdk import shortcuts
from driftline.sdk.client import Client
from driftline.study.all_errors import read_study
from driftline.study.spec import Study
from driftline.wire.budgets import StudyEstimate
from driftline.wire.durations import clock_text
from service.cli.jobs import connected
from service.cli.terminal import echo


def validate_study(
    file: Path,
    url: str | None,
    token_file: Path | None,
    warm_start: str | None = None,
    *,
    estimate: bool,
    as_json: bool = False,
) -> None:
    """Checks a study, on the service if one is set; prints its size and estimated cost."""
    study = read_study(file)
    with connected(url, token_file) if url or environment().url else Client() as client:
        if warm_start is not None:
            earlier = shortcuts.frontier(warm_start) if client.local else client.job(warm_start).frontier()
            study = earlier.warm_started(study)
        checked = client.validate(study, estimate=estimate)
    if as_json:
        echo(checked.model_dump_json(indent=2))
        return
    _print_plan(file, study, checked.remarks, checked.outlook)
    if checked.estimate is not None:
        _print_estimate(checked.estimate)


def _print_plan(file: Path, study: Study, remarks: Iterable[str], outlook: Iterable[str]) -> None:
    budget = study.budget
    confirmation = budget.confirmation_trials
    seeds = _count(budget.seeds, "fresh seed")
    again = f" and {_count(confirmation, 'confirmation trial')} on {seeds}" if confirmation else ""
    trials = f"{_count(budget.trials_per_method, 'search trial')}{again}"
    echo(f"{file}: study {study.name!r} is valid.")
    for remark in remarks:
        echo(f"note: {remark}")
    methods = _count(len(study.labels), "method")
    other_rounds = "".join(f", {entry.rounds} of {entry.label}" for entry in study.methods if entry.rounds is not None)
    echo(f"{methods} ({', '.join(study.labels)}), each {trials}, {budget.trial_text} a trial{other_rounds}.")
    for fact in outlook:
        echo(fact)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _print_estimate(estimate: StudyEstimate) -> None:
    """Prints the known costs, then what the estimate is based on."""
    if estimate.seconds is not None:
        echo(f"About {clock_text(estimate.seconds)} on this computer.")
    if estimate.cpu_hours is not None:
        echo(f"  {'cpu_hours':<18}{estimate.cpu_hours:.6g}")
    for line in estimate.rests_on:
        echo(f"  {line}")
