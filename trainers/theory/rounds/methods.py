"""Fixed point and round map of a method, by its name and hyperparameters as in a trial document.

To add a method, write a function that returns its `AffineRound`, with the hyperparameters as keyword arguments, and add
it to one of the two tables.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.errors import SpecError
from trainers.hyperparameters import describe
from trainers.problem import Problem, Quadratics
from trainers.registry import methods, optimizers
from trainers.spelling import hint
from trainers.theory.clients import ClientQuadratics, client_quadratics, clients_of
from trainers.theory.rounds import aligned, local, mixed, remembered
from trainers.theory.rounds.affine import AffineRound, RoundMap, overflows, with_server
from trainers.theory.rounds.central import CentralQuadratic, scaled, weighted_central
from trainers.values import integer, number, shown

Array = NDArray[np.float64]

FEDERATED: Mapping[str, Callable[..., AffineRound]] = {
    "fedavg": local.fedavg,
    "reptile": local.fedavg,
    "local_sgd": local.fedavg,
    "lookahead": local.fedavg,
    "fedprox": local.fedprox,
    "minibatch_prox": local.fedprox,
    "fedsgd": local.fedsgd,
    "minibatch_sgd": local.fedsgd,
    "local_update": local.local_update,
    "fomaml": local.fomaml,
    "maml": local.maml,
    "fedga": aligned.fedga,
    "gradalign": aligned.gradalign,
    "scaffold": aligned.scaffold,
    "regularized_gd": aligned.regularized_gd,
    "linear_scaling": aligned.linear_scaling,
    "aligned_linear_scaling": aligned.aligned_linear_scaling,
    "feddyn": remembered.feddyn,
    "mimelite": remembered.mimelite,
    "mime": remembered.mime,
}
MIXED: Mapping[str, Callable[..., AffineRound]] = {
    "parallel_training": mixed.parallel_training,
    "one_way_transfer": mixed.one_way_transfer,
    "two_way_transfer": mixed.two_way_transfer,
    "pooled_training": mixed.pooled_training,
    "all_on_client": mixed.all_on_client,
}
FIXED_POINT_NEEDS_RATE = ("parallel_training", "two_way_transfer")
COUNTS = ("local_steps", "central_steps")
AS_THEY_ARE = ("gradient_weights", "warm_start", "variates", "variate_update", "reuse_mean_gradient")
SHARED = ("name", "server_lr", "delta_lr", "tied", "weight_decay", "merge_by", "federated_weight", "central_weight")
WITHOUT_EFFECT = (
    "displacement_form",
    "displacement_source",
    "gradient_source",
    "unbiased",
    "central_batch_size",
)
ONLY_DEFAULTS: Mapping[str, Any] = {
    "local_epochs": None,
    "clip_norm": None,
}
LINEAR_SERVERS = ("sgd", "momentum", "nesterov")
"""Servers whose steps are linear in the pseudo-gradients."""


def round_map(
    method: Mapping[str, Any],
    problem: ClientQuadratics | Quadratics | Problem,
    server: Mapping[str, Any] | None = None,
    central: CentralQuadratic | None = None,
) -> RoundMap:
    """The affine map of one round with exact gradients and all clients.

    Args:
        method: name and hyperparameters as in a trial document, with server_lr or delta_lr (server_lr = delta_lr *
            client_lr). Includes weight_decay and ignores settings of batches; local_epochs and clip_norm have no closed
            form.
        problem: quadratic clients.
        server: {"name": "sgd", "momentum": 0.9, "nesterov": True}, or named momentum or nesterov; None is plain SGD.
        central: the server's loss, for mixed methods.

    Raises:
        SpecError: the method or a hyperparameter is unknown, one is missing, or the server's step is not linear.

    Examples:
        >>> from trainers.theory.clients import client_quadratics
        >>> two = client_quadratics([[[1.0]], [[3.0]]], [[0.0], [3.0]])
        >>> gd = round_map({"name": "fedavg", "client_lr": 0.1, "server_lr": 0.1, "local_steps": 2}, two)
        >>> round(float(gd.after([1.0], 1)[1, 0]), 12)
        1.415
    """
    affine = affine_round(method, problem, central)
    return with_server(affine, server_rate(method), *server_momentum(server or {}))


def fixed_point(
    method: Mapping[str, Any],
    problem: ClientQuadratics | Quadratics | Problem,
    central: CentralQuadratic | None = None,
) -> Array:
    """The fixed point of a method, (d,): with exact gradients it converges to this point, if it converges.

    It depends neither on the server optimizer nor on server_lr, except for parallel and two-way training.

    Args:
        method: name and hyperparameters as in a trial document.
        problem: quadratic clients.
        central: the server's loss, for mixed methods.

    Raises:
        SpecError: see `round_map`.

    Examples:
        >>> from trainers.theory.families import two_clients
        >>> round(float(fixed_point({"name": "fedavg", "client_lr": 0.25, "local_steps": 2}, two_clients())[0]), 6)
        0.684211
    """
    affine = affine_round(method, problem, central)
    server_lr = server_rate(method) if method["name"] in FIXED_POINT_NEEDS_RATE else 1.0
    return with_server(affine, server_lr).fixed_point


@overflows
def affine_round(
    method: Mapping[str, Any],
    problem: ClientQuadratics | Quadratics | Problem,
    central: CentralQuadratic | None = None,
) -> AffineRound:
    """A method's round without its server optimizer; arguments as in `round_map`."""
    name = method.get("name")
    function = FEDERATED.get(str(name)) or MIXED.get(str(name))
    if function is None:
        names = [*FEDERATED, *MIXED]
        raise SpecError(
            f"method.name must be a method with a closed form, got {shown(name)}; {hint(name, names)}",
            "method.name",
        )
    parameters = inspect.signature(function).parameters
    accepted = [key for key, value in parameters.items() if value.kind is inspect.Parameter.KEYWORD_ONLY]
    settings = {key: _value(key, value) for key, value in method.items() if key in accepted}
    for key, value in method.items():
        if key in ONLY_DEFAULTS and value not in (None, ONLY_DEFAULTS[key]):
            neutral = shown(ONLY_DEFAULTS[key])
            raise SpecError(f"method.{key} must be {neutral} for a closed form, got {shown(value)}", f"method.{key}")
        if key not in accepted and key not in (*SHARED, *WITHOUT_EFFECT, *ONLY_DEFAULTS):
            raise SpecError(f"method.{key} is unknown for {name}; {hint(key, accepted)}", f"method.{key}")
    clients = _decayed(clients_of(problem), number(method.get("weight_decay", 0.0), "method.weight_decay"))
    if name not in MIXED:
        _need(parameters, settings)
        return function(clients, **settings)
    if central is None:
        raise SpecError(f"method {name} needs a central loss, got none; give central", "method.name")
    clients, central = _weighted(method, clients, central)
    if "central_lr" in accepted and "central_lr" not in settings:
        settings["central_lr"] = server_rate(method)
    if "merge_lr" in accepted:
        settings["merge_lr"] = settings.get("merge_lr", 1.0) * (0.5 if method.get("merge_by", "sum") == "mean" else 1.0)
    _need(parameters, settings)
    return function(clients, central, **settings)


def optimum(
    method: Mapping[str, Any],
    problem: ClientQuadratics | Quadratics | Problem,
    central: CentralQuadratic | None = None,
) -> Array:
    """The minimizer of the loss of a method, (d,), which includes the central loss for mixed methods."""
    clients = clients_of(problem)
    if method.get("name") not in MIXED or central is None:
        return clients.optimum
    clients, central = _weighted(method, clients, central)
    pull = clients.hessian @ clients.optimum + central.hessian @ central.center
    return np.asarray(np.linalg.solve(clients.hessian + central.hessian, pull))


def server_rate(method: Mapping[str, Any]) -> float:
    """server_lr of a method: given, or delta_lr * client_lr with delta_lr, or client_lr with tied rates.

    Raises:
        SpecError: none or both are given, one is given with tied, or client_lr is 0 with delta_lr.
    """
    server_lr, delta_lr = method.get("server_lr"), method.get("delta_lr")
    tied = method.get("tied") or methods().constant(method.get("name"), "TIED")
    if server_lr is None and delta_lr is None and tied:
        return number(method.get("client_lr", 0.0), "method.client_lr")
    if method.get("tied"):
        raise SpecError("method.server_lr and delta_lr must be left out with tied: true", "method.tied")
    if (server_lr is None) == (delta_lr is None):
        word = "neither" if server_lr is None else "both"
        raise SpecError(f"method must have one of server_lr and delta_lr, got {word}", "method.server_lr")
    if server_lr is not None:
        return number(server_lr, "method.server_lr")
    client_lr = number(method.get("client_lr", 0.0), "method.client_lr")
    if client_lr == 0:
        raise SpecError("method.delta_lr needs client_lr above 0, got client_lr=0; give server_lr", "method.delta_lr")
    return number(delta_lr, "method.delta_lr") * client_lr


def server_momentum(server: Mapping[str, Any]) -> tuple[float, bool]:
    """(momentum, whether in Nesterov's form) of a server: `momentum` and `nesterov` are sgd with momentum.

    Raises:
        SpecError: the server's step is not linear.
    """
    name = server.get("name", "sgd")
    if name not in LINEAR_SERVERS:
        names = ", ".join(LINEAR_SERVERS)
        raise SpecError(f"server must be one of {names} for a closed form, got {shown(name)}", "server.name")
    momentum = server.get("momentum")
    if momentum is None:
        momentum = next(item.default for item in describe(optimizers()[name].Hyper) if item.name == "momentum")
    nesterov = name == "nesterov" or (name == "sgd" and bool(server.get("nesterov", False)))
    return number(momentum, "server.momentum"), nesterov


def _value(key: str, value: Any) -> Any:
    if key in AS_THEY_ARE:
        return value
    if key in COUNTS:
        return None if value is None else integer(value, f"method.{key}")
    return number(value, f"method.{key}")


def _decayed(clients: ClientQuadratics, weight_decay: float) -> ClientQuadratics:
    """Clients whose local gradients include weight_decay times the model."""
    if weight_decay == 0:
        return clients
    hessians = clients.hessians + weight_decay * np.eye(clients.dimension)
    pulls = np.einsum("ijk,ik->ij", clients.hessians, clients.centers)
    return client_quadratics(hessians, np.linalg.solve(hessians, pulls[..., None])[..., 0], clients.weights)


def _need(parameters: Mapping[str, inspect.Parameter], settings: Mapping[str, Any]) -> None:
    for key, parameter in parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty and key not in settings:
            raise SpecError(f"method.{key} is missing", f"method.{key}")


def _weighted(
    method: Mapping[str, Any], clients: ClientQuadratics, central: CentralQuadratic
) -> tuple[ClientQuadratics, CentralQuadratic]:
    """The weighted losses; unchanged if no weights are given."""
    share = method.get("federated_weight")
    central_weight = method.get("central_weight")
    if share is None and central_weight is None:
        return clients, central
    federated = (
        number(share, "method.federated_weight") if share is not None else 1 - number(central_weight, "central_weight")
    )
    if not 0 < federated <= 1:
        raise SpecError(
            f"method.federated_weight must be between 0 and 1 (1 itself too) for a closed form, got {federated:g}",
            "method.federated_weight",
        )
    return scaled(clients, federated), weighted_central(central, 1 - federated)
