"""What the command line prints: frontiers, comparisons, methods and tasks."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from driftline.errors import InvalidSpec, NotFound
from driftline.results.curves import unit
from driftline.results.headline import efforts_text, ranges_text
from driftline.results.modelled_time import Time
from driftline.results.show.advice import offers, wins
from driftline.results.show.importance_rows import importance_text
from driftline.results.show.number_text import banded
from driftline.results.trial_list import first_difference
from driftline.study.yaml_files import dumped
from search_spaces import presets, spaces
from service.cli.terminal import echo
from trainers import Configured, Hyperparameter, Registry, Task, hint, shown, withdrawals
from trainers.catalogue import all_of, default_of, exchanges, range_of, roles, source, summary
from trainers.registry import methods, optimizers, schedules, tasks

if TYPE_CHECKING:
    from driftline.sdk.frontier import Frontier
    from driftline.wire.records import TrialRecord


RANGES = {"methods": "The better method", "configurations": "The better ones of the configurations found"}


def show_frontier(
    study: str,
    *,
    as_json: bool,
    quality: str | None = None,
    cost: str | Time | None = None,
    at: str | None = None,
    importance: bool = False,
    url: str | None = None,
    token_file: Path | None = None,
) -> None:
    """Prints the frontiers so far of a folder or of a study on a service, or what one of its options asks for."""
    if importance and at is not None:
        raise InvalidSpec("--importance", f"is for all costs, got --at {at}: leave out one of them")
    limit = None if at is None else _amount(at)
    frontier = _frontier(study, quality, cost, url, token_file)
    if limit is not None:
        _show_offers(frontier, limit, frontier.labels, as_json=as_json)
        return
    if importance:
        echo(json.dumps(frontier.importance(), indent=2) if as_json else importance_text(frontier.data))
        return
    echo(json.dumps(frontier.data, indent=2) if as_json else frontier.table())


def show_comparison(
    study: str,
    first: str,
    second: str,
    *,
    as_json: bool = False,
    cost: str | Time | None = None,
    at: str | None = None,
    url: str | None = None,
    token_file: Path | None = None,
) -> None:
    """Prints which label is better, or why there is no verdict; with `at`, for one cost."""
    limit = None if at is None else _amount(at)
    frontier = _frontier(study, None, cost, url, token_file)
    verdict = frontier.compare(first, second)
    if limit is not None:
        _show_offers(frontier, limit, (first, second), as_json=as_json, over_all=verdict["why"])
        return
    if as_json:
        echo(json.dumps(verdict, indent=2))
        return
    echo(verdict["why"])
    counted = frontier.data["definitions"]["parameters"]["cost"]
    neither = "neither (a tie)" if frontier.data["deterministic"] else "neither (the band of the difference holds 0)"
    if verdict["ranges"]:
        pairs = " and pairs of labels" if len(frontier.labels) > 2 else ""
        echo(f"{RANGES[verdict['ranges_of']]}, at 95 % for all costs{pairs} together:")
    for span, better in ranges_text(verdict["ranges"], counted):
        echo(f"  {span} {unit(counted)}: {better or neither}")
    if verdict["efforts"]:
        echo("By the number of trials of a search, at 95 % for each:")
    for line in efforts_text(first, second, verdict["efforts"]):
        echo(f"  {line}")


def _show_offers(frontier: Frontier, cost: float, labels: Sequence[str], *, as_json: bool, over_all: str = "") -> None:
    """Prints what to run within a cost, the labels' offers beside each other, and what holds over all costs."""
    rows = offers(frontier.data, cost, labels)
    recommendations = [asdict(frontier.best(label, cost=cost)) for label, _ in rows]
    if as_json:
        others = {label: asdict(wins(frontier.data, rows[0][0], label, [cost])[0]) for label, _ in rows[1:]}
        document = {"advice": frontier.advice(cost, labels), "offers": recommendations, "better_than": others}
        echo(json.dumps(document | ({"why": over_all} if over_all else {}), indent=2))
        return
    echo(frontier.advice(cost, labels))
    width = max((len(label) for label, _ in rows), default=0)
    for label, row in rows:
        echo(f"  {label:{width}}  {banded(*row.quality)}, stopped at round {row.stop}: {row.run}")
    if over_all:
        echo(f"Over all costs: {over_all}")


def _amount(text: str) -> float:
    """A cost as people write it: 20, or 392.4k, 1.5M, 2G, 1T.

    Raises:
        InvalidSpec: The text is no positive number.
    """
    sizes = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
    digits, size = (text[:-1], sizes[text[-1]]) if text[-1:] in sizes else (text, 1.0)
    try:
        amount = float(f"{float(digits) * size:.15g}")
    except ValueError:
        amount = math.nan
    if not 0 < amount < math.inf:
        raise InvalidSpec("--at", f"must be a positive number such as 20, 392.4k or 1.5M, got {shown(text)}")
    return amount


def show_first_difference(
    study: str, other: str, *, as_json: bool = False, url: str | None = None, token_file: Path | None = None
) -> None:
    """Prints the first trial that differs between two studies, or that they have the same trials."""
    first, second = (_trials(name, url, token_file) for name in (study, other))
    difference = first_difference(first, second)
    if as_json:
        echo(json.dumps({"first_difference": difference, "trials": len(first)}))
        return
    echo(difference or f"the same {len(first)} trials")


def show_methods(name: str | None, *, as_json: bool = False) -> None:
    """Lists the methods, optimizers, schedules and presets, or shows one of them in full."""
    groups = {"Methods": methods(), "Optimizers": optimizers(), "Schedules": schedules()}
    _show(groups, name, "methods", as_json, presets.trainings())


def show_tasks(name: str | None, *, as_json: bool = False) -> None:
    """Lists the tasks, or shows one of them in full."""
    _show({"Tasks": tasks()}, name, "tasks", as_json)


def chosen_cost(
    cost: str | None,
    network: str | None,
    compute: str | None,
    **more: Any,
) -> str | Time | None:
    """The cost that the options of a command name.

    Args:
        cost: Name of the cost.
        network: Option that modelled time needs.
        compute: Another option that modelled time needs.
        more: Further options of modelled time, by name.

    Raises:
        InvalidSpec: An option of modelled time is missing, or was given for another cost.
    """
    options = {"network": network, "compute": compute, **more}
    if cost != "time":
        for name, value in ((name.replace("_", "-"), value) for name, value in options.items()):
            if value is not None:
                raise InvalidSpec(
                    f"--{name}",
                    f"is for --cost time alone, got --cost {cost}" if cost else "needs --cost time",
                )
        return cost
    if network is None or compute is None:
        missing = "--network 10Gbit,10ms" if network is None else "--compute 300GFLOPS"
        raise InvalidSpec("--cost", f"time is modelled: give {missing} as well")
    return Time(network, compute, **{name: value for name, value in more.items() if value is not None})


def _frontier(
    study: str, quality: str | None, cost: str | Time | None, url: str | None, token_file: Path | None
) -> Frontier:
    from service.cli.jobs import connected, is_remote

    try:
        if is_remote(study, url):
            from driftline.sdk.frontier import Frontier

            with connected(url, token_file) as client:
                return Frontier(client.job(study).frontier(quality=quality, cost=cost).data)
        from service.embedded.folder_results import stored_frontier

        return stored_frontier(Path(study), quality, cost)
    except InvalidSpec as error:
        given = {"quality": "--quality"} if quality else {}
        given |= {"objective.cost": "--cost"} if cost else {}
        raise error.moved(lambda path: given.get(path, path)) from error


def _trials(study: str, url: str | None, token_file: Path | None) -> list[TrialRecord]:
    from service.cli.jobs import connected, is_remote

    if is_remote(study, url):
        with connected(url, token_file) as client:
            return client.job(study).trials()
    from service.embedded.folder_results import stored_trials

    return stored_trials(Path(study))


def _settings(module: object) -> tuple[Hyperparameter, ...]:
    """The Hyper of a method, optimizer or schedule, or the SETTINGS of a task."""
    if isinstance(module, Task):
        return module.SETTINGS
    return all_of(module) if isinstance(module, Configured) else ()


def _show(
    groups: Mapping[str, Registry[object]],
    name: str | None,
    command: str,
    as_json: bool,
    named: Mapping[str, presets.Training] = MappingProxyType({}),
) -> None:
    """Prints a line for each plug-in and preset, or those with one name in full.

    Raises:
        NotFound: No plug-in and no preset has this name.
    """
    if name is None:
        if as_json:
            rows = [_facts(plugin, group) for group in groups.values() for plugin in group]
            rows += [
                {"name": preset_name, "kind": "preset", "summary": preset.about}
                for preset_name, preset in named.items()
            ]
            echo(json.dumps(rows, indent=2))
            return
        for title, group in groups.items():
            echo(f"{title}:")
            for choice in group:
                echo(f"  {choice:<24}{summary(group[choice])}.")
            echo("")
        if named:
            echo("Presets, in place of name in an entry of a study:")
            for choice, preset in named.items():
                echo(f"  {choice:<24}{preset.about}.")
            echo("")
        echo(f"driftline {command} NAME shows one in full.")
        return
    having = [group for group in groups.values() if name in group]
    chosen = named.get(name)
    if not having and chosen is None:
        kinds = " or ".join(", ".join(group.word for group in groups.values()).rsplit(", ", 1))
        names = [*(plugin for group in groups.values() for plugin in group), *named]
        raise NotFound(f"no {kinds} {shown(name)}: {hint(name, names)}")
    if as_json:
        rows = [_all_facts(name, group) for group in having]
        rows += [] if chosen is None else [{"name": name, "kind": "preset", **asdict(chosen)}]
        echo(json.dumps(rows, indent=2))
        return
    for group in having:
        _print_whole(name, group)
    if chosen is not None:
        echo(f"{chr(10) if having else ''}preset: {name}\n\n{chosen.about}. {chosen.note}\n\nSource: {chosen.source}\n")
        echo("Stands for the entry, of which a study may change each setting:")
        for key, form in chosen.entry.items():
            echo(f"  {key}: {_flow(form)}")


def _facts(name: str, group: Registry[object]) -> dict[str, Any]:
    return {"name": name, "kind": group.word, "summary": summary(group[name])}


def _all_facts(name: str, group: Registry[object]) -> dict[str, Any]:
    """Everything about a plug-in as JSON values."""
    module = group[name]
    facts = _facts(name, group) | {"description": inspect.cleandoc(module.__doc__ or ""), "source": source(module)}
    hyperparameters = [
        {
            "name": item.name,
            "summary": item.doc,
            "range": range_of(item),
            "unit": item.unit,
            "default": default_of(item, module),
            "limit": item.limit,
        }
        for item in _settings(module)
    ]
    if isinstance(module, Task):
        return facts | {"settings": hyperparameters}
    facts |= {"exchanges": exchanges(module), "roles": roles(module), "hyperparameters": hyperparameters}
    by_role = _default_spaces(name, group)
    return facts | {"default_space": by_role if group.word == "optimizer" else by_role.get("")}


def _print_whole(name: str, group: Registry[object]) -> None:
    module = group[name]
    echo(f"{name}\n\n{inspect.cleandoc(module.__doc__ or '')}\n")
    if role_names := roles(module):
        echo(f"{'Roles' if group.word == 'method' else 'Serves as'}: {role_names}.\n")
    for line in _hyperparameters(_settings(module), module):
        echo(f"  {line}")
    for setting, reason in (withdrawals(module.Hyper) if isinstance(module, Configured) else {}).items():
        echo(f"  no {setting:<19}{reason}")
    by_role = _default_spaces(name, group)
    for first, space in by_role.items():
        having = [role for role, role_space in by_role.items() if role_space == space]
        if not space or having[0] != first:
            continue
        echo(f"\nDefault search space{' as ' if first else ''}{', '.join(having)}:")
        for key, form in space.items():
            echo(f"  {key}: {_flow(form)}")


def _default_spaces(name: str, group: Registry[object]) -> dict[str, dict[str, Any]]:
    """The default spaces as in a study, by role; a method, or a schedule, has one under ""."""
    kinds: dict[str, spaces.Kind] = {"": "methods" if group.word == "method" else "schedules"}
    if group.word == "optimizer":
        kinds = {kind: kind for kind in spaces.KINDS if kind in roles(group[name]).split(", ")}
    by_role = {role: spaces.default(kind, name) for role, kind in kinds.items() if name in spaces.names(kind)}
    return {role: {key: form.to_json() for key, form in space.items()} for role, space in by_role.items()}


def _flow(form: Any) -> str:
    """A search space as in a study file, on one line."""
    text = dumped([form], default_flow_style=True, width=math.inf)
    return text.strip()[1:-1]


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
