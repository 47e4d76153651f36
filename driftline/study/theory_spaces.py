"""Spaces from theory (`space: theory`), frozen into a study before it runs.

A study with `space: theory` begins with the default space. `derived` measures the task once for each batch size, at the
initial model of the first search, and returns the study with the ranges of `search_spaces.from_theory`, first points
under `start`, and what was measured under `theory`. That study is stored and run, so it can be repeated without
measuring again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trainers
from driftline.errors import InvalidSpec
from driftline.study.entries import MethodEntry
from driftline.study.spec import Study
from driftline.study.starting_points import broken_by
from driftline.study.trial_document import trial_document
from driftline.study.trial_rounds import usual_budget
from driftline.study.validation import from_spec_error
from search_spaces.from_theory import TheoryPrior
from search_spaces.parameters import Choice, Float, Parameter, Space
from search_spaces.values import is_real
from trainers import PLAIN, SpecError

if TYPE_CHECKING:  # its import loads torch
    from trainers import LossEstimate

MOST = 8
"""Most first points of an entry, which are also at most an eighth of its search's trials, but at least one."""


def pending(study: Study) -> list[int]:
    """Indices of the entries whose spaces are still to be derived."""
    return [index for index, entry in enumerate(study.methods) if entry.theory and entry.theory.measured is None]


def derived(study: Study) -> Study:
    """The study with its spaces from theory written out; imports the trainers, and with them torch.

    Takes a few seconds where something is to be derived. A study whose trials are invalid is returned unchanged:
    `Study.check` says what is wrong with it.

    Raises:
        InvalidSpec: There is no theory for a method, or the task has no curvature to derive it from.
    """
    indices = pending(study)
    if not indices:
        return study
    document = study.to_json()
    measured: dict[int | None, LossEstimate] = {}  # by batch size, on which the noise depends
    for index in indices:
        entry, path = study.methods[index], f"methods[{index}].space"
        size = study.settings_of(entry).batch_size
        try:
            trial = _trial(study, entry)
        except SpecError:
            return study
        try:
            measured[size] = measured.get(size) or trainers.estimate_curvature(trial)
        except SpecError as error:
            raise InvalidSpec(path, f"theory cannot be used: {error}") from error
        try:
            _derive(study, index, document["methods"][index], measured[size])
        except SpecError as error:
            raise from_spec_error(error, path) from error
    return Study.from_json(document)


def curvature_ratio(earlier: Study, study: Study) -> float:
    """Curvature of an earlier study's task, relative to that of a study; imports the trainers, and with them torch.

    It is 1 if the tasks are equal, and where one of them cannot be built or has no curvature.
    """
    if earlier.task == study.task:
        return 1.0
    try:
        measured = [trainers.estimate_curvature(_trial(one, one.methods[0])) for one in (earlier, study)]
    except SpecError:
        return 1.0
    return measured[0].smoothness / measured[1].smoothness


def adopted(study: Study, stored: Study) -> Study:
    """The study with the spaces of a stored one that was derived from the same entries; unchanged where they differ.

    Args:
        study: The study as its user wrote it.
        stored: The study as it runs.
    """
    document = study.to_json()
    changed = False
    for index in pending(study):
        entry = study.methods[index]
        twin = next((other for other in stored.methods if other.label == entry.label), None)
        if twin is None or twin.theory is None or entry.theory is None or twin.theory.parts != entry.theory.parts:
            continue
        form, kept = document["methods"][index], stored.to_json()["methods"][stored.methods.index(twin)]
        keys = ("space", "theory", "start") if twin.start[: len(entry.start)] == entry.start else ("space", "theory")
        form |= {key: kept[key] for key in keys if key in kept}
        if "server" in twin.theory.parts:
            form["server"]["space"] = kept["server"]["space"]
        changed = True
    try:
        return Study.from_json(document) if changed else study
    except InvalidSpec:  # its own starting points lie outside the stored spaces
        return study


def theory_facts(study: Study) -> list[str]:
    """Sentences about the entries whose spaces are from theory: the spaces, and what they were derived from."""
    facts = []
    for entry in study.methods:
        if entry.theory is None or entry.theory.measured is None:
            continue
        measured: dict[str, Any] = dict(entry.theory.measured)
        named = [name for name in ("client_lr", "server_lr", "local_steps") if name in entry.space]
        parts = [f"{name} {_in_words(entry.space[name])}" for name in named]
        if "server" in entry.theory.parts and "momentum" in entry.server.space:
            parts.append(f"server.momentum {_in_words(entry.server.space['momentum'])}")
        facts.append(f"Space of {entry.label} from theory: {', '.join(parts)}; {len(entry.start)} first points.")
        low, median, high = measured["client_smoothness"]
        facts.append(
            f"Measured at the initial model on {measured['clients']} clients: curvature {measured['smoothness']:g} "
            f"(of single clients {low:g} to {high:g}, median {median:g}), smallest useful "
            f"{measured['useful_curvature']:g}; noise of a batch gradient {measured['gradient_noise']:g}."
        )
    return list(dict.fromkeys(facts))  # entries may share a measurement


def _trial(study: Study, entry: MethodEntry) -> trainers.TrialSpec:
    """A trial of an entry, with all hyperparameters low."""
    low = {name: parameter.ends()[0] for name, parameter in entry.parameters().items()}
    return trainers.parse(trial_document(study, entry.label, [low], study.seed))


def _derive(study: Study, index: int, form: dict[str, Any], measured: LossEstimate) -> None:
    """Writes the spaces and first points of an entry into its document."""
    entry = study.methods[index]
    assert entry.theory is not None
    client = PLAIN if entry.client is None else entry.client.name
    rounds, clients = usual_budget(study, entry).last_round, study.settings_of(entry).clients_per_round
    prior = TheoryPrior(entry.name, client, entry.server.name, measured, rounds, clients)
    space, server = prior.space(entry.space), entry.server.space
    space = {name: _with(parameter, _values(entry, name), entry.space[name]) for name, parameter in space.items()}
    if "server" in entry.theory.parts:
        momenta = _values(entry, "server.momentum")
        server = {
            name: _with(parameter, momenta if name == "momentum" else [], server[name])
            for name, parameter in prior.server_space(server).items()
        }
        form["server"]["space"] = _forms(server)
    form["space"] = _forms(space)
    form["theory"] = {"parts": list(entry.theory.parts), "measured": measured.to_json()}
    trials = study.budget.trials_per_search
    room = min(MOST, max(1, trials // 8), trials - len(entry.start))
    whole = entry.parameters() | space | {f"server.{name}": parameter for name, parameter in server.items()}
    start: list[Any] = list(entry.start)
    for point in prior.points(space, server):
        inside = all(whole[name].contains(value) for name, value in point.items())
        if inside and room > 0 and point not in start and broken_by(point, whole, entry.constraints) is None:
            start.append(point)
            room -= 1
    if start:
        form["start"] = start


def _values(entry: MethodEntry, name: str) -> list[Any]:
    """The values of a hyperparameter in the entry's own starting points and prior."""
    return [point[name] for point in (*entry.start, *entry.prior) if name in point]


def _with(parameter: Parameter, values: list[Any], default: Parameter) -> Parameter:
    """The space from theory, widened to the values of the user's own starting points and prior."""
    outside = [value for value in values if not parameter.contains(value)]
    if not outside:
        return parameter
    numbers = [value for value in outside if is_real(value)]
    if isinstance(parameter, Float) and len(numbers) == len(outside) and all(value > 0 for value in numbers):
        low, high = min(parameter.low, *numbers), max(parameter.high, *numbers)
        return Float(low, high, log=parameter.log, complement=parameter.complement, points=parameter.points)
    return default


def _forms(space: Space) -> dict[str, Any]:
    return {name: parameter.to_json() for name, parameter in space.items()}


def _in_words(parameter: Parameter) -> str:
    if isinstance(parameter, Choice):
        return ", ".join(map(str, parameter.options))
    return f"{parameter.low:g} to {parameter.high:g}"
