"""Example space: local loops on the scores of the clients' examples instead of the parameters of an affine layer.

Gradients by the weight of a layer that gets a client's inputs are linear combinations of these inputs, also after sums,
pulls and weights. So a client's sum of gradients is one coefficient per output and example, and scores change by inner
products of inputs, which all trials and rounds share. Two wide products with the inputs of the whole round, at its
start and at its end, replace two thin ones in every step.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.engine.oracles.frame import Motion
from trainers.engine.oracles.oracle import DistinctExamples

_KEPT_BYTES = 1 << 26
_LEAST_GAIN = 1.25
_THIN = 1.5  # cost of arithmetic on mini-batches and replicas, relative to wide products
_BEYOND_CACHE = 2.5  # the same for replicas that do not fit into a cache
_CACHE = 1 << 20  # numbers
_LEAST_ARITHMETIC = 5_000_000  # multiplications a step, below which the cost of calls decides
_MORE_MEMORY = 4  # numbers held during a round, as a multiple of those of replicas


class InnerProducts:
    """Inner products of the inputs of each client's examples, kept if those of all clients take little memory.

    Args:
        inputs: (rows, ...) of all clients; a client's rows are neighbours.
        offsets: (clients,) first row of each client.
        sizes: (clients,) rows of each client.
    """

    def __init__(self, inputs: Tensor, offsets: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
        self.inputs = inputs.flatten(1)
        self.offsets = offsets
        self.sizes = sizes
        self.keeps = float(np.square(sizes, dtype=float).sum()) * inputs.element_size() <= _KEPT_BYTES
        self._kept: dict[int, Tensor] = {}

    def among(self, clients: NDArray[np.int64], rows: NDArray[np.int64], inputs: Tensor) -> Tensor:
        """(m, examples, examples) inner products.

        Args:
            clients: (m,) client ids.
            rows: (m, examples) rows of each client.
            inputs: (m, examples, row) their inputs.
        """
        if not self.keeps:
            return torch.bmm(inputs, inputs.transpose(1, 2))
        places = rows - self.offsets[clients][:, None]
        whole = (places == np.arange(rows.shape[1])).all(1) & (self.sizes[clients] == rows.shape[1])
        return torch.stack(
            [self._of(*arguments) for arguments in zip(clients.tolist(), places, whole.tolist(), strict=True)]
        )

    def _of(self, client: int, places: NDArray[np.int64], whole: bool) -> Tensor:
        if client not in self._kept:
            first = int(self.offsets[client])
            rows = self.inputs[first : first + int(self.sizes[client])]
            self._kept[client] = rows @ rows.T
        if whole:
            return self._kept[client]
        chosen = torch.as_tensor(places, device=self.inputs.device)
        return self._kept[client].index_select(0, chosen).index_select(1, chosen)


def example_space_pays(distinct: DistinctExamples, motion: Motion, outputs: int, columns: int, kept: bool) -> bool:
    """Whether a round of mini-batches is clearly faster in example space, by counting multiplications and memory.

    Counts decide rather than a measurement, so that two runs of one study choose the same way and agree to the bit,
    even where both ways are nearly as fast.

    Args:
        distinct: the examples of the round.
        motion: motion of the models.
        outputs: outputs of the layer, of all trials.
        columns: its inputs.
        kept: whether inner products are kept.
    """
    example_cost, parameter_cost, memory = 0, 0, 0
    products = 2 if motion.shift is None else 3
    for rows, places in zip(distinct.rows, distinct.places, strict=True):
        clients, examples = rows.shape
        drawn = places.shape[0] * places.shape[2]
        inner = 0 if kept else examples * columns
        example_cost += clients * examples * (outputs * (products * columns + drawn) + inner)
        parameter_cost += clients * 2 * drawn * outputs * columns
        memory += clients * examples * (examples + products * outputs + columns)
    models = sum(len(rows) for rows in distinct.rows) * outputs * columns
    gain = parameter_cost * (_BEYOND_CACHE if models > _CACHE else _THIN) / example_cost
    enough = gain >= _LEAST_GAIN and parameter_cost >= motion.steps * _LEAST_ARITHMETIC
    return motion.moving and enough and memory <= _MORE_MEMORY * 2 * models
