"""Trial documents: reads them, checks everything and fills in defaults.

    {"task": {"name": "quadratic", "problem": "two_clients"},
     "method": {"name": "fedavg", "client_lr": 0.05, "server_lr": 0.1, "local_steps": 10},
     "client": {"name": "sgd"}, "server": {"name": "sgd", "momentum": 0.0, "nesterov": false},
     "schedule": {"name": "constant"},
     "init": [0.0], "clients_per_round": null, "batch_size": null, "rounds": 200, "seed": 0, "dtype": "float64",
     "eval_every": 1, "report": ["params"], "adaptation": {"steps": [1, 5], "client_lr": 0.1}, "evaluation": null,
     "members": [{"client_lr": 0.1, "server.momentum": 0.9, "seed": 1}, ...]}

The optimizers are client, server, central and merge (trainers/optimizers), as far as the method takes them; missing
ones are sgd. Only task, method and rounds are required. Every error is a SpecError with one line that begins with the
dotted path of the wrong value.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal
from weakref import WeakKeyDictionary

from trainers import own_function
from trainers.contracts import Method, Optimizer, Schedule
from trainers.errors import PluginError, SpecError
from trainers.hyperparameters import Hyperparameter, check, check_described, describe, tunable
from trainers.problem import Task, TaskSettings
from trainers.registry import models, reports, tasks
from trainers.spelling import hint
from trainers.target_kinds import REPORTS
from trainers.trial import (
    adaptation,
    batching,
    client_weighting,
    exchange,
    held_out_sample,
    model_reports,
    sizes,
    stragglers,
)
from trainers.trial.adaptation import Adaptation
from trainers.trial.held_out_sample import HeldOutSample
from trainers.trial.members import Parts, canonical_parts, parse_parts, parse_seeds
from trainers.trial.parts import Part
from trainers.trial.roles import ROLES
from trainers.trial.stragglers import Stragglers
from trainers.trial.warnings import warnings
from trainers.values import number, shown

_MODELS_OWN = ("params", *REPORTS)  # reports without a module in trainers/reports


_resolutions: WeakKeyDictionary[TaskSettings, dict[Any, Any]] = WeakKeyDictionary()


@dataclass(frozen=True)
class TrialKeys:
    """The keys of a trial document besides task, method, optimizers, schedule and members."""

    init: Any = tunable(None, kind="any", doc="parameters to start from; null is the model's own start")
    clients_per_round: int | None = tunable(None, low=1, unit="clients", limit="null is all of them")
    batch_size: int | None = tunable(None, low=1, unit="examples", limit="null is the client's full data")
    batching: str | None = tunable(None, choices=batching.CHOICES)
    drop_last: bool | None = tunable(None, doc="of each pass with local_epochs, if the batch is incomplete")
    weighting: str | None = tunable(
        None, choices=client_weighting.CHOICES, doc="of clients, in training and in all metrics"
    )
    training_weighting: str | None = tunable(
        None, choices=client_weighting.CHOICES, doc="in training alone; null is weighting"
    )
    upload: str | None = tunable(
        None, choices=("int8", "int4"), doc="quantises what clients return; null sends numbers as they are"
    )
    stragglers: Any = tunable(None, kind="any")
    fragments: int | None = tunable(
        None, low=1, unit="parts of the model", limit="1 is the whole model", doc="exchanged in turn, one a round"
    )
    rounds: int = tunable(low=1, unit="server updates")
    seed: int = tunable(0, low=0, high=2**63 - 1)
    dtype: str | None = tunable(None, choices=("float32", "float64", "tf32", "bfloat16"))
    eval_every: Any = tunable("auto", kind="any", unit="rounds")
    loss_data: str | None = tunable(None, choices=("full", "batches"))
    report: Any = tunable((), kind="any")
    adaptation: Any = tunable(None, kind="any")
    evaluation: Any = tunable(None, kind="any")


_OBJECTS = ("task", "method", *ROLES, "schedule", "members")
_EVERY = Hyperparameter(name="eval_every", kind="int", default="auto", low=1)


@dataclass(frozen=True)
class TrialSpec:
    """A trial, or a pack of trials of one structure, ready to train.

    Args:
        task: settings of the task, from its module's parse.
        task_name: name of the task's module.
        method: the method with one value per member for each hyperparameter.
        optimizers: role -> optimizer, also with one value per member; only roles that the method takes.
        schedule: the schedule, also with one value per member.
        members: number of trials, at least 1.
        listed: whether the document had members; report lines then have the index of their member.
        init: (parameters,) initial model; None is the model's default.
        clients_per_round: size of a cohort; None is all clients.
        batch_size: examples per local step; None is the client's full data.
        batching: one of `trainers.trial.batching.CHOICES`.
        drop_last: whether the incomplete last batch of a pass is dropped, with local_epochs.
        weighting: "uniform" or "examples", which all metrics and reports follow.
        training_weighting: the weighting with which clients are trained; the same unless the trial sets another.
        upload: how what clients return is quantised (engine/rounds/quantised.py); None sends numbers as they are.
        stragglers: the clients that take a part of their local steps, or are dropped; None is none.
        fragments: parts of the model that rounds exchange in turn (engine/rounds/fragments.py); None is one part.
        rounds: number of server updates.
        seeds: of each member, the seed of cohorts, batches and initial parameters.
        dtype: "float32" or "float64"; or, with everything else in float32, "bfloat16", in which gradients are computed,
            or "tf32", to which a GPU rounds the factors of products in training.
        eval_every: rounds between evaluations, or "auto".
        loss_data: "full" or "batches", the data that train_loss is measured on.
        monitored_data: the data on which the schedule sees the loss or the accuracy; loss_data if the document has one.
        report: names of the additional reports.
        adaptation: how held-out clients adapt before they are measured; None for no such evaluation.
        evaluation: the sample of held-out clients that an evaluation measures; None is all of them.
        canonical: the document with all defaults filled in, JSON-compatible; parsing it gives an equal trial.
        warnings: one line for each setting that is allowed but probably not meant.
    """

    task: TaskSettings
    task_name: str
    method: Part[Method]
    optimizers: Mapping[str, Part[Optimizer]]
    schedule: Part[Schedule]
    members: int
    listed: bool
    init: tuple[float, ...] | None
    clients_per_round: int | None
    batch_size: int | None
    batching: str
    drop_last: bool
    weighting: str
    training_weighting: str
    upload: str | None
    stragglers: Stragglers | None
    fragments: int | None
    rounds: int
    seeds: tuple[int, ...]
    dtype: str
    eval_every: int | str
    loss_data: str
    monitored_data: str
    report: tuple[str, ...]
    adaptation: Adaptation | None
    evaluation: HeldOutSample | None
    canonical: Mapping[str, Any] = field(repr=False)
    warnings: tuple[str, ...] = ()

    @property
    def seed(self) -> int:
        """The seed of the first member, which is that of all unless they have their own."""
        return self.seeds[0]

    @property
    def held_dtype(self) -> str:
        """The type of models and evaluations: float32 for bfloat16, in which small changes of a model would be lost."""
        return "float32" if self.dtype == "bfloat16" else self.gradient_dtype

    @property
    def gradient_dtype(self) -> str:
        """The type of the tensors that gradients are computed in; that of tf32 is float32."""
        return "float32" if self.dtype == "tf32" else self.dtype

    @property
    def pass_end(self) -> Literal["joined", "kept", "dropped"]:
        """What becomes of the examples that are left at the end of a pass (trainers/trial/passes.py)."""
        if not batching.in_passes(self.method):
            return "joined"
        return "dropped" if self.drop_last else "kept"

    @property
    def round_batches(self) -> int | None:
        """Batches of a client in a round, if its passes go on over the rounds; None if each round begins new ones."""
        if self.batching != "epochs" or batching.in_passes(self.method):
            return None
        return batching.round_batches(self.method.name, self.method.member(0))

    @property
    def task_module(self) -> Task:
        """The plug-in of the task."""
        return tasks()[self.task_name]

    @property
    def tokens(self) -> int:
        """Tokens to predict of an example; 0 for a task with other targets."""
        return int(getattr(self.task, "tokens", 0))

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of an evaluation: those of the task, then those that `report` and `adaptation` add."""
        added = [name for report in self.report for name in _reported(report, self.task)]
        evaluated = _metrics(self.task, self.task_module)
        adapted = () if self.adaptation is None else self.adaptation.metrics(evaluated)
        return (*evaluated, *added, *adapted)


def parse(document: Any) -> TrialSpec:
    """The trial that a document describes; checks everything and trains nothing.

    Args:
        document: as read from JSON or YAML.

    Raises:
        SpecError: any error, with one line that begins with the dotted path of the wrong value.
        MissingDataError: the data of the task is not on this machine.
    """
    if not isinstance(document, Mapping):
        raise SpecError(f'the trial must be an object like {{"task": ...}}, got {shown(document)}')
    values = check(TrialKeys, document, "", other_keys=_OBJECTS)
    for key in ("task", "method"):
        if key not in document:
            raise SpecError(f"{key} must be given", key)
    task_name, task = _parse_task(document["task"])
    module = tasks()[task_name]
    listed = document.get("members") is not None
    parts = parse_parts(document)
    parts = replace(parts, method=_resolved(parts.method, task, module, values["batch_size"]))
    method, optimizers, schedule = parts.method, parts.optimizers, parts.schedule
    values["clients_per_round"] = _cohort_size(method, values["clients_per_round"])
    values["init"] = _parse_init(values["init"], task)
    values["eval_every"] = _parse_eval_every(values["eval_every"])
    values["report"] = _parse_report(values["report"])
    values["adaptation"] = adaptation.parse(values["adaptation"], task, method, lambda: module.build(task, "float32"))
    values["evaluation"] = held_out_sample.parse(values["evaluation"], task, values["adaptation"] is not None)
    values["batching"] = values["batching"] or ("shuffled" if batching.in_passes(method) else module.BATCHING)
    values["drop_last"] = bool(values["drop_last"])
    values["fragments"] = None if values["fragments"] == 1 else values["fragments"]
    values["weighting"] = values["weighting"] or client_weighting.default(task, module)
    values["training_weighting"] = values["training_weighting"] or values["weighting"]
    values["dtype"] = values["dtype"] or module.DTYPE
    values["monitored_data"] = values["loss_data"] or schedule.module.LOSS_DATA
    values["loss_data"] = values["loss_data"] or "batches"
    values["stragglers"] = stragglers.parse(values["stragglers"], method, values["clients_per_round"] or task.clients)
    values["seeds"] = parse_seeds(document, values.pop("seed"), trial_setting("seed"))
    _check_together(values, method, optimizers, schedule, task, module)
    batching.check(values, method, task)
    sizes.check(values, method, task)
    canonical = {
        "task": dict(task.document),
        **canonical_parts(parts, values["seeds"], listed),
        **{key: _plain(value) for key, value in values.items() if not _unsaid(key, values)},
    }
    return TrialSpec(
        task=task,
        task_name=task_name,
        method=method,
        optimizers=optimizers,
        schedule=schedule,
        members=method.members,
        listed=listed,
        canonical=canonical,
        warnings=tuple(warnings(method, optimizers, schedule, task, values)),
        **values,
    )


def trial_setting(name: str) -> Hyperparameter:
    """What a trial document may hold under one of its own keys, such as batch_size."""
    return next(item for item in describe(TrialKeys) if item.name == name)


def check_task_keys(document: Any) -> None:
    """Checks the keys of a task, and what each of them alone may hold; reads no data.

    Args:
        document: {"name": ..., ...}.

    Raises:
        SpecError: there is no such task, a key is unknown or missing, or a value is invalid whatever the data are.
    """
    module = _task_module(document)
    check_described(module.SETTINGS, document, "task", other_keys=("name",))


def structure_of(spec: TrialSpec) -> dict[str, Any]:
    """The canonical document of a trial without the values that may differ between the members of a pack.

    Args:
        spec: one trial or several.
    """
    key = {name: value for name, value in spec.canonical.items() if name != "members"}
    for part in Parts(spec.method, spec.optimizers, spec.schedule).by_kind.values():
        key[part.kind] = {"name": part.name, **part.structural}
    return key


def _unsaid(key: str, values: Mapping[str, Any]) -> bool:
    """Whether a canonical document leaves out a key, because its absence means the same value."""
    match key:
        case "evaluation" | "drop_last" | "upload" | "stragglers" | "fragments":
            return not values[key]
        case "training_weighting":
            return bool(values["training_weighting"] == values["weighting"])
        case "loss_data":  # if it is given, the schedule monitors it
            return bool(values["monitored_data"] != values["loss_data"])
    return key in ("monitored_data", "seeds")


def _plain(value: Any) -> Any:
    """A checked value as plain JSON types."""
    if isinstance(value, Adaptation | HeldOutSample | Stragglers):
        return value.to_json()
    return list(value) if isinstance(value, tuple) else value


def _task_module(document: Any) -> Task:
    if not isinstance(document, Mapping):
        raise SpecError(f'task must be an object like {{"name": "digits"}}, got task={shown(document)}', "task")
    if "name" not in document:
        raise SpecError(f"task.name must be given: one of {', '.join(tasks())}", "task.name")
    return tasks().find(document["name"], "task.name")


def _parse_task(document: Any) -> tuple[str, TaskSettings]:
    module = _task_module(document)
    try:
        text = json.dumps(document, sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise SpecError(f"task must be JSON-compatible: {error}", "task") from error
    model = document.get("model")
    code = own_function.stamp(model.get("module")) if isinstance(model, Mapping) else None
    return document["name"], _cached_task(text, (module.stamp(document), code))


@lru_cache(maxsize=16)
def _cached_task(text: str, stamp: Hashable) -> TaskSettings:
    document = json.loads(text)
    settings = tasks()[document["name"]].parse(document, "task")
    if missing := [
        name for name, part in vars(TaskSettings).items() if isinstance(part, property) and name not in dir(settings)
    ]:
        raise PluginError(
            f"task {document['name']}: its settings must have {', '.join(missing)}, as trainers.problem.TaskSettings"
        )
    return settings


def _resolved(method: Part[Method], task: TaskSettings, module: Task, batch_size: int | None) -> Part[Method]:
    """The method, with the values that its `resolve`, if it has one, derives from the task's data."""
    resolve = method.module.resolve
    if resolve is None:
        return method
    key = (method.name, json.dumps(method.values, sort_keys=True), batch_size)
    resolutions = _resolutions.setdefault(task, {})
    if key not in resolutions:
        resolutions[key] = resolve(method.values, lambda: module.build(task, "float64"), batch_size)
    return replace(method, values=resolutions[key])


def _cohort_size(method: Part[Method], clients_per_round: int | None) -> int | None:
    """The size of a cohort. If a method works with one size only, the document need not give it."""
    only = method.module.CLIENTS_PER_ROUND
    if only is None or clients_per_round is None or clients_per_round == only:
        return clients_per_round if only is None else only
    raise SpecError(
        f"clients_per_round must be {only} for {method.name}, or left out, got clients_per_round={clients_per_round}",
        "clients_per_round",
    )


def _parse_init(value: Any, task: TaskSettings) -> tuple[float, ...] | None:
    if value is None:
        return None
    count = sizes.parameters(task)
    numbers = f"{count} numbers" if count else "numbers"
    if not isinstance(value, (list, tuple)) or not value:
        raise SpecError(f"init must be a list of {numbers}, got init={shown(value)}", "init")
    if count is not None and len(value) != count:
        raise SpecError(f"init must have {numbers}, one for each parameter of the task, got {len(value)}", "init")
    return tuple(number(item, f"init.{index}") for index, item in enumerate(value))


def _parse_eval_every(value: Any) -> int | str:
    if value is None or value == "auto":
        return "auto"
    if isinstance(value, str) and not value.strip()[:1].isdigit():
        raise SpecError(f'eval_every must be "auto" or at least 1, got eval_every={shown(value)}', "eval_every")
    return int(_EVERY.check(value, "eval_every"))


def _parse_report(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)):
        raise SpecError(f"report must be a list of names, got report={shown(value)}", "report")
    names = (*_MODELS_OWN, *reports())
    for index, name in enumerate(value):
        if name not in names:
            path = f"report.{index}"
            raise SpecError(f"{path}: no report {shown(name)}: {hint(name, names)}", path)
    return tuple(dict.fromkeys(value))


def _reported(name: str, task: TaskSettings) -> tuple[str, ...]:
    """The metrics that a report adds."""
    if name in _MODELS_OWN:
        return model_reports.added(name, task) if name in REPORTS else ()
    return reports()[name].METRICS


def _check_together(
    values: Mapping[str, Any],
    method: Part[Method],
    optimizers: Mapping[str, Part[Optimizer]],
    schedule: Part[Schedule],
    task: TaskSettings,
    module: Task,
) -> None:
    """Checks rules that involve several of task, method, optimizers, schedule and the other keys."""
    clients_per_round, clients = values["clients_per_round"], task.clients
    if clients_per_round is not None and clients_per_round > clients:
        raise SpecError(
            f"clients_per_round must be at most {clients}, the clients of the task, "
            f"got clients_per_round={clients_per_round}",
            "clients_per_round",
        )
    server = optimizers["server"]
    clients_alone = schedule.structural.get("rates") == "client_lr" and not method.tied
    steady = schedule.module.RATES == "kept" or clients_alone
    if server.module.averaged is not None and not steady:
        raise SpecError(
            f"schedule must leave server_lr as it is with server {server.name}, whose mean of models replaces decay: "
            f"give constant, or one with rates: client_lr, got schedule.name={schedule.name}",
            "schedule.name",
        )
    exchange.check(values, method, server, schedule, task)
    if method.module.CENTRAL and task.central is None:
        raise SpecError(
            f"task.central must be given for {method.name}, which trains on data of the server too: "
            'as {"fraction": 0.1} of the examples, or {"hessian": ..., "center": ...} of a quadratic task',
            "task.central",
        )
    model = getattr(task, "model", None)
    if isinstance(model, str) and model in models():
        check_dtype(values["dtype"], model)
    client_weighting.check(values, task)
    if task.examples is None and batching.in_passes(method):
        raise SpecError(
            "method.local_epochs must be left out for a task without countable examples: give local_steps",
            "method.local_epochs",
        )
    for name in values["report"]:
        if name in REPORTS and (need := model_reports.lacking(name, task, _metrics(task, module))) is not None:
            raise SpecError(f"report must not contain {name}: it needs {need}", "report")
    for index, name in enumerate(values["report"]):
        if name in _MODELS_OWN:
            continue
        report, path = reports()[name], f"report.{index}"
        if (reason := report.refuse(method)) is not None:
            raise SpecError(f"{path} must not be {name} with {reason}", path)
        if missing := [metric for metric in report.NEEDS if metric not in _metrics(task, module)]:
            raise SpecError(f"{path} must not be {name} for a task that does not report {missing[0]}", path)
    if schedule.structural.get("monitor") == "accuracy" and "test_accuracy" not in _metrics(task, module):
        raise SpecError('schedule.monitor must be "loss": the task has no accuracy', "schedule.monitor")


def check_dtype(dtype: str, model: str) -> None:
    """Raises a SpecError if the model with this name does not take the dtype."""
    types = models()[model].DTYPES
    if ("float32" if dtype == "tf32" else dtype) not in types:
        raise SpecError(f"dtype must be {' or '.join(types)} for the model {model}, got dtype={shown(dtype)}", "dtype")


def _metrics(task: TaskSettings, module: Task) -> tuple[str, ...]:
    """The task's metrics: those of its settings if they depend on them, else those of the module."""
    return module.METRICS if task.metrics is None else task.metrics
