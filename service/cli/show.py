"""What the command line prints: frontiers, comparisons, methods and tasks."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import typer

from service.errors import NotFound
from trainers.catalogue import range_of
from trainers.hyper import Hyperparameter
from trainers.parts import offered
from trainers.registry import Registry, methods, schedules, servers, tasks
from trainers.spelling import hint

if TYPE_CHECKING:
    from service.sdk.frontier import Frontier


def show_frontier(folder: Path, *, as_json: bool, quality: str | None = None, cost: str | None = None) -> None:
    """Prints the frontiers of an output folder, as far as its study has come."""
    frontier = _frontier(folder, quality, cost)
    typer.echo(json.dumps(frontier.data, indent=2) if as_json else frontier.table())


def show_comparison(folder: Path, first: str, second: str) -> None:
    """Prints who is better, or why nobody can say."""
    verdict = _frontier(folder).compare(first, second)
    typer.echo(verdict["why"])
    for span in verdict["ranges"]:
        better = span["better"] or "neither (the bands overlap)"
        typer.echo(f"  from {span['from']:g} to {span['to']:g}: {better}")


def show_methods(name: str | None) -> None:
    """Prints every method, server optimizer and schedule with its hyperparameters, or one of them in full."""
    groups = (("Methods", methods()), ("Server optimizers", servers()), ("Schedules", schedules()))
    if name is not None:
        for _, registry in groups:
            if name in registry:
                _print_whole(name, registry[name], _settings(registry[name]))
                return
        known = [known for _, registry in groups for known in registry]
        raise NotFound(f"no method, server optimizer or schedule {name!r}: {hint(name, known)}")
    for title, registry in groups:
        typer.echo(f"{title}:")
        _print_list(registry)


def show_tasks(name: str | None) -> None:
    """Prints every task with its settings, or one of them in full."""
    registry = tasks()
    if name is not None:
        if name not in registry:
            raise NotFound(f"no task {name!r}: {hint(name, registry)}")
        _print_whole(name, registry[name], _settings(registry[name]))
        return
    typer.echo("Tasks:")
    _print_list(registry)


def _frontier(folder: Path, quality: str | None = None, cost: str | None = None) -> Frontier:
    from service.embedded.stored import stored_frontier

    return stored_frontier(folder, quality, cost)


def _settings(module: ModuleType) -> tuple[Hyperparameter, ...]:
    """What there is to set: the Hyper of a method, server optimizer or schedule, the SETTINGS of a task."""
    return offered(module) if hasattr(module, "Hyper") else tuple(getattr(module, "SETTINGS", ()))


def _print_list(registry: Registry) -> None:
    for name in registry:
        module = registry[name]
        typer.echo(f"  {name:<24}{_first_line(module)}")
        for line in _hyperparameters(_settings(module)):
            typer.echo(f"      {line}")
    typer.echo("")


def _print_whole(name: str, module: ModuleType, described: tuple[Hyperparameter, ...]) -> None:
    typer.echo(f"{name}\n\n{inspect.cleandoc(module.__doc__ or '')}\n")
    for line in _hyperparameters(described):
        typer.echo(f"  {line}")


def _first_line(module: ModuleType) -> str:
    return (module.__doc__ or "").strip().partition("\n")[0]


def _hyperparameters(described: tuple[Hyperparameter, ...]) -> Iterator[str]:
    for item in described:
        facts = [item.doc] if item.doc else []
        if item.kind != "any" or not item.doc:
            facts.append(range_of(item))
        if item.unit:
            facts.append(item.unit)
        if not item.required:
            facts.append(f"default {json.dumps(item.default, default=str)}")
        if item.limit:
            facts.append(item.limit)
        yield f"{item.name:<22}{'; '.join(facts)}"
