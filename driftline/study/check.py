"""Checks a study in full before anything runs, with the code that parses trials.

The configurations at the corners of every entry's space (all low, all high, and each end or choice with the rest low)
become trial documents and are parsed; an error is reported under the study's own key. Configurations that would only
diverge are valid.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import trainers
from driftline.errors import InvalidSpec
from driftline.program_command import PYTHON, command_file, obstacle
from driftline.study.all_errors import study_errors
from driftline.study.budget import Budget
from driftline.study.directions import direction, sign
from driftline.study.entries import MethodEntry
from driftline.study.outlook import choice_remark, cost_remark, few_points, sample_remark, share_remark
from driftline.study.program import SERVED, Program
from driftline.study.search_check import (
    check_constraints,
    check_grid,
    check_sampler,
    check_sizes,
    check_spaces,
    check_start,
    corners,
    repeated,
)
from driftline.study.spec import Study
from driftline.study.trial_document import trial_document
from driftline.study.trial_settings import OWN
from driftline.study.validation import Errors, from_spec_error, reading_once
from trainers import (
    ROLES,
    STAND_IN_METHODS,
    SpecError,
    check_models,
    mixed,
    nearest,
    shown,
)
from trainers.registry import optimizers, tasks


def check(study: Study, *, data: bool = True) -> list[str]:
    """Checks everything that can be checked before a study runs; imports the trainers and torch.

    Args:
        study: The study.
        data: False reads no data, and leaves out what follows from them.

    Returns:
        Warnings about what is valid but probably unintended, one line each.

    Raises:
        InvalidSpec: A line for each error, with the key, what must hold, and what was given.
    """
    checked = _checked if data else _checked_without_data
    try:
        return checked(study)
    except InvalidSpec as error:
        if reading_once():
            raise
        raise study_errors(study.to_json(), error, checked) from None


def _checked(study: Study) -> list[str]:
    """Checks a study; each of its parts only up to its first error."""
    if study.program is not None:
        return _checked_program(study, study.program)
    remarks = []
    trials: dict[int, trainers.TrialSpec] = {}  # one for each entry
    errors = Errors()
    check_sizes(study)
    for index, entry in enumerate(study.methods):
        with errors.collected():
            check_spaces(entry, f"methods[{index}]")
            read = _corners_read(study, index)
            remarks += few_points(study, entry)
            trials[index] = read[0]
            path = f"methods[{index}]"
            remarks += [*_rates(study, index), *_step_sizes(read[:2], path), *_weighting(read[0], path)]
            check_constraints(study, index)
            remarks += [*check_start(study, index), *check_grid(study, index)]
            remarks += check_sampler(study, index)
    if not trials:  # no entry could be read: the task and the quality are checked with one that fits every task
        with errors.collected():
            plain = study.model_copy(update={"methods": [MethodEntry.from_json({"name": STAND_IN_METHODS[0]})]})
            trials[-1] = _corners_read(plain, 0)[0]
    if trials:
        first = next(iter(trials.values()))
        with errors.collected():
            _check_packs(study, list(trials.values()))
        with errors.collected():
            _check_quality(study, first)
            _check_cost(study, first)
            _check_scale(study)
        remarks += [*_data(study, trials), *sample_remark(study, first), *choice_remark(study, first)]
    errors.raise_any()
    if study.drop_last and all(trial.pass_end == "joined" for trial in trials.values()):
        remarks.append("drop_last: no entry has local_epochs, without which it changes nothing")
    remarks += [*cost_remark(study), *share_remark(study)]
    return [*remarks, *_confirmation(study.budget)]


def _checked_program(study: Study, program: Program) -> list[str]:
    """Checks a study of a program, as far as that is possible without a trial document."""
    remarks, errors = [], Errors()
    check_sizes(study)
    if program.folder != SERVED:
        errors.add_all(_missing_here(program))
        remarks += ["program.image: ignored, the program runs on this computer"] if program.image else []
    if (program.folder == SERVED or program.files) and _stays_behind(program):
        problem = "must be below one of program.files, beside which it starts, or an absolute path"
        errors.add(InvalidSpec("program.command", f"{problem}, got {shown(program.command[0])}"))
    remarks += _checked_entries(study, errors)
    errors.raise_any()
    return [*remarks, *cost_remark(study), *_confirmation(study.budget)]


def _checked_without_data(study: Study) -> list[str]:
    """Checks a study whose data are at URLs, as far as that is possible without the data."""
    errors = Errors()
    check_sizes(study)
    with errors.collected():
        try:
            trainers.check_task_keys(study.task)
        except SpecError as error:
            raise from_spec_error(error) from error
    for index, entry in enumerate(study.methods):
        with errors.collected():
            check_spaces(entry, f"methods[{index}]")
        if entry.theory is not None and entry.theory.measured is None:
            problem = "must be ranges, or default, for data at a URL: they are read when the study starts"
            errors.add(InvalidSpec(f"methods[{index}].space", f"{problem}, and theory needs them before"))
    errors.raise_any()
    remarks = _checked_entries(study, errors)
    errors.raise_any()
    return [*remarks, *cost_remark(study), *_confirmation(study.budget)]


def _checked_entries(study: Study, errors: Errors) -> list[str]:
    """Checks how entries are searched; returns remarks."""
    remarks = []
    for index in range(len(study.methods)):
        with errors.collected():
            check_constraints(study, index)
            remarks += [*repeated(study, index), *check_grid(study, index)]
            remarks += check_sampler(study, index)
    with errors.collected():
        _check_scale(study)
    return remarks


def _stays_behind(program: Program) -> bool:
    """Whether the command begins with a file in the program's folder that is not among its `files`."""
    word = program.command[0]
    in_folder = Path(program.folder, word)
    beside = program.folder != SERVED and in_folder.is_file() and os.access(in_folder, os.X_OK)
    if word == PYTHON or os.path.isabs(word) or not (os.path.dirname(word) or beside):
        return False
    file = Path(os.path.normpath(word))
    return not any(file.is_relative_to(os.path.normpath(name)) for name in program.files)


def _missing_here(program: Program) -> Iterator[InvalidSpec]:
    """What the program needs and this computer lacks."""
    for name in program.files:
        if not Path(program.folder, name).exists():
            yield InvalidSpec("program.files", f"must exist in {program.folder}, got {shown(name)}")
    word, search_path = program.command[0], program.env.get("PATH", os.environ.get("PATH", os.defpath))
    if problem := obstacle(command_file(word, program.folder, search_path)):
        came = f"got {shown(word)}, {problem}"
        yield InvalidSpec("program.command", f"must begin with a program that can be started, {came}")
    for name in program.secrets:
        if name not in os.environ:
            yield InvalidSpec("program.secrets", f"must be variables of this environment, got {shown(name)}")


def _corners_read(study: Study, index: int) -> list[trainers.TrialSpec]:
    """The trials of an entry with all hyperparameters low and all high, after reading those at all corners."""
    label = study.methods[index].label
    configurations = list(corners(study.methods[index].parameters()))
    read = []
    for hyperparameters in configurations[:2] if _readable(study, label, configurations[2:]) else configurations:
        try:
            read.append(trainers.parse(trial_document(study, label, [hyperparameters], study.seed)))
        except SpecError as error:
            raise from_spec_error(error, _entry_path(study, error.path, index)) from error
    return read


def _data(study: Study, trials: Mapping[int, trainers.TrialSpec]) -> list[str]:
    """Remarks on the data and what each entry draws from it; on an entry's own batch_size under the entry's key."""
    remarks: dict[str, None] = {}
    for index, trial in trials.items():
        values = vars(trial)
        if index >= 0 and "batch_size" in study.methods[index].sizes:
            sizes = study.sizes_of(study.methods[index], "batch_size")
            values = values | {"batch_size": max((size for size in sizes if size is not None), default=None)}
        for text in trainers.data_remarks(trial.task, values):
            key = _entry_path(study, "batch_size", index) if index >= 0 else "batch_size"
            remarks[key + text.removeprefix("batch_size") if text.startswith("batch_size ") else text] = None
    return list(remarks)


def _entry_path(study: Study, path: str, index: int) -> str:
    """The study's key for a place in a trial document of an entry: under the entry if the setting is its own."""
    if path in study.methods[index].sizes:
        return f"methods[{index}].space.{path}"
    key = path.partition(".")[0]
    of_entry = key in (*OWN, "rounds") and key != "weighting" and getattr(study.methods[index], key) is not None
    return f"methods[{index}].{path}" if of_entry else _study_path(path, index)


def _confirmation(budget: Budget) -> list[str]:
    """A remark if another number of configurations is confirmed than the budget says."""
    if not budget.seeds or budget.confirmed == budget.confirm:
        return []
    remark = f"budget.confirm: {budget.confirm} configurations are to be confirmed, but "
    if budget.confirm > budget.trials_per_method:
        return [f"{remark}only {budget.trials_per_method} are searched: all of them will be confirmed"]
    per_search = f"{budget.confirmed_per_search} of each"
    return [
        f"{remark}there are {budget.searches} equal searches: {per_search} will be confirmed, {budget.confirmed} in all"
    ]


def _readable(study: Study, label: str, configurations: Sequence[Mapping[str, Any]]) -> bool:
    """Whether these parse as one pack, which is much faster than one by one; the caller then looks for the error."""
    try:
        if configurations:
            trainers.parse(trial_document(study, label, configurations, study.seed))
    except (SpecError, ValueError):  # ValueError: they cannot share a pack
        return False
    return True


def _rates(study: Study, index: int) -> list[str]:
    """A remark if all configurations of an entry have a server_lr that is much larger than client_lr."""
    entry = study.methods[index]
    space = entry.parameters()
    server, client = (space[name].ends() if name in space else () for name in ("server_lr", "client_lr"))
    steps = space["local_steps"].ends() if "local_steps" in space else ()
    if not server or not client or set(steps) == {1} or not optimizers()[entry.server.name].LINEAR:
        return []
    if not all(isinstance(rate, int | float) for rate in (*server, *client)) or not max(client):
        return []
    path = f"methods[{index}].space."
    return [f"{path}{text}, in every configuration" for text in trainers.rate_remark(min(server) / max(client))]


def _step_sizes(ends: Sequence[trainers.TrialSpec], path: str) -> list[str]:
    """Warnings about the step sizes of a mixed method: at the low ends of its space, otherwise at the high ends.

    Args:
        ends: The trial with all hyperparameters low, and the one with all high if it differs.
        path: Path of the entry.
    """
    descriptions = ["even at the low ends of its space", "towards the high ends of its space"]
    if len(ends) == 1:
        descriptions = ["with its one configuration"]
    for trial, description in zip(ends, descriptions, strict=True):
        lines = mixed(trial.method, trial.optimizers, trial.schedule, trial.task, trial.clients_per_round)
        if lines:
            return [f"{path}, {description}: {line}" for line in lines]
    return []


def _weighting(trial: trainers.TrialSpec, path: str) -> list[str]:
    """A remark if an entry trains with another weighting than the study's."""
    used, whole = trial.training_weighting, trial.weighting
    remark = f"{path}.weighting: this entry trains with the weighting {used}, and all metrics have the study's, {whole}"
    return [] if used == whole else [f"{remark}: leave it out to compare like with like"]


def _check_packs(study: Study, trials: Sequence[trainers.TrialSpec]) -> None:
    """Refuses a number of trials in a pack that is too large for any machine."""
    packs = study.resources.packs
    if not isinstance(packs, int):
        return
    task = trials[0].task
    cohorts = [trial.clients_per_round for trial in trials]
    cohorts += [
        size
        for entry in study.methods
        if "clients_per_round" in entry.sizes
        for size in study.sizes_of(entry, "clients_per_round")
    ]
    clients = max(size or task.clients for size in cohorts)
    try:
        check_models(task, clients, min(packs, study.budget.trials_per_method), "resources.packs")
    except SpecError as error:
        raise from_spec_error(error) from error


def _study_path(path: str, index: int) -> str:
    """The study's key for a place in a trial document.

    Examples:
        >>> [_study_path(path, 0) for path in ("members.0.server.momentum", "method.name", "task.clients", "rounds")]
        ['methods[0].server.space.momentum', 'methods[0].name', 'task.clients', 'budget.rounds']
    """
    entry = f"methods[{index}]"
    path = re.sub(r"^members\.\d+\.?", "members.", path)
    kinds = (*ROLES, "schedule")
    for prefix, key in (
        *((f"members.{kind}.", f"{entry}.{kind}") for kind in kinds),
        ("members.", entry),
        ("method.", entry),
        *((f"{kind}.", f"{entry}.{kind}") for kind in kinds),
    ):
        if path.startswith(prefix):
            rest = path.removeprefix(prefix)
            return f"{key}.name" if rest == "name" else f"{key}.space.{rest}".rstrip(".")
    if path in ("method", *kinds):
        return entry if path == "method" else f"{entry}.{path}"
    if path == "training_weighting":
        return f"{entry}.weighting"
    return "budget.rounds" if path == "rounds" else path or entry


def _check_quality(study: Study, trial: trainers.TrialSpec) -> None:
    """Checks that the task reports the metric; the trials of all methods report the same ones."""
    reported = (*trial.metrics, "train_loss")
    if study.objective.quality not in reported:
        quality = study.objective.quality
        near = nearest(quality, reported)
        raise InvalidSpec(
            "objective.quality",
            f"must be a metric of task {study.task['name']} ({', '.join(reported)}), got {shown(quality)}"
            + (f": did you mean {near}?" if near else ""),
        )


def _check_cost(study: Study, trial: trainers.TrialSpec) -> None:
    """Refuses a cost that the task does not count."""
    cost = study.objective.cost
    if trainers.COSTS[cost].of_tokens and not trial.tokens:
        others = ", ".join(name for name in trainers.REPORTED if not trainers.COSTS[name].of_tokens)
        name = study.task["name"]
        raise InvalidSpec("objective.cost", f"must be a cost of task {name} ({others}), got {cost}")


def _check_scale(study: Study) -> None:
    """Refuses a fixed scale whose ends are exchanged, or do not fit a logarithmic axis.

    Metrics of plug-in tasks that fall may become negative; their axis is then linear.
    """
    scale, quality = study.objective.scale, study.objective.quality
    if scale is None:
        return
    if sign(quality) * (scale.best - scale.start) <= 0:
        side = "above" if direction(quality) == "rises" else "below"
        came = f"got start={shown(scale.start)} and best={shown(scale.best)}"
        problem = f"must be {side} start, because {quality} {direction(quality)} as models get better, {came}"
        raise InvalidSpec("objective.scale.best", problem)
    if study.program is not None:
        return
    if direction(quality) == "falls" and scale.best <= 0 and tasks().built_in(study.task["name"]):
        problem = f"must be above 0, because {quality} is compared on a logarithm, got best={shown(scale.best)}"
        raise InvalidSpec("objective.scale.best", problem)
