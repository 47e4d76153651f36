"""The oracles of a stack of layers (see _stacks): by hand, and in example space if its first layer is dense."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.engine.layout import Layout
from trainers.engine.memory import ran_out
from trainers.engine.oracles.all_trials import AllTrials
from trainers.engine.oracles.oracle import Group, Oracle
from trainers.models._by_hand import EXAMPLES, ByHand
from trainers.models._example_space import InnerProducts
from trainers.models._first_layer import FirstLayerInExampleSpace
from trainers.models._layer_calls import close
from trainers.models._layers import Dense, Flatten, Layer
from trainers.models._losses import KindLoss

_TOLERANCE = 3.0  # times the root of rounding
_ROOM = 1 << 27  # bytes of a forward pass
_MOVES = (1.0, 10.0)  # of parameters, in units of the usual first values


@dataclass(frozen=True)
class Stack:
    """A stack of layers.

    Args:
        layout: layout of the parameters.
        layers: the layers.
        loss: loss of the scores.
        second: gives Hessian-vector products if a layer has no second derivatives by hand.
    """

    layout: Layout
    layers: Sequence[Layer]
    loss: KindLoss
    second: Oracle

    def agrees(self, exact: Oracle, row: Tensor, data: Mapping[str, Tensor]) -> bool:
        """Whether gradients by hand equal those of another oracle: torch.no_grad, for one, leaves no trace in layers.

        Parameters move away from their first values, because zeros would hide all layers before them and `forward` may
        treat large numbers differently. Two clients are used if they are computed at once, in case layers mix them.

        Args:
            exact: the other oracle.
            row: (P,) first parameters.
            data: (examples, ...) inputs and targets.
        """
        oracle = ByHand(self.layout, self.layers, self.loss)
        clients = 1 + oracle.stacked
        client_data = {name: torch.stack([tensor, tensor.flip(0)][:clients]) for name, tensor in data.items()}
        batch = (Group(0, clients, client_data),)
        tolerance = _TOLERANCE * torch.finfo(row.dtype).eps ** 0.5
        for size in _MOVES:
            params = (row + size * self._moves().to(row)).expand(1, 1, -1)
            try:
                by_hand, expected = (one.value_and_grad(params, batch) for one in (oracle, exact))
            except Exception as error:  # any error of other people's code
                if ran_out(error):
                    raise
                return False
            if not all(close(one, other, tolerance) for one, other in zip(by_hand, expected, strict=True)):
                return False
        return True

    def _moves(self) -> Tensor:
        """(P,) normal numbers, of variance 1 / inputs in a matrix; drawn by a generator of their own."""
        drawn = torch.randn(self.layout.count, generator=torch.Generator(device="cpu").manual_seed(0), device="cpu")
        moves = self.layout.row(drawn)
        for entry, view in zip(self.layout.entries, self.layout.views(moves).values(), strict=True):
            if len(entry.shape) > 1:
                view.div_(math.sqrt(entry.count / entry.shape[0]))
        return moves

    def takes_rows(self, axes: int) -> bool:
        """Whether rows of inputs go into a dense layer first, whose weight is the first of several tensors.

        Args:
            axes: dimensions of the inputs (examples, ...).
        """
        index = next(number for number, layer in enumerate(self.layers) if layer.names)
        before, first, entries = self.layers[:index], self.layers[index], self.layout.entries
        rows = all(isinstance(layer, Flatten) for layer in before) and (axes == 2 or index > 0)
        dense_first = isinstance(first, Dense) and first.names[0] == entries[0].name and len(entries) > 1
        return rows and dense_first and all(layer.stacked for layer in self.layers)

    @staticmethod
    def most_examples(bytes_each: int) -> int:
        """Examples of all clients together that a processor computes at once.

        Args:
            bytes_each: bytes of all tensors that a forward pass on an example makes.
        """
        return max(1, min(EXAMPLES, _ROOM // bytes_each))

    def oracles(
        self, rounding: torch.dtype | None, examples: int, products: InnerProducts | None, *, accelerated: bool
    ) -> dict[str, Oracle]:
        """The oracles by name.

        Args:
            rounding: type of products; None is the type of the models.
            examples: examples of all clients together that are computed at once, if clients are not computed apart.
            products: inner products of the inputs, if the stack `takes_rows`; None is no example space.
            accelerated: whether all trials of a client are computed at once too.
        """
        oracle = ByHand(self.layout, self.layers, self.loss, rounding, max(1, examples), self.second)
        if not oracle.stacked:
            return {"by_hand": oracle}
        oracles: dict[str, Oracle] = {"stacked": AllTrials(oracle) if accelerated else oracle}
        if products is not None:
            oracles["example_space"] = FirstLayerInExampleSpace(oracle, products)
        return oracles
