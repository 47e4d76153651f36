"""Predictions for a trial: loss and distance after every round, and their limits.

With exact gradients and all clients a round is an affine map, so the whole curve is known before training.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.errors import SpecError
from trainers.problem import Problem, Quadratics
from trainers.theory.clients import ClientQuadratics, clients_of
from trainers.theory.rounds.affine import RoundMap, with_server
from trainers.theory.rounds.central import CentralQuadratic, central_of
from trainers.theory.rounds.methods import MIXED, affine_round, server_momentum, server_rate
from trainers.theory.warning import TheoryWarning
from trainers.values import shown

Array = NDArray[np.float64]
METRICS = ("loss", "excess_loss", "distance")
CHUNK = 4_000_000
"""Numbers held at once while many settings are computed together."""


@dataclass(frozen=True)
class Setting:
    """A method with its server optimizer on a problem.

    Args:
        round_map: map of one round.
        limit: (d,) the fixed point of the rounds.
        rate: asymptotic linear rate; 1 or more does not converge.
    """

    round_map: RoundMap
    limit: Array
    rate: float


@dataclass(frozen=True)
class Predictor:
    """Predictions on one problem; build with `predictor`.

    Args:
        clients: the clients, with the weights of a round with all clients.
        constant: weighted mean of the losses' constants.
        central: the server's own loss, for mixed methods; metrics are still those of the clients' losses.
    """

    clients: ClientQuadratics
    constant: float
    central: CentralQuadratic | None = None

    def setting(
        self,
        method: Mapping[str, Any],
        server: Mapping[str, Any],
        schedule: str = "constant",
        others: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Setting:
        """The setting of a trial.

        Args:
            method: name and hyperparameters as in a trial document.
            server: name and settings of the server optimizer.
            schedule: name of the schedule.
            others: role (client, central, merge) -> name and settings of its optimizer; None is plain SGD.

        Raises:
            SpecError: there is no closed form (adaptive server, other roles without plain SGD, changing rates,
                local_epochs, or an unknown method), or the setting has no fixed point.
        """
        if schedule != "constant":
            raise SpecError(f"rates must stay constant for a closed form, got schedule {schedule}", "schedule.name")
        form = server_momentum(server)
        for role, settings in (others or {}).items():
            _refuse_steps(role, settings)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TheoryWarning)  # the trial itself has already warned
            affine = affine_round(_filled(method), self.clients, self.central)
        whole = with_server(affine, server_rate(method), *form)
        limit = whole.fixed_point if affine.carry is not None else with_server(affine, 1.0).fixed_point
        return Setting(whole, limit, whole.rate)

    def values(self, models: Any, metric: str) -> Array:
        """The exact value of a metric at the given models.

        Args:
            models: (..., d).
            metric: "loss", including constants, "excess_loss" over the minimum, or "distance" to the optimum.

        Returns:
            (...).
        """
        away = np.asarray(models, float) - self.clients.optimum
        if metric == "distance":
            return np.asarray(np.linalg.norm(away, axis=-1))
        excess = np.asarray(0.5 * ((away @ self.clients.hessian) * away).sum(-1))
        if metric == "excess_loss":
            return excess
        return np.asarray(float(self.clients.loss(self.clients.optimum)) + self.constant + excess)

    def curves(self, settings: Sequence[Setting], init: Sequence[float] | None, rounds: int, metric: str) -> Array:
        """A metric after 0, 1, ..., rounds rounds.

        Args:
            settings: any number of settings, with and without momentum.
            init: (d,) initial model; None is 0.
            rounds: number of server updates.
            metric: one of `METRICS`.

        Returns:
            (settings, rounds + 1); infinite or nan after a setting overflows.
        """
        first = np.zeros(self.clients.dimension) if init is None else np.asarray(init, float)
        curves = np.empty((len(settings), rounds + 1))
        with np.errstate(over="ignore", invalid="ignore"):
            for chosen in _groups([setting.round_map for setting in settings], rounds):
                curves[chosen] = self._follow([settings[index].round_map for index in chosen], first, rounds, metric)
        return curves

    def _follow(self, maps: Sequence[RoundMap], first: Array, rounds: int, metric: str) -> Array:
        matrices = np.stack([round_map.matrix for round_map in maps])
        offsets = np.stack([round_map.offset for round_map in maps])[..., None]
        state = np.stack([round_map.start(first) for round_map in maps])[..., None]
        models = np.empty((rounds + 1, len(maps), self.clients.dimension))
        models[0] = first
        for done in range(1, rounds + 1):
            state = matrices @ state + offsets
            models[done] = state[:, : self.clients.dimension, 0]
        return self.values(models, metric).T


def predictor(problem: Problem) -> Predictor:
    """Predictions on a quadratic problem.

    Args:
        problem: from the `build` of a task.

    Raises:
        SpecError: the problem is not quadratic.

    Examples:
        >>> from trainers.tasks import quadratic
        >>> task = quadratic.parse({"name": "quadratic", "problem": "two_clients"}, "task")
        >>> known = predictor(quadratic.build(task, "float64"))
        >>> method = {"name": "fedavg", "client_lr": 0.25, "server_lr": 0.5, "local_steps": 2}
        >>> setting = known.setting(method, {"name": "sgd"})
        >>> round(setting.rate, 6), round(float(known.values(setting.limit, "distance")), 6)
        (0.1875, 0.017544)
    """
    clients = clients_of(problem)
    constants = problem.train.constants if isinstance(problem.train, Quadratics) else np.zeros(0)
    central = None if not isinstance(problem.central, Quadratics) else central_of(problem.central)
    return Predictor(clients, float(clients.weights @ constants), central)


def _refuse_steps(role: str, settings: Mapping[str, Any]) -> None:
    """Raises a SpecError for an optimizer whose steps are not plain gradient steps."""
    if settings.get("name", "sgd") != "sgd":
        raise SpecError(f"{role}.name must be sgd for a closed form, got {settings['name']}", f"{role}.name")
    if momentum := settings.get("momentum"):
        raise SpecError(f"{role}.momentum must be 0 for a closed form, got {shown(momentum)}", f"{role}.momentum")


def _filled(method: Mapping[str, Any]) -> dict[str, Any]:
    """The method as the trial runs it: without null values, and with weights 1/2 of mixed losses if none is given."""
    filled = {name: value for name, value in method.items() if value is not None}
    if filled.get("name") in MIXED and not {"federated_weight", "central_weight"} & filled.keys():
        filled["federated_weight"] = 0.5
    return filled


def _groups(maps: Sequence[RoundMap], rounds: int) -> Iterable[list[int]]:
    """Indices of maps of equal size, in groups that fit into the memory limit."""
    by_size: dict[int, list[int]] = {}
    for index, round_map in enumerate(maps):
        by_size.setdefault(len(round_map.offset), []).append(index)
    for size, indices in by_size.items():
        width = max(1, CHUNK // max(size * size, size * (rounds + 1)))
        for begin in range(0, len(indices), width):
            yield indices[begin : begin + width]
