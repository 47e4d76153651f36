"""Terms between the local loop and the oracle's gradients: one function per term.

Each function takes gradients and returns gradients, so functions can be combined. The loop applies those that a
LocalWork asks for (engine/local/loop.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from trainers.engine.batches.with_central import JoinedBatch
from trainers.engine.oracles.oracle import Batch, LocalGradients, Oracle, replicas, unset_replicas

Observe = Callable[[Tensor, Batch], None]
"""Callback that receives the models (T, M or 1, P) at which a step takes its gradients, and the step's batch."""


@dataclass(frozen=True)
class _Function(LocalGradients):
    """Gradients computed by a function, without the fast paths of an oracle.

    Args:
        add: like LocalGradients.add_gradient_.
    """

    add: Callable[[Tensor, Batch, Tensor, bool], Tensor | None]

    def add_gradient_(self, params: Tensor, batch: Batch, total: Tensor, want_loss: bool = False) -> Tensor | None:
        return self.add(params, batch, total, want_loss)


def displaced(gradients: LocalGradients, offset: Tensor) -> LocalGradients:
    """Grad f_i(y + offset_i) at y.

    Args:
        gradients: grad f_i.
        offset: (T, M, P).
    """

    def add_(params: Tensor, batch: Batch, total: Tensor, want_loss: bool) -> Tensor | None:
        moved = params + offset[: params.shape[0], : batch[-1].stop]
        return gradients.add_gradient_(moved, batch, total, want_loss)

    return _Function(add_)


def less_anchor(gradients: LocalGradients, anchor: Tensor) -> LocalGradients:
    """Grad f_i(y) - grad f_i(anchor) on the same batch, with less noise than grad f_i(y) (SVRG).

    Args:
        gradients: grad f_i.
        anchor: (T, 1, P).
    """

    def add_(params: Tensor, batch: Batch, total: Tensor, want_loss: bool) -> Tensor | None:
        trials, clients = params.shape[0], batch[-1].stop
        loss = gradients.add_gradient_(params, batch, total, want_loss)
        anchored = replicas(total, trials, clients, total.shape[-1])
        gradients.add_gradient_(anchor[:trials], batch, anchored)
        total[:, :clients].sub_(anchored)
        return loss

    return _Function(add_)


def with_central(oracle: Oracle, central: Oracle, weight: Tensor, central_weight: Tensor) -> LocalGradients:
    """Weight grad f_i + central_weight grad f_c, for the batches of a JoinedRound; reported losses are f_i.

    Args:
        oracle: oracle of the losses f_i.
        central: oracle of the server's loss f_c, with the server as one client.
        weight: (T, 1, 1).
        central_weight: (T, 1, 1).
    """

    def add_(params: Tensor, batch: Batch, total: Tensor, want_loss: bool) -> Tensor | None:
        assert isinstance(batch, JoinedBatch)
        trials, clients, size = params.shape[0], batch[-1].stop, params.shape[-1]
        client_gradients = unset_replicas(total, trials, clients, size)
        loss = oracle.gradient_(params, batch, client_gradients, want_loss)
        total[:, :clients].addcmul_(client_gradients, weight[:trials])
        models = params.expand(trials, clients, size).reshape(trials * clients, 1, size)
        shared = unset_replicas(total, trials * clients, 1, size)
        central.gradient_(models, batch.central, shared)
        total[:, :clients].addcmul_(shared.view(trials, clients, size), central_weight[:trials])
        return loss

    return _Function(add_)


def observed(gradients: LocalGradients, observe: Observe) -> LocalGradients:
    """The given gradients, with a callback that receives the models at which they are taken.

    Args:
        gradients: gradients of the clients.
        observe: called at every step.
    """

    def add_(params: Tensor, batch: Batch, total: Tensor, want_loss: bool) -> Tensor | None:
        observe(params, batch)
        return gradients.add_gradient_(params, batch, total, want_loss)

    return _Function(add_)
