"""Derives all hyperparameters of MaSS from the given ones (in three ways), or from constants of the data.

The constants are given as numbers, or estimated from the data of all clients (theory/mass_constants.py):

    linear regression    exactly, per example and for the batch size
    quadratics           exactly; their noise does not depend on the batch, so batches count as full
    softmax regression   by bounds, with weight_decay above 0, which is its only source of strong convexity

With weight_decay the losses are f_i(x) + weight_decay |x|^2 / 2, in all three.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.errors import SpecError
from trainers.hyperparameters import check, tunable
from trainers.problem import Examples, Problem, Quadratics
from trainers.theory.mass_constants import (
    BatchConstants,
    MassHyperparameters,
    SampleConstants,
    batch_constants,
    best_hyperparameters,
    common_constants,
    from_three_sequences,
    from_two_sequences,
    of_common_convexity,
    sample_constants,
)
from trainers.values import shown

ESTIMATE, ESTIMATE_BY_CLIENT = "estimate", "estimate_by_client"
CONDITION = "batch_statistical_condition_number"
TWO, THREE = ("momentum", "compensation_lr"), ("mixing", "auxiliary_lr", CONDITION)
FORMS = (*TWO, *THREE)
BY_CLIENT = ("rate_share_by_client", "mixing_by_client", "condition_by_client")
MOMENTUM = 0.9
_AGREE = 1e-9
_WAYS = (
    "give client_lr with momentum and compensation_lr, or with mixing and auxiliary_lr, or with mixing and "
    "batch_statistical_condition_number"
)


@dataclass(frozen=True)
class Constants:
    """The numbers in `constants`."""

    smoothness: float = tunable(low=0, low_open=True, doc="L, of every client")
    strong_convexity: float = tunable(low=0, low_open=True, doc="mu, of every client")
    sample_smoothness: float | None = tunable(None, low=0, low_open=True, doc="L_1; only mini-batches need it")
    statistical_condition_number: float | None = tunable(None, low=1, doc="kappa~; only mini-batches need it")


def complete(values: dict[str, Any]) -> dict[str, Any]:
    """One trial's values with momentum, compensation_lr, mixing, auxiliary_lr and the condition number filled in.

    Args:
        values: values of the method, each checked by itself; client_lr is None if constants are given.

    Raises:
        SpecError: the values mix two ways, or contradict each other.
    """
    names = [name for name in (*FORMS, *BY_CLIENT) if values[name] is not None]
    if values["constants"] is not None:
        if names:
            path = f"method.{names[0]}"
            raise SpecError(f"{path} must be left out if constants are given, got both: leave one out", path)
        return {**values, "constants": checked(values["constants"])}
    if set(names) & set(BY_CLIENT):
        if names == list(BY_CLIENT):
            return values
        wrong = next((name for name in FORMS if name in names), None)
        path = f"method.{wrong or next(name for name in BY_CLIENT if name not in names)}"
        rule = "left out" if wrong else "given"
        raise SpecError(f"{path} must be {rule} beside {names[-1]}: give {', '.join(BY_CLIENT)} and client_lr", path)
    if len(names) == len(FORMS):
        return _agreeing(values)
    if set(names) & set(TWO) and set(names) & set(THREE):
        path = f"method.{names[-1]}"
        raise SpecError(f"{path} must not be given beside {names[0]}: {_WAYS}", path)
    if "auxiliary_lr" in names and CONDITION in names:
        path = f"method.{CONDITION}"
        raise SpecError(f"{path} must not be given beside auxiliary_lr, from which it follows: leave one out", path)
    if set(names) & set(THREE) and "mixing" not in names:
        raise SpecError(f"method.mixing must be given beside {names[0]}", "method.mixing")
    return {**values, **_filled(values)}


def resolve(
    values: Mapping[str, tuple[Any, ...]], problem: Callable[[], Problem], batch_size: int | None
) -> dict[str, tuple[Any, ...]]:
    """The values of all members, including those that follow from `constants`.

    Args:
        values: hyperparameter -> one value for each member, from `complete`.
        problem: returns the problem with the clients' data.
        batch_size: examples per local step; None is the full local data.

    Raises:
        SpecError: the constants cannot be estimated, the strong convexity is not positive, or a list by client does not
            have one number for each client.
    """
    constants = values["constants"][0]
    if constants is None:
        _check_lengths(values, problem)
        return dict(values)
    by_decay: dict[float, dict[str, Any]] = {}
    for decay in dict.fromkeys(values["weight_decay"]):
        if constants == ESTIMATE_BY_CLIENT:
            by_decay[decay] = _of_clients(estimate_by_client(problem(), batch_size, decay))
            continue
        if constants == ESTIMATE:
            common = estimate(problem(), batch_size, decay)
        else:
            common = _of_numbers(constants, batch_size, decay)
        by_decay[decay] = _all(best_hyperparameters(common))
    rows = [by_decay[decay] for decay in values["weight_decay"]]
    names = ("client_lr", "constants", *FORMS, *BY_CLIENT)
    return {**values, **{name: tuple(row.get(name) for row in rows) for name in names}}


def checked(constants: Any) -> Any:
    """The word "estimate" or "estimate_by_client", or an object of all four numbers, with None if one is not given.

    Args:
        constants: the value from a document.

    Raises:
        SpecError: the value is none of these, or a number is outside its range.
    """
    if constants in (ESTIMATE, ESTIMATE_BY_CLIENT):
        return constants
    if not isinstance(constants, Mapping):
        raise SpecError(
            f'method.constants must be "{ESTIMATE}", "{ESTIMATE_BY_CLIENT}" or an object like '
            f'{{"smoothness": 1, "strong_convexity": 0.1}}, got {shown(constants)}',
            "method.constants",
        )
    numbers = check(Constants, constants, "method.constants")
    if numbers["smoothness"] < numbers["strong_convexity"]:
        raise SpecError(
            f"method.constants.smoothness must be at least strong_convexity={shown(numbers['strong_convexity'])}, "
            f"got smoothness={shown(numbers['smoothness'])}",
            "method.constants.smoothness",
        )
    return numbers


def estimate(problem: Problem, batch_size: int | None, weight_decay: float = 0.0) -> BatchConstants:
    """Constants that are valid for all clients of a problem at a batch size; arguments as in `estimate_by_client`.

    Examples:
        >>> from trainers.data.quadratics import two_clients
        >>> estimate(Problem("quadratic", two_clients()), 4).batch_condition_number
        2.0
    """
    return common_constants(estimate_by_client(problem, batch_size, weight_decay))


def estimate_by_client(problem: Problem, batch_size: int | None, weight_decay: float = 0.0) -> list[BatchConstants]:
    """The constants of every client of a problem, at a batch size.

    Args:
        problem: a problem with model linear, softmax or quadratic.
        batch_size: examples per local step; None is the full local data.
        weight_decay: L2 coefficient of every loss.

    Raises:
        SpecError: the problem has another model, or softmax regression has no weight_decay.
    """
    size = math.inf if batch_size is None else batch_size
    if isinstance(problem.train, Quadratics):
        eigenvalues = np.linalg.eigvalsh(problem.train.hessians) + weight_decay
        return [batch_constants(_full(float(values.max()), float(values.min())), math.inf) for values in eigenvalues]
    of_client = {"linear": _linear, "softmax": _softmax}.get(problem.model)
    if of_client is None:
        raise SpecError(
            f'method.constants must be left out, or numbers, for the model {problem.model}: "estimate" knows linear '
            f"and softmax regression and quadratics; {_WAYS}",
            "method.constants",
        )
    bias = problem.model_settings.get("bias", True)
    train = problem.train
    assert isinstance(train, Examples)
    return [batch_constants(of_client(features, weight_decay), size) for features in _features(train, bias)]


def _of_clients(devices: Sequence[BatchConstants]) -> dict[str, Any]:
    """client_lr, the largest of all clients, and the lists by client; both forms follow from these."""
    forms = [_all(best_hyperparameters(device)) for device in of_common_convexity(devices)]
    largest = max(form["client_lr"] for form in forms)
    columns = [[form["client_lr"] / largest, form["mixing"], form[CONDITION]] for form in forms]
    return {"client_lr": largest, **dict(zip(BY_CLIENT, zip(*columns, strict=True), strict=True))}


def _check_lengths(values: Mapping[str, tuple[Any, ...]], problem: Callable[[], Problem]) -> None:
    """Raises a SpecError unless the lists by client have one number for each client."""
    for name in BY_CLIENT:
        for numbers in values[name]:
            if numbers is not None and len(numbers) != (clients := problem().train.clients):
                path = f"method.{name}"
                raise SpecError(f"{path} must have one number for each of {clients} clients, got {len(numbers)}", path)


def _linear(features: NDArray[np.float64], weight_decay: float) -> SampleConstants:
    return sample_constants(features, weight_decay)


def _softmax(features: NDArray[np.float64], weight_decay: float) -> SampleConstants:
    """Bounds: the Hessian of an example is between weight_decay and weight_decay plus half its squared features.

    L_1 is at most the largest of these upper bounds, and kappa~ at most L_1 / mu.
    """
    if not weight_decay > 0:
        raise SpecError(
            'method.weight_decay must be above 0 for constants="estimate" with softmax regression: it is its only '
            f"strong convexity, which must be positive, got weight_decay={shown(weight_decay)}",
            "method.weight_decay",
        )
    largest = float(np.linalg.eigvalsh(features.T @ features / len(features))[-1])
    sample = float(np.square(features).sum(1).max()) / 2 + weight_decay
    return SampleConstants(largest / 2 + weight_decay, weight_decay, sample, sample / weight_decay)


def _features(train: Examples, bias: bool) -> list[NDArray[np.float64]]:
    """The features of every client, (examples, d), with a 1 for the bias."""
    flat = np.asarray(train.inputs, np.float64).reshape(len(train.inputs), -1)
    if bias:
        flat = np.hstack([flat, np.ones((len(flat), 1))])
    return [flat[first : first + size] for first, size in zip(train.offsets, train.sizes, strict=True)]


def _of_numbers(numbers: Mapping[str, Any], batch_size: int | None, weight_decay: float) -> BatchConstants:
    """Constants at a batch size from the given numbers, which are those of the losses without weight_decay."""
    high, low = numbers["smoothness"] + weight_decay, numbers["strong_convexity"] + weight_decay
    if batch_size is None:
        return batch_constants(_full(high, low), math.inf)
    for name in ("sample_smoothness", "statistical_condition_number"):
        if numbers[name] is None:
            path = f"method.constants.{name}"
            raise SpecError(f"{path} must be given with batch_size={batch_size}, which makes mini-batches", path)
    sample = SampleConstants(
        high, low, numbers["sample_smoothness"] + weight_decay, numbers["statistical_condition_number"]
    )
    return batch_constants(sample, batch_size)


def _full(smoothness: float, strong_convexity: float) -> SampleConstants:
    """Constants without mini-batches."""
    return SampleConstants(smoothness, strong_convexity, smoothness, 1.0)


def _filled(values: Mapping[str, Any]) -> dict[str, float]:
    """Both forms from one of them; the condition number defaults to 1 and compensation_lr to 0."""
    client_lr = values["client_lr"]
    if values["mixing"] is None:
        momentum = MOMENTUM if values["momentum"] is None else values["momentum"]
        compensation = values["compensation_lr"] or 0.0
        most = client_lr * (1 + momentum) / 2  # client_lr / (1 + mixing)
        if not compensation < most:
            raise SpecError(
                f"method.compensation_lr must be below client_lr / (1 + mixing) = {most:g}, got compensation_lr="
                f"{shown(compensation)}",
                "method.compensation_lr",
            )
        forms = _all(from_two_sequences(client_lr, momentum, compensation))
        return {**forms, "momentum": momentum, "compensation_lr": compensation}
    mixing, condition, auxiliary = values["mixing"], values[CONDITION], values["auxiliary_lr"]
    if auxiliary is None:
        condition = 1.0 if condition is None else condition
        forms = _all(from_three_sequences(client_lr, mixing, client_lr / (mixing * condition)))
        return {**forms, CONDITION: condition}
    if auxiliary * mixing > client_lr * (1 + _AGREE):
        raise SpecError(
            f"method.auxiliary_lr must be at most client_lr / mixing = {client_lr / mixing:g}, which is Nesterov, got "
            f"auxiliary_lr={shown(auxiliary)}",
            "method.auxiliary_lr",
        )
    return _all(from_three_sequences(client_lr, mixing, auxiliary))


def _all(form: MassHyperparameters) -> dict[str, float]:
    """All numbers of both forms, clipped to their ranges against rounding."""
    return {
        "client_lr": form.client_lr,
        "momentum": max(form.momentum, 0.0),
        "compensation_lr": max(form.compensation_lr, 0.0),
        "mixing": min(form.mixing, 1.0),
        "auxiliary_lr": form.auxiliary_lr,
        CONDITION: max(form.client_lr / (form.mixing * form.auxiliary_lr), 1.0),
    }


def _agreeing(values: dict[str, Any]) -> dict[str, Any]:
    """Checks that values given in both forms describe the same steps."""
    client_lr, mixing, condition = values["client_lr"], values["mixing"], values[CONDITION]
    expected = _all(from_three_sequences(client_lr, mixing, client_lr / (mixing * condition)))
    for name in FORMS:
        if not math.isclose(values[name], expected[name], rel_tol=_AGREE, abs_tol=_AGREE * client_lr):
            path = f"method.{name}"
            raise SpecError(
                f"{path} must be {expected[name]:g} beside mixing={shown(mixing)} and {CONDITION}={shown(condition)}, "
                f"got {name}={shown(values[name])}: {_WAYS}",
                path,
            )
    return values
