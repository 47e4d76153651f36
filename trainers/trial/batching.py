"""How the examples of mini-batches are drawn: the key `batching` of a trial document.

    with_replacement    every example is drawn anew
    shuffled            passes over a client's examples, each in a new order; every round begins a new pass
    epochs              passes as in shuffled that go on from round to round: no example recurs within a pass
    by_class            equally many examples of each class (engine/batches/class_batches.py)

With `epochs`, example j of step s of round r (all from 0) is at position p = (r H + s) B + j of a client's epochs, with
H batches in a round (`round_batches`) and B = batch_size. Of n examples it is the one at place p mod n of epoch
floor(p / n), whose order is a function of (seed, client, epoch). A client that misses a round, or takes a part of
its steps, skips the examples of the missing steps. All members of a pack have the same H. A client with at most B
examples has full batches, and with local_epochs a round consists of whole epochs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainers.contracts import Method
from trainers.errors import SpecError
from trainers.problem import TaskSettings
from trainers.registry import methods
from trainers.trial import sizes
from trainers.trial.parts import Part

CHOICES = ("with_replacement", "shuffled", "epochs", "by_class")


def in_passes(method: Part[Method]) -> bool:
    """Whether clients pass over their data a number of times, instead of taking a number of steps."""
    return any(epochs is not None for epochs in method.values.get("local_epochs", ()))


def round_batches(method: str, values: Mapping[str, Any]) -> int:
    """The batches of a client in a round without local_epochs.

    Args:
        method: name of the method.
        values: its hyperparameters in one trial; those with a default may be missing.
    """
    counter = methods()[method].round_batches
    return int(values.get("local_steps") or 1) if counter is None else counter(values)


def check(values: Mapping[str, Any], method: Part[Method], task: TaskSettings) -> None:
    """Raises a SpecError if a trial draws batches in a way that its task, method or members do not allow.

    Args:
        values: batching and batch_size of the trial.
        method: the method, with the values of all members.
        task: the task.
    """
    if values["batching"] == "epochs":
        _check_epochs(method, task)
    if values["batching"] == "by_class":
        _check_by_class(values["batch_size"], method, task)


def _check_epochs(method: Part[Method], task: TaskSettings) -> None:
    if task.examples is None:
        raise SpecError("batching must be left out for a task without countable examples, got epochs", "batching")
    if in_passes(method):
        return
    counts = {round_batches(method.name, method.member(member)): None for member in range(method.members)}
    if len(counts) > 1:
        shown = " and ".join(map(str, list(counts)[:2]))
        raise SpecError(
            f"members must have equally many batches in a round with batching epochs, got {shown}: train members with "
            "other local_steps apart",
            "members",
        )


def _check_by_class(batch_size: int | None, method: Part[Method], task: TaskSettings) -> None:
    model = getattr(task, "model", None)
    if task.examples is None or not isinstance(model, str) or sizes.kind_of(task) != "classes":
        raise SpecError(
            "batching must be shuffled, epochs or with_replacement for a task without classes, got by_class", "batching"
        )
    if batch_size is None:
        raise SpecError(
            "batch_size must be given with batching by_class, got none: k times the classes of a client for k examples "
            "of each",
            "batch_size",
        )
    if in_passes(method):
        raise SpecError(
            "batching must be shuffled with local_epochs, got by_class: classes of unequal size have no common pass: "
            "give local_steps",
            "batching",
        )
