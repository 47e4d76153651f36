"""One round of a method on quadratics as an affine map, with its fixed point and its rate.

A method defines how the pseudo-gradient depends on the state, and what else happens in a round; the server optimizer is
added to that:

    pseudo_gradient = gradient z - pull
    next z = carry z + shift - inject (server step of the pseudo_gradient)

The state z starts with the model parameters; two-way gradient transfer keeps two more vectors in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainers.theory.clients import solve

Array = NDArray[np.float64]
overflows = np.errstate(over="ignore", invalid="ignore")
"""For code that may compute a round map that overflows: such a map is diverging, and no warning is due."""


@dataclass(frozen=True)
class AffineRound:
    """A method's round without its server optimizer.

    Args:
        gradient: (d, s) matrix of the pseudo-gradient as a function of the state.
        pull: (d,) subtracted from the pseudo-gradient.
        carry: (s, s) matrix of the rest of the round; None is the identity.
        shift: (s,) added by the rest of the round; None is 0.
        inject: (s, d) maps the server step to the state, from which it is subtracted; None is the identity.
        begin: (s, d) and (s,): a run from params starts in the state given by the first times params plus the second.
            None is params, with everything else 0.
    """

    gradient: Array
    pull: Array
    carry: Array | None = None
    shift: Array | None = None
    inject: Array | None = None
    begin: tuple[Array, Array] | None = None


@dataclass(frozen=True)
class RoundMap:
    """state next = matrix state + offset; the first `dimension` entries of the state are the model.

    A matrix that overflowed has rate inf and a fixed point of nan.

    Args:
        matrix: (s, s).
        offset: (s,).
        dimension: number of model parameters.
        begin: see AffineRound.
    """

    matrix: Array
    offset: Array
    dimension: int
    begin: tuple[Array, Array] | None = None

    @property
    def finite(self) -> bool:
        """Whether all entries of the matrix are finite."""
        return bool(np.isfinite(self.matrix).all())

    @property
    def fixed_state(self) -> Array:
        """The fixed point of the state, (s,); SpecError unless there is exactly one."""
        if not self.finite:
            return np.full(len(self.offset), np.nan)
        return solve(np.eye(len(self.offset)) - self.matrix, self.offset)

    @property
    def fixed_point(self) -> Array:
        """The fixed point of the model, (d,)."""
        return self.fixed_state[: self.dimension]

    @property
    def rate(self) -> float:
        """Spectral radius: the asymptotic linear rate; 1 or more does not converge."""
        return float(np.abs(np.linalg.eigvals(self.matrix)).max()) if self.finite else math.inf

    def start(self, params: Array) -> Array:
        """The state (s,) of a run that starts at `params` (d,); other entries are 0 unless the method sets them."""
        state = np.asarray(params, float)
        if self.begin is not None:
            state = self.begin[0] @ state + self.begin[1]
        return np.concatenate([state, np.zeros(len(self.offset) - len(state))])

    def after(self, params: Array, rounds: int) -> Array:
        """The models after 0, 1, ..., rounds rounds, (rounds + 1, d)."""
        state = self.start(params)
        models = [state[: self.dimension]]
        for _ in range(rounds):
            state = self.matrix @ state + self.offset
            models.append(state[: self.dimension])
        return np.array(models)


@overflows
def with_server(affine: AffineRound, server_lr: float, momentum: float = 0.0, nesterov: bool = False) -> RoundMap:
    """The whole round, including the server optimizer.

    velocity = momentum velocity + q; the step is server_lr velocity, or server_lr (q + momentum velocity) in Nesterov's
    form.

    Args:
        affine: the method.
        server_lr: multiplies the pseudo-gradient.
        momentum: 0 is plain SGD, without a velocity in the state.
        nesterov: momentum in Nesterov's form.
    """
    d, size = affine.gradient.shape
    carry = np.eye(size) if affine.carry is None else affine.carry
    shift = np.zeros(size) if affine.shift is None else affine.shift
    inject = np.eye(size, d) if affine.inject is None else affine.inject
    fresh = 1 + momentum if nesterov else 1.0
    matrix = carry - server_lr * fresh * inject @ affine.gradient
    offset = shift + server_lr * fresh * inject @ affine.pull
    if momentum == 0:
        return RoundMap(matrix, offset, d, affine.begin)
    kept = momentum**2 if nesterov else momentum
    whole = np.block([[matrix, -server_lr * kept * inject], [affine.gradient, momentum * np.eye(d)]])
    return RoundMap(whole, np.concatenate([offset, -affine.pull]), d, affine.begin)
