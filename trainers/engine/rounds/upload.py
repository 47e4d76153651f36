"""What the server receives of the results of a round's clients: quantised, and only the fragment of the round."""

from __future__ import annotations

from torch import Tensor

from trainers.engine.rounds.client_memory import CohortMemory
from trainers.engine.rounds.fragments import Exchange
from trainers.engine.rounds.quantised import Quantiser

RESIDUAL = "upload.residual"
"""Name in the client memory of the residuals of quantised uploads (engine/rounds/quantised.py)."""
UNSENT = "fragments.unsent"
"""Name in the client memory of pseudo-gradients that wait for their fragment's turn (engine/rounds/fragments.py)."""


class Upload:
    """The uploads of the clients of a round.

    Args:
        quantiser: quantises what the clients return; None sends numbers as they are.
        exchange: the fragment that the round exchanges; None is the whole model.
        memory: what the clients keep.

    Attributes:
        unsent: (T, M, P) pseudo-gradients of earlier rounds that no round has exchanged; None without fragments.
        kept: what the clients keep after the round, by dotted name.
    """

    def __init__(self, quantiser: Quantiser | None, exchange: Exchange | None, memory: CohortMemory) -> None:
        self._quantiser, self._exchange = quantiser, exchange
        self._residual, self.unsent = memory.values.get(RESIDUAL), memory.values.get(UNSENT)
        self.kept: dict[str, Tensor] = {}

    @property
    def exact(self) -> bool:
        """Whether the server receives all that the clients return."""
        return self._quantiser is None and self._exchange is None

    def received(self, values: Tensor) -> Tensor:
        """What the server receives of pseudo-gradients (T, M, P); to be called once a round."""
        if self._exchange is None:
            return self._rounded(values)
        if self.unsent is not None:
            values = values + self.unsent
        self.kept[UNSENT] = self._exchange.spliced(values, values.new_zeros(()))
        return self._exchange.alone(self._rounded(values), values)

    def bytes_of(self, parameters: int, width: int) -> int:
        """Bytes that a client sends of a model-sized tensor.

        Args:
            parameters: numbers of the model.
            width: bytes of a number.
        """
        numbers = parameters if self._exchange is None else self._exchange.up
        return numbers * width if self._quantiser is None else self._quantiser.bytes_of(numbers, width)

    def _rounded(self, values: Tensor) -> Tensor:
        """The values, or the round's fragment of them, after quantisation."""
        exchange, residual = self._exchange, self._residual
        part = values if exchange is None else values[..., exchange.part]
        if self._quantiser is None:
            return part
        if residual is not None:
            part = part + (residual if exchange is None else residual[..., exchange.part])
        sent = self._quantiser.sent(part)
        if residual is not None:
            left = part - sent
            self.kept[RESIDUAL] = left if exchange is None else exchange.spliced(residual, left)
        return sent
