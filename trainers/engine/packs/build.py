"""Turns a trial's checked values into what methods compute with: tensors over the trials, and a model on its device."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.data.client_weights import weighted, weights_under
from trainers.engine.evaluation.after_adaptation import Adapted, split
from trainers.engine.evaluation.flops import example_cost
from trainers.engine.memory import release_freed_memory
from trainers.engine.oracles.oracle import Model
from trainers.engine.packs.plan import Plan
from trainers.engine.products import products_in
from trainers.engine.rounds.central_data import CentralData
from trainers.errors import SpecError
from trainers.plugins import Configured
from trainers.registry import models
from trainers.trial.document import TrialSpec, check_dtype
from trainers.trial.parts import Part

_KEPT = 4  # a trial with central data or adapting held-out clients has several models
_models: OrderedDict[tuple[str, ...], tuple[str, Model]] = OrderedDict()


RATES = ("client_lr", "server_lr")
"""Rates that the schedule owns: it receives the given values once, and methods get their rates only from it."""


def hyper_of(part: Part[Configured], order: NDArray[np.int64], shape: tuple[int, ...], like: Tensor) -> Any:
    """The Hyper of an optimizer or schedule for all trials of a pack, with the fields from `settings_of`.

    Args:
        part: the values of all members.
        order: index of the member in each slot.
        shape: trailing ones, (1, 1) for optimizers, () for schedules.
        like: a tensor with the pack's type and device.
    """
    return part.module.Hyper(**settings_of(part, order, shape, like))


def settings_of(
    part: Part[Configured], order: NDArray[np.int64], shape: tuple[int, ...], like: Tensor
) -> dict[str, Any]:
    """The hyperparameters of a method, optimizer or schedule for all trials of a pack, without the rates of a method.

    Structural values are passed unchanged. Traced values become tensors (T, *shape): floats with the type and device
    of `like`, integers on the CPU (they control loops), lists of floats (T, longest) padded with zeros, on the CPU.

    Args:
        part: the values of all members.
        order: index of the member in each slot.
        shape: trailing ones, (1, 1) for methods and optimizers, () for schedules.
        like: a tensor with the pack's type and device.
    """
    values = {}
    for item in part.described:
        if part.kind == "method" and item.name in RATES:
            continue
        column = [part.values[item.name][member] for member in order.tolist()]
        missing = sum(value is None for value in column)
        if not item.traced or missing == len(column):
            values[item.name] = column[0]
            continue
        if missing and item.none_is is not None:
            column = [item.none_is if value is None else value for value in column]
        elif missing:
            path = f"{part.kind}.{item.name}"
            raise SpecError(f"{path} must be given for all members or for none, got {missing} without it", path)
        values[item.name] = _column(item.kind, column, shape, like)
    return values


def build_model(spec: TrialSpec, device: torch.device) -> tuple[str, Model]:
    """(name, model) of a trial's task on a device; the last few models are kept for the next packs of this process.

    Args:
        spec: the trial.
        device: device of data and parameters.
    """
    return _built(spec, device, "clients")


def central_data(
    spec: TrialSpec, seed: int, device: torch.device, oracle: str, clients_per_round: int
) -> CentralData | None:
    """The server's own data, or None unless the method sets CENTRAL = True.

    A step of the server uses clients_per_round batch_size examples, unless the method sets another number.

    Args:
        spec: the trial.
        seed: seed of the server's batches.
        device: device of data and parameters.
        oracle: name of the clients' oracle.
        clients_per_round: size of a cohort.
    """
    if not spec.method.module.CENTRAL:
        return None
    _, model = _built(spec, device, "central")
    size = None if spec.batch_size is None else clients_per_round * spec.batch_size
    cost = example_cost(model, _built(spec, device, "clients")[1])
    return CentralData(model, oracle, seed, spec.batching, size, cost)


def adapted_clients(spec: TrialSpec, device: torch.device, oracle: str) -> Adapted | None:
    """The held-out clients of a trial with evaluation after adaptation; None for other trials.

    Args:
        spec: the trial.
        device: device of data and parameters.
        oracle: name of the clients' oracle.
    """
    if spec.adaptation is None:
        return None
    support, query = (_built(spec, device, part)[1] for part in ("support", "query"))
    return Adapted(support, query, oracle, spec.adaptation)


def _built(spec: TrialSpec, device: torch.device, part: str) -> tuple[str, Model]:
    """The model with the data of "clients", of the server ("central"), or of held-out clients ("support", "query")."""
    adapts = None if part in ("clients", "central") else spec.adaptation
    share = None if adapts is None else (adapts.support, adapts.shots)
    key = (
        json.dumps(spec.canonical["task"], sort_keys=True),
        spec.gradient_dtype,
        str(device),
        spec.weighting,
        part,
        str(share),
    )
    if key not in _models:
        _models[key] = _made(spec, device, part, share)
        release_freed_memory()  # reading and splitting the data took a multiple of what the model holds
        while len(_models) > _KEPT:
            _models.popitem(last=False)
    _models.move_to_end(key)
    return _models[key]


def _made(
    spec: TrialSpec, device: torch.device, part: str, share: tuple[float, int | None] | None
) -> tuple[str, Model]:
    """Builds the model for `_built`; `share` is the share of support examples of held-out clients, and their shots.

    Raises:
        SpecError: the model does not take the trial's dtype.
    """
    problem = weighted(spec.task_module.build(spec.task, spec.held_dtype), spec.weighting)
    if part == "central":
        assert problem.central is not None
        problem = replace(problem, train=problem.central, central=None, test=None, client_weights=None, optimum=None)
    elif share is not None:
        problem = split(problem, *share)[part == "query"]
    builder = models().find(problem.model, "task.model")
    check_dtype(spec.dtype, problem.model)
    query = part == "query"  # held-out clients are measured as in any evaluation
    dtype = spec.held_dtype if query else spec.gradient_dtype
    with products_in("float32", device):  # oracles are compared when a model is built
        return problem.model, builder.build(problem, getattr(torch, dtype), device)


def default_device(name: str = "auto") -> torch.device:
    """The device for a name; "auto" is a GPU if torch can really use one, else the CPU.

    Args:
        name: "auto", "cpu", "cuda", "cuda:0" ...
    """
    if name != "auto":
        return torch.device(name)
    if torch.cuda.is_available():
        try:
            torch.zeros(1, device="cuda")
        except RuntimeError:  # a GPU that is listed but does not work
            return torch.device("cpu")
        return torch.device("cuda")
    return torch.device("cpu")


def slots(spec: TrialSpec, plan: Plan, members: NDArray[np.int64]) -> list[tuple[NDArray[np.int64], int]]:
    """The lanes of some members: ((T,) index of the member in each slot, number of slots that are not idle).

    Under a separate plan every member has its own lane. Otherwise there is one lane; if these are all members of the
    pack, it is as wide as the plan, with idle slots at the end that have the last member's settings.

    Args:
        spec: the trials of the pack.
        plan: has at least as many slots as there are members.
        members: index of each member, those with the most work first (`by_work`).
    """
    if plan.separate:
        return [(np.array([member]), 1) for member in sorted(members.tolist())]
    idle = plan.width - spec.members if len(members) == spec.members and len(set(spec.seeds)) == 1 else 0
    return [(np.append(members, np.full(idle, members[-1])), len(members))]


def by_work(spec: TrialSpec) -> NDArray[np.int64]:
    """Indices of the members, those with the most local steps first, so that busy members lie together."""
    steps = spec.method.values.get("local_steps", (0,) * spec.members)
    return np.argsort([-(count or 0) for count in steps], kind="stable")


def given_rates(spec: TrialSpec, order: NDArray[np.int64]) -> list[Tensor]:
    """(T,) float64 values of each of RATES as given; 0 if the method has no such rate or the rate is tied.

    Args:
        spec: the trials.
        order: index of the member in each slot.
    """
    columns = [spec.method.values.get(name, (0.0,) * spec.members) for name in RATES]
    return [
        torch.tensor([column[member] or 0.0 for member in order.tolist()], dtype=torch.float64) for column in columns
    ]


def rates_of(spec: TrialSpec, schedule: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """(client_lr, server_lr) of the next round, (T,) each; with tied rates, both are the schedule's client_lr.

    Args:
        spec: the trials.
        schedule: state of the schedule.
    """
    client_lr, server_lr = spec.schedule.module.rates(schedule)
    return client_lr, client_lr if spec.method.tied else server_lr


def training_weights(spec: TrialSpec, model: Model) -> NDArray[np.float64]:
    """(clients,) weights of the clients in training: those of the metrics, unless the trial sets others.

    Args:
        spec: the trial.
        model: the model with the clients.
    """
    if spec.training_weighting == spec.weighting:
        return model.client_weights
    return weights_under(spec.training_weighting, model.examples, model.clients)


def first_model(spec: TrialSpec, model: Model, seed: int) -> Tensor:
    """The (P,) initial model of trials with this seed.

    Raises:
        SpecError: `init` has the wrong length.
    """
    if spec.init is not None and len(spec.init) != model.layout.count:
        raise SpecError(f"init must have {model.layout.count} numbers, one a parameter, got {len(spec.init)}", "init")
    return model.start(spec.init, seed)


def _column(kind: str, column: list[Any], shape: tuple[int, ...], like: Tensor) -> Tensor:
    if kind == "floats":
        longest = max(len(value) for value in column)
        rows = [[*value, *[0.0] * (longest - len(value))] for value in column]
        return torch.tensor(rows, dtype=torch.float64)
    if kind == "int":
        return torch.tensor(column, dtype=torch.int64).view(-1, *shape)
    if kind == "bool":
        return torch.tensor(column, dtype=torch.bool, device=like.device).view(-1, *shape)
    return torch.tensor(column, dtype=like.dtype, device=like.device).view(-1, *shape)
