"""Two towers for recommendations: items before and next item as vectors of length one, whose cosine is the score.

    "model": {"name": "dual_encoder", "embedding": 16, "margin": 0.9}

Items have one table of embeddings for both towers. The left tower takes the mean over the embeddings of the items
before, a dense layer of that width and ReLU; the right one looks an item up. An example's loss is
max(0, margin - cosine), the hinge of its one true pair, so that a client needs no other items. Alone it is least where
all vectors are equal; `"central": {"spreadout": weight}` of a task gives the server of a mixed method the loss

    weight |off-diagonal cosines of all pairs of items|_F

which spreads them out and needs no data. With N items there are embedding (N + 1) + embedding (embedding + 1)
parameters, those of an item "none" included. Entries of the table start uniform in [-0.05, 0.05], as Keras's do.

Source: appendices C.2.3 and C.3 of "Mixed Federated Learning" (Augenstein et al. 2022), which gives neither the margin
nor the width; "Federated Learning with Only Positive Labels" (Yu et al. 2020) has such a loss.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainers.hyperparameters import tunable
from trainers.models._network import Network
from trainers.models._problem import outputs_of, settings_from
from trainers.models._targets import OwnLosses
from trainers.problem import Examples, Problem, Regulariser

TARGETS = "pairs"
PARTS = True
REGULARISERS = ("spreadout",)

_LEAST = 1e-12  # least length to divide by
_START = 0.05  # largest entry of the table


@dataclass(frozen=True)
class Settings:
    """The settings of the model."""

    embedding: int = tunable(16, low=1, high=8192, traced=False, unit="numbers", doc="of an item")
    margin: float = tunable(0.9, low=-1, high=1, traced=False, doc="cosine of a pair from which its loss is 0")


class _Towers(nn.Module):
    """Cosines of the items before with all items, or with one item of each example, which needs no other items."""

    def __init__(self, width: int, items: int) -> None:
        super().__init__()
        self.items = nn.Embedding(items + 1, width)
        nn.init.uniform_(self.items.weight, -_START, _START)
        self.dense = nn.Linear(width, width)

    def forward(self, before: Tensor, item: Tensor | None = None) -> Tensor:
        """(examples, items) cosines of (examples, context) int64, 0 for no item; or (examples,), with one item each."""
        mask = (before != 0).to(self.items.weight.dtype)[..., None]
        mean = (self.items(before) * mask).sum(-2) / mask.sum(-2).clamp(min=1)
        left = F.normalize(self.dense(mean).relu(), dim=-1, eps=_LEAST)
        if item is None:
            return left @ self.directions().T
        return (left * F.normalize(self.items(item + 1), dim=-1, eps=_LEAST)).sum(-1)

    def directions(self) -> Tensor:
        """(items, width) of length one."""
        return F.normalize(self.items.weight[1:], dim=-1, eps=_LEAST)


class _Spreadout(_Towers):
    """The loss of the table alone, for every example.

    Args:
        weight: multiplies the norm.
        width: width of the embeddings.
        items: number of items.
    """

    def __init__(self, weight: float, width: int, items: int) -> None:
        super().__init__(width, items)
        self.weight = weight

    def forward(self, before: Tensor, item: Tensor | None = None) -> Tensor:
        """(examples, 1).

        The squares of all N^2 cosines sum to those of the width^2 products of the table with itself.
        """
        directions = self.directions()
        squares = (directions.T @ directions).square().sum() - directions.square().sum(1).square().sum()
        return (self.weight * squares.clamp(min=_LEAST).sqrt()).expand(len(before), 1)


def build(problem: Problem, dtype: torch.dtype, device: torch.device) -> Network:
    """The model of a problem with histories of items, or of the server's part of it without data."""
    settings = settings_from(Settings, problem)
    if not isinstance(problem.train, Regulariser):
        items = outputs_of(problem)
        return Network(problem, lambda: _Towers(settings.embedding, items), dtype, device, by_item=True)
    items, weight = int(problem.model_settings["classes"]), problem.train.weight
    none = np.zeros(1, np.int64)
    pair = Examples(none[:, None], none, offsets=none, sizes=none + 1, kind="pairs")
    network = Network(
        replace(problem, train=pair), lambda: _Spreadout(weight, settings.embedding, items), dtype, device, OwnLosses(1)
    )
    network.examples = None  # the loss has no examples to count
    return network
