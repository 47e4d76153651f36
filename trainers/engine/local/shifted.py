"""A model's oracle with the losses taken a little beside: at params + shift, with a shift for each client."""

from __future__ import annotations

from torch import Tensor

from trainers.engine.oracles.oracle import Batch, Oracle


class Shifted(Oracle):
    """The oracle of the losses f_i(params + shift_i).

    Args:
        oracle: of the losses f_i.
        shift: (T, M, P); batches may be of the first trials and clients only.
    """

    def __init__(self, oracle: Oracle, shift: Tensor) -> None:
        self._oracle = oracle
        self._shift = shift

    def value(self, params: Tensor, batch: Batch) -> Tensor:
        """See Oracle."""
        return self._oracle.value(self._moved(params, batch), batch)

    def value_and_grad(self, params: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """See Oracle."""
        return self._oracle.value_and_grad(self._moved(params, batch), batch)

    def hvp(self, params: Tensor, batch: Batch, vector: Tensor) -> Tensor:
        """See Oracle."""
        return self._oracle.hvp(self._moved(params, batch), batch, vector)

    def add_gradient_(self, params: Tensor, batch: Batch, total: Tensor, want_loss: bool = False) -> Tensor | None:
        """See Oracle."""
        return self._oracle.add_gradient_(self._moved(params, batch), batch, total, want_loss)

    def _moved(self, params: Tensor, batch: Batch) -> Tensor:
        return params + self._shift[: params.shape[0], : batch[-1].stop]
