"""A model's oracle with the losses times a weight, for local work that is not linear in the gradients."""

from __future__ import annotations

from torch import Tensor

from trainers.engine.oracles.oracle import Batch, Oracle


class Scaled(Oracle):
    """The oracle of the losses w f_i; the losses that it gives are f_i all the same.

    Args:
        oracle: of the losses f_i.
        weight: (T, 1, 1) at least 0; batches may be of the first trials only.
    """

    def __init__(self, oracle: Oracle, weight: Tensor) -> None:
        self._oracle = oracle
        self._weight = weight

    def value(self, params: Tensor, batch: Batch) -> Tensor:
        """See Oracle."""
        return self._oracle.value(params, batch)

    def value_and_grad(self, params: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """See Oracle."""
        loss, gradient = self._oracle.value_and_grad(params, batch)
        return loss, self._weight[: params.shape[0]] * gradient

    def hvp(self, params: Tensor, batch: Batch, vector: Tensor) -> Tensor:
        """See Oracle."""
        return self._weight[: params.shape[0]] * self._oracle.hvp(params, batch, vector)

    def add_gradient_(self, params: Tensor, batch: Batch, total: Tensor, want_loss: bool = False) -> Tensor | None:
        """See Oracle."""
        loss, gradient = self.value_and_grad(params, batch)
        total[:, : batch[-1].stop] += gradient
        return loss if want_loss else None
