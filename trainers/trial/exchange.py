"""Which trials may send less: quantised uploads, and fragments of the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainers.contracts import Method, Optimizer, Schedule
from trainers.errors import SpecError
from trainers.problem import TaskSettings
from trainers.registry import methods
from trainers.trial import sizes
from trainers.trial.parts import Part
from trainers.trial.roles import PLAIN


def check(
    values: Mapping[str, Any],
    method: Part[Method],
    server: Part[Optimizer],
    schedule: Part[Schedule],
    task: TaskSettings,
) -> None:
    """Raises a SpecError if a trial asks for quantised uploads or fragments that it cannot have.

    Args:
        values: the keys of the document besides its objects.
        method: the method.
        server: the server's optimizer.
        schedule: the schedule.
        task: settings of the task.
    """
    if values["upload"] is not None and not method.module.ONE_UPLOAD:
        raise SpecError(
            f"upload must be left out for {method.name}, whose clients may return more than one tensor a round, "
            f"got {values['upload']}: it may be given for {_with('ONE_UPLOAD')}",
            "upload",
        )
    if values["fragments"] is None:
        return
    got = f"got {values['fragments']}"
    if not method.module.FRAGMENTS:
        raise SpecError(
            f"fragments must be left out for {method.name}, {got}: it may be given for {_with('FRAGMENTS')}",
            "fragments",
        )
    if server.name != PLAIN:
        raise SpecError(
            f"fragments must be left out with server {server.name}, whose memory is not one of each parameter, {got}: "
            "give server sgd, which may have momentum",
            "fragments",
        )
    if schedule.module.RATES != "kept" and "rates" not in schedule.structural:
        raise SpecError(
            f"fragments must be left out with schedule {schedule.name}, {got}: changes of several rounds need one "
            "client_lr; give constant, or cosine or linear, whose factors count in each change",
            "fragments",
        )
    clients_per_round = values["clients_per_round"]
    if clients_per_round is not None and clients_per_round != task.clients:
        raise SpecError(
            f"fragments must be left out with clients_per_round {clients_per_round} of {task.clients} clients, {got}: "
            "a client that misses a round would miss its fragment",
            "fragments",
        )
    if values["stragglers"] is not None and not values["stragglers"].kept:
        raise SpecError(
            f"fragments must be left out with stragglers that are dropped, {got}: a client that misses a round would "
            "miss its fragment",
            "fragments",
        )
    if (tensors := sizes.tensors(task)) is not None:
        check_fragments(values["fragments"], tensors)


def check_fragments(count: int, tensors: int) -> None:
    """Raises a SpecError if a model has fewer tensors than fragments."""
    if count > tensors:
        raise SpecError(f"fragments must be at most {tensors}, the tensors of the model, got {count}", "fragments")


def _with(constant: str) -> str:
    return ", ".join(name for name in methods() if methods().constant(name, constant))
