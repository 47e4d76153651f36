"""The sizes of a trial's arrays, computed from its document before anything is allocated.

A trial whose arrays fit no machine is rejected when its document is read. A trial that fits some machine but not the
current one ends when memory runs out. The models of all clients of a round and the batches of a round are counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np

from trainers.contracts import Method
from trainers.errors import SpecError, TooLargeError
from trainers.problem import Examples, Problem
from trainers.registry import models
from trainers.target_kinds import Kind
from trainers.trial.parts import Part

MOST_NUMBERS = 2**35
"""Largest number of elements in the arrays of one kind: 128 GiB in single precision."""
MOST_STEPS = 100_000_000
"""Largest number of local steps in a round."""

_built: WeakKeyDictionary[Any, tuple[int, int] | None] = WeakKeyDictionary()


def check(values: Mapping[str, Any], method: Part[Method], task: Any) -> None:
    """Raises a SpecError for a trial whose arrays are too large for any machine.

    Args:
        values: the keys of the document besides its objects.
        method: the method, with the values of all members.
        task: settings of the task.
    """
    clients = values["clients_per_round"] or task.clients
    check_models(task, clients, method.members, "task.model")
    steps, key = _steps(method, task, values["batch_size"])
    if steps > MOST_STEPS:
        path = f"method.{key}"
        raise SpecError(f"{path} must mean at most {MOST_STEPS} local steps a round, got {steps}", path)
    _check_batches(values["batch_size"], values["batching"] != "with_replacement", method, task, clients, steps)


def check_models(task: Any, clients: int, members: int, path: str) -> None:
    """Raises a TooLargeError if the models of all clients in a round are too large for any machine.

    Args:
        task: settings of the task.
        clients: clients per round.
        members: trials in a pack.
        path: dotted path for the error.
    """
    count = parameters(task)
    if count is not None and count * clients * members > MOST_NUMBERS:
        raise TooLargeError(
            f"{path} must be smaller: parameters x clients of a round x trials of a pack must be at most "
            f"{MOST_NUMBERS}, got {count} x {clients} x {members}",
            path,
        )


def round_bytes(task: Any, clients: int, dtype: str) -> int | None:
    """Bytes of the models of all clients of a round, once; training holds about three times that.

    Args:
        task: settings of the task.
        clients: clients per round.
        dtype: type of the trial.

    Returns:
        None if only the data can tell.
    """
    count = parameters(task)
    return None if count is None else count * clients * (8 if dtype == "float64" else 4)


def parameters(task: Any) -> int | None:
    """The number of parameters of a task's model; None if only its data can tell."""
    counts = _model(task)
    return None if counts is None else counts[0]


def tensors(task: Any) -> int | None:
    """The number of tensors of a task's model; None if only its data can tell."""
    counts = _model(task)
    return None if counts is None else counts[1]


def _model(task: Any) -> tuple[int, int] | None:
    """(parameters, tensors) of a task's model, or None.

    A model for examples is built on torch's meta device, where tensors have shapes but no memory.

    Args:
        task: settings of the task.

    Raises:
        SpecError: the model does not fit the task's examples.
    """
    if task.dimension is not None:
        return int(task.dimension), 1
    if getattr(task, "shape", None) is None:
        return None
    if task not in _built:
        _built[task] = _built_without_memory(task)
    return _built[task]


def kind_of(task: Any) -> str:
    """The kind of a task's targets, or "none": the kind that its model learns, or the task's if that learns several."""
    learns = models()[task.model].TARGETS
    return getattr(task, "kind", "classes") if learns == "any" or isinstance(learns, tuple) else learns


def _built_without_memory(task: Any) -> tuple[int, int] | None:
    import torch  # imported here: documents of other tasks are read without torch

    kind = kind_of(task)
    shape = {"numbers": (1, task.outputs), "tags": (1, task.outputs), "tokens": (1, *task.shape)}.get(kind, (1,))
    targets = np.zeros(shape, np.float64 if kind == "numbers" else np.int64)
    inputs = np.zeros((1, *task.shape), np.int64 if getattr(task, "whole", False) else np.float32)
    example_kind = cast(Kind, kind) if kind in ("tags", "tokens", "pairs") else None
    example = Examples(inputs, targets, np.zeros(1, np.int64), np.ones(1, np.int64), example_kind)
    settings = {**({} if kind in ("numbers", "tags") else {"classes": task.outputs}), **task.model_settings}
    try:
        with torch.device("meta"):
            problem = Problem(task.model, example, model_settings=settings)
            model = models()[task.model].build(problem, torch.float32, torch.device("meta"))
        return int(model.layout.count), len(model.layout.entries)
    except SpecError:
        raise
    except Exception:  # a model of another package may need real tensors; errors then show up in training
        return None


def _steps(method: Part[Method], task: Any, batch_size: int | None) -> tuple[int, str]:
    """(largest number of local steps of any member, the key that sets it)."""
    candidates = [(1, "local_steps")]
    candidates += [(count, "local_steps") for count in method.values.get("local_steps", ()) if count is not None]
    weights = method.values.get("gradient_weights", ())
    candidates += [(len(row), "gradient_weights") for row in weights if row is not None]
    for epochs in method.values.get("local_epochs", ()):
        if epochs is not None:
            steps_per_epoch = 1 if batch_size is None else -(-int(task.examples.max()) // batch_size)
            candidates.append((epochs * steps_per_epoch, "local_epochs"))
    return max(candidates, key=lambda item: item[0])


def _check_batches(
    batch_size: int | None, shuffles: bool, method: Part[Method], task: Any, clients: int, steps: int
) -> None:
    """Checks the rows of all batches of a round, the data of one step, and the noise of a round."""
    if task.examples is None:
        noisy = bool(task.document.get("gradient_noise"))
        if noisy and clients * steps * task.dimension > MOST_NUMBERS:
            raise SpecError(
                "method.local_steps must be smaller with gradient_noise: clients of a round x local steps x dimension "
                f"must be at most {MOST_NUMBERS}, got {clients} x {steps} x {task.dimension}",
                "method.local_steps",
            )
        return
    central = max((size or 0 for size in method.values.get("central_batch_size", ())), default=0)
    most = task.examples.max() if shuffles else batch_size or 0  # in a shuffled batch no example occurs twice
    central_examples = 0 if task.central is None or not shuffles else len(task.central)
    example_size = math.prod(getattr(task, "shape", None) or (task.dimension or 1,))
    epochs = max((count or 0 for count in method.values.get("local_epochs", ())), default=0)
    if epochs and batch_size:
        rows = -(-np.sort(task.examples)[-clients:] // batch_size) * batch_size
        if epochs * float(rows.sum()) > MOST_NUMBERS:
            raise SpecError(
                f"method.local_epochs must be smaller: passes x examples of a round's clients must be at most "
                f"{MOST_NUMBERS}, got {epochs} x {int(rows.sum())}",
                "method.local_epochs",
            )
        steps = 1
    for size, count, path in (
        (min(batch_size or 0, int(most)), clients, "batch_size"),
        (min(central, central_examples) if shuffles else central, 1, "method.central_batch_size"),
    ):
        if size * count * max(steps, example_size) > MOST_NUMBERS:
            what, number = ("local steps", steps) if steps >= example_size else ("numbers of an example", example_size)
            raise SpecError(
                f"{path} must be smaller: examples x clients of a round x {what} must be at most {MOST_NUMBERS}, "
                f"got {size} x {count} x {number}",
                path,
            )
