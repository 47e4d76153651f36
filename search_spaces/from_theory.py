"""Ranges and first points of the rates, local steps and server momentum, from curvature and gradient noise.

[A] Charles and Konecny, "Convergence and Accuracy Trade-Offs in Federated Learning and Meta-Learning".
[B] Charles and Konecny, "On the Outsized Importance of Learning Rates in Local Update Methods".

With L and mu the largest and the smallest useful curvature, K local steps at client_lr minimize a surrogate whose
curvature is phi(e) where the loss has curvature e ([A] (10); (12) if only the last step counts), so that:

* client_lr begins where K = the most local steps halve the surrogate's steepest curvature, log 2 / (K L) ([B]
  Corollary 19 with epsilon = 1/2). Below it, local steps only repeat the gradient, which fewer steps do as well. It
  ends at `MARGIN` times 2 / L, the largest stable rate of a client's own gradient descent.
* server_lr begins at half of 1 / phi(L) where phi(L) is largest, and ends at `MARGIN` times 2 / L. In between is the
  best rate 2 / (phi(mu) + phi(L)) ([A] Theorem 3) of all rates and local steps of the space.
* Momentum ends where 1 - momentum is half of that of the best heavy ball for L / mu ([A] Table 2).
* Local steps beyond `MARGIN` times L / mu are left out: the clients would be at their own minimizers.

`MARGIN` is needed because curvature is measured at the initial model only; for cross-entropy it falls in training.

The first points have client_lr 1 / L_i (L_i: a median client's curvature) or log 2 / (K L), with the best server_lr
(and momentum, if it is tuned) for exact gradients, or with the server_lr, at most this best one, that minimizes an
estimate of the final excess loss after T rounds,

    mu D^2 / 2 exp(-2 T server_lr phi(mu)) + server_lr V mu / (4 phi(mu)),   V = K G^2 / M ([B] Lemma 23)

with D the distance to the minimum, G the noise of a batch gradient and M clients a round. The second term is the excess
loss of a linear system at rest: in a direction of curvature e and noise v the variance of the model is server_lr v /
(2 phi(e)), times e / 2, with phi(e) / e taken at mu.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from search_spaces.parameters import Choice, Float, Space
from trainers import PLAIN, SpecError, hint
from trainers.registry import methods, optimizers
from trainers.theory.rates import best_parameters
from trainers.theory.spectrum import phi, psi
from trainers.theory.stochastic_rates import Noise

if TYPE_CHECKING:  # its import loads torch
    from trainers import LossEstimate

MARGIN = 4.0
DIGITS = 2


def closed_form(optimizer: str) -> str | None:
    """The rates of an optimizer on quadratics, as `trainers.theory.rates` calls them; None if it has none."""
    form: str | None = optimizers().constant(optimizer, "CLOSED_FORM")
    return form


def pseudo_gradient(method: str) -> str | None:
    """What the clients of a method return: the "sum" of their gradients or the "last" one; None without theory."""
    returned: str | None = methods().constant(method, "PSEUDO_GRADIENT")
    return returned


@dataclass(frozen=True)
class TheoryPrior:
    """Ranges and first points for a method on a task.

    Args:
        method: name of the method; it has a `pseudo_gradient`.
        client: name of the clients' optimizer, "sgd".
        server: name of the server's optimizer. For one without a `closed_form`, server_lr keeps its default range.
        measured: curvature and noise of the task.
        rounds: budget of a trial.
        clients_per_round: size of a cohort, over which the noise is averaged; None is all measured clients.

    Raises:
        SpecError: There is no theory for the method, or for the clients' optimizer.
    """

    method: str
    client: str
    server: str
    measured: LossEstimate
    rounds: int
    clients_per_round: int | None = None

    def __post_init__(self) -> None:
        if pseudo_gradient(self.method) is None:
            names = [name for name in methods() if pseudo_gradient(name)]
            raise SpecError(f"theory has no rates for {self.method}: use default ({hint(self.method, names)})", "space")
        if self.client != PLAIN:
            raise SpecError(f"theory needs plain sgd on the clients, got {self.client}: use default", "space")

    def space(self, default: Space) -> Space:
        """The method's default space, with the ranges of theory."""
        smooth, useful = self.measured.smoothness, self.measured.useful_curvature
        space = dict(default)
        steps = default.get("local_steps")
        if isinstance(steps, Choice):
            options = [option for option in steps.options if option <= MARGIN * smooth / useful]
            space["local_steps"] = Choice(tuple(options or steps.options[:1]))
        if "client_lr" in default:
            least = self._half(max(self._steps(space)))
            space["client_lr"] = Float(_rounded(least), _rounded(MARGIN * 2 / smooth), log=True)
        if "server_lr" in default and closed_form(self.server):
            largest = max(self._curvature(smooth, 0.0, count) for count in self._steps(space))
            space["server_lr"] = Float(_rounded(0.5 / largest), _rounded(MARGIN * 2 / smooth), log=True)
        return space

    def server_space(self, default: Space) -> Space:
        """The default space of the server's optimizer, with the range of momentum from theory."""
        form = closed_form(self.server)
        if form is None or "momentum" not in default:
            return default
        best = best_parameters(form, self.measured.useful_curvature, self.measured.smoothness).momentum
        high = min(0.99, _rounded(1 - (1 - best) / 2))
        return {**default, "momentum": Float(0.0, high, log=True, complement=True)}

    def points(self, space: Space, server: Space) -> Iterator[dict[str, Any]]:
        """Configurations to try first, most promising ones first; hyperparameters without theory are left out.

        Args:
            space: From `space`.
            server: The space of the server's optimizer.
        """
        counts = sorted(self._steps(space))
        chosen = dict.fromkeys([counts[-1], counts[len(counts) // 2], counts[0]])
        for rate in ("client", "half"):
            for exact in (False, True):
                for count in chosen:
                    if rate == "half" and count == 1:
                        continue  # with one step, client_lr has no effect
                    client_lr = self._half(count) if rate == "half" else 1 / self.measured.client_smoothness[1]
                    yield self._point(space, server, client_lr if "client_lr" in space else 0.0, count, exact)

    def _point(self, space: Space, server: Space, client_lr: float, count: int, exact: bool) -> dict[str, Any]:
        allowed = {**space, **{f"server.{name}": parameter for name, parameter in server.items()}}
        values: dict[str, Any] = {"client_lr": client_lr}
        if closed := closed_form(self.server):
            low, high = (self._curvature(e, client_lr, count) for e in self._ends())
            form = closed if exact and "momentum" in server else "sgd"
            best = best_parameters(form, min(low, high), max(low, high))
            values["server_lr"] = best.server_lr if exact else self._server_lr(low, count, best.server_lr)
            values["server.momentum"] = best.momentum
        point = {
            name: _inside(value, parameter)
            for name, value in values.items()
            if isinstance(parameter := allowed.get(name), Float)
        }
        return point | ({"local_steps": count} if "local_steps" in space else {})

    def _server_lr(self, slowest: float, count: int, largest: float) -> float:
        """The rate, at most `largest`, that minimizes the final excess loss as estimated in the module docstring."""
        useful, distance = self.measured.useful_curvature, self.measured.distance
        cohort = self.clients_per_round or self.measured.clients
        summed = count if pseudo_gradient(self.method) == "sum" else 1
        variance = Noise(self.measured.gradient_noise, cohort).variance(summed)
        rates = largest * np.geomspace(1e-4, 1.0, 400)
        start = 0.5 * useful * distance**2 * np.exp(-2 * self.rounds * rates * slowest)
        return float(rates[np.argmin(start + rates * variance * useful / (4 * slowest))])

    def _ends(self) -> tuple[float, float]:
        return self.measured.useful_curvature, self.measured.smoothness

    def _half(self, count: int) -> float:
        """[B] Corollary 19 with epsilon = 1/2."""
        return float(np.log(2) / (count * self.measured.smoothness))

    def _curvature(self, eigenvalue: float, client_lr: float, count: int) -> float:
        """Curvature of the surrogate where the loss has curvature `eigenvalue`; client_lr counts as at most 1 / L."""
        rate = min(client_lr, (1 - 1e-9) / self.measured.smoothness)
        if pseudo_gradient(self.method) == "last":
            return max(float(psi(eigenvalue, min(rate, 0.5 / self.measured.smoothness), count)), 1e-3 * eigenvalue)
        return float(phi(eigenvalue, rate, count))

    @staticmethod
    def _steps(space: Mapping[str, Any]) -> tuple[int, ...]:
        steps = space.get("local_steps")
        return tuple(steps.options) if isinstance(steps, Choice) else (1,)


def _inside(value: float, parameter: Float) -> float:
    """The value, rounded as in a study and clipped to its range."""
    return min(max(_rounded(value), parameter.low), parameter.high)


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
