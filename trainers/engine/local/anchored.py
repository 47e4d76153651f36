"""A model's oracle with its gradients taken against those at an anchor, on the same batch: less noise, as in SVRG."""

from __future__ import annotations

from torch import Tensor

from trainers.engine.oracles.oracle import Batch, Oracle

ANCHORED_COST = 2  # gradients of one anchored gradient


class Anchored(Oracle):
    """The oracle of f_i(y) - <grad f_i(anchor; the same batch), y>: gradients are differences, values are f_i.

    Args:
        oracle: of the losses f_i.
        anchor: (T, 1, P); batches may be of the first trials and clients only.
    """

    def __init__(self, oracle: Oracle, anchor: Tensor) -> None:
        self._oracle = oracle
        self._anchor = anchor

    def value(self, params: Tensor, batch: Batch) -> Tensor:
        """See Oracle; without the linear part."""
        return self._oracle.value(params, batch)

    def value_and_grad(self, params: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """See Oracle."""
        loss, gradient = self._oracle.value_and_grad(params, batch)
        return loss, gradient.sub_(self._at(params, batch))

    def hvp(self, params: Tensor, batch: Batch, vector: Tensor) -> Tensor:
        """See Oracle."""
        return self._oracle.hvp(params, batch, vector)

    def add_gradient_(self, params: Tensor, batch: Batch, total: Tensor, want_loss: bool = False) -> Tensor | None:
        """See Oracle."""
        loss = self._oracle.add_gradient_(params, batch, total, want_loss)
        total[:, : batch[-1].stop].sub_(self._at(params, batch))
        return loss

    def _at(self, params: Tensor, batch: Batch) -> Tensor:
        return self._oracle.value_and_grad(self._anchor[: params.shape[0]], batch)[1]
