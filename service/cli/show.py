"""What the command line prints: frontiers, comparisons, methods and tasks."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from driftline.client.environment import environment
from driftline.errors import InvalidSpec, NotFound
from driftline.results.modelled_time import Time
from driftline.results.trial_list import first_difference
from trainers import Configured, Hyperparameter, Registry, Task, hint, offered, shown, withdrawals
from trainers.catalogue import default_of, exchanges, range_of, roles, source, summary
from trainers.registry import methods, optimizers, schedules, tasks

if TYPE_CHECKING:
    from driftline.sdk.frontier import Frontier
    from driftline.wire.records import TrialRecord


def show_frontier(
    study: str,
    *,
    as_json: bool,
    quality: str | None = None,
    cost: str | Time | None = None,
    url: str | None = None,
    token_file: Path | None = None,
) -> None:
    """Prints the frontiers so far of an output folder or of a study on a service."""
    frontier = _frontier(study, quality, cost, url, token_file)
    typer.echo(json.dumps(frontier.data, indent=2) if as_json else frontier.table())


def show_comparison(
    study: str,
    first: str,
    second: str,
    *,
    as_json: bool = False,
    cost: str | Time | None = None,
    url: str | None = None,
    token_file: Path | None = None,
) -> None:
    """Prints which label is better, or why there is no verdict."""
    verdict = _frontier(study, None, cost, url, token_file).compare(first, second)
    if as_json:
        typer.echo(json.dumps(verdict, indent=2))
        return
    typer.echo(verdict["why"])
    for span in verdict["ranges"]:
        better = span["better"] or "neither (the band of the difference holds 0)"
        typer.echo(f"  from {span['from']:g} to {span['to']:g}: {better}")


def show_first_difference(study: str, other: str, *, url: str | None = None, token_file: Path | None = None) -> None:
    """Prints the first trial that differs between two studies, or that they have the same trials."""
    one, two = (_trials(place, url, token_file) for place in (study, other))
    typer.echo(first_difference(one, two) or f"the same {len(one)} trials")


def show_methods(name: str | None) -> None:
    """Prints every method, optimizer and schedule with its hyperparameters, or one of them in full."""
    groups = (
        ("Methods", methods()),
        ("Optimizers", optimizers()),
        ("Schedules", schedules()),
    )
    if name is not None:
        found = [registry for _, registry in groups if name in registry]
        for registry in found:
            _print_whole(name, registry[name], _settings(registry[name]))
        if found:
            return
        known = [known for _, registry in groups for known in registry]
        raise NotFound(f"no method, optimizer or schedule {shown(name)}: {hint(name, known)}")
    for title, registry in groups:
        typer.echo(f"{title}:")
        _print_list(registry)


def show_tasks(name: str | None) -> None:
    """Prints every task with its settings, or one of them in full."""
    registry = tasks()
    if name is not None:
        if name not in registry:
            raise NotFound(f"no task {shown(name)}: {hint(name, registry)}")
        _print_whole(name, registry[name], _settings(registry[name]))
        return
    typer.echo("Tasks:")
    _print_list(registry)


def is_remote(study: str, url: str | None) -> bool:
    """Whether the study is on a service: a service is set, and there is no such folder."""
    return (url or environment().url) is not None and not Path(study).is_dir()


def chosen_cost(
    cost: str | None,
    network: str | None,
    compute: str | None,
    stragglers: float | None,
    flops_per_example: float | None,
) -> str | Time | None:
    """The cost that the options of a command name.

    Raises:
        InvalidSpec: An option of modelled time is missing, or was given for another cost.
    """
    options = {"network": network, "compute": compute, "stragglers": stragglers, "flops-per-example": flops_per_example}
    if cost != "time":
        for name, value in options.items():
            if value is not None:
                raise InvalidSpec(
                    f"--{name}", f"is for --cost time alone, got --cost {cost}" if cost else "needs --cost time"
                )
        return cost
    if network is None or compute is None:
        missing = "--network 10Gbit,10ms" if network is None else "--compute 300GFLOPS"
        raise InvalidSpec("--cost", f"time is modelled: give {missing} as well")
    return Time(network, compute, stragglers or 0.0, flops_per_example)


def _frontier(
    study: str, quality: str | None, cost: str | Time | None, url: str | None, token_file: Path | None
) -> Frontier:
    if is_remote(study, url):
        from driftline.sdk.frontier import Frontier
        from service.cli.jobs import connected

        with connected(url, token_file) as client:
            return Frontier(client.job(study).frontier(quality=quality, cost=cost).data)
    from service.embedded.folder_results import stored_frontier

    return stored_frontier(Path(study), quality, cost)


def _trials(study: str, url: str | None, token_file: Path | None) -> list[TrialRecord]:
    if is_remote(study, url):
        from service.cli.jobs import connected

        with connected(url, token_file) as client:
            return client.job(study).trials()
    from service.embedded.folder_results import stored_trials

    return stored_trials(Path(study))


def _settings(module: object) -> tuple[Hyperparameter, ...]:
    """The Hyper of a method, optimizer or schedule, or the SETTINGS of a task."""
    if isinstance(module, Task):
        return module.SETTINGS
    return offered(module) if isinstance(module, Configured) else ()


def _print_list(registry: Registry[object]) -> None:
    for name in registry:
        module = registry[name]
        typer.echo(f"  {name:<24}{summary(module)}.")
        for word, said in (("paper", source(module)), ("exchanges", exchanges(module)), ("optimizers", roles(module))):
            if said:
                typer.echo(f"      {word:<22}{said}")
        for line in _hyperparameters(_settings(module), module):
            typer.echo(f"      {line}")
    typer.echo("")


def _print_whole(name: str, module: object, described: tuple[Hyperparameter, ...]) -> None:
    typer.echo(f"{name}\n\n{inspect.cleandoc(module.__doc__ or '')}\n")
    for line in _hyperparameters(described, module):
        typer.echo(f"  {line}")
    for setting, reason in (withdrawals(module.Hyper) if isinstance(module, Configured) else {}).items():
        typer.echo(f"  no {setting:<19}{reason}")


def _hyperparameters(described: tuple[Hyperparameter, ...], module: object) -> Iterator[str]:
    for item in described:
        facts = [item.doc] if item.doc else []
        if item.kind != "any" or not item.doc:
            facts.append(range_of(item))
        if item.unit:
            facts.append(item.unit)
        if default := default_of(item, module):
            facts.append(f"default {default}")
        if item.limit:
            facts.append(item.limit)
        yield f"{item.name:<22}{'; '.join(facts)}"
