"""A multilayer perceptron: dense layers with ReLU between them, and the loss of the targets.

    "model": {"name": "mlp", "hidden": [256], "dropout": 0.0}

Inputs of any shape are flattened. Categories with `embeddings` of the task are looked up in a table of vectors for each
column, which start from a normal distribution, as in PyTorch; an unknown category is the zero vector. In training,
`dropout` drops hidden units. Parameters, in order: the tables (categories, width), then weight (outputs, inputs) and
bias of each dense layer, which start as in PyTorch's Linear, uniform in +- 1 / sqrt(inputs), from the trial's seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from trainers.data.embeddings import Embedding
from trainers.errors import SpecError
from trainers.hyperparameters import tunable
from trainers.models._network import Network
from trainers.models._problem import examples_of, outputs_of, settings_from
from trainers.problem import Problem

TARGETS = ("classes", "tags", "numbers")
PARTS = True
EMBEDDINGS = True
DTYPES = ("float32", "float64", "bfloat16")
_MOST_UNITS = 100_000_000


@dataclass(frozen=True)
class Settings:
    """The settings of the model."""

    hidden: tuple[int, ...] = tunable(
        (256,), low=1, high=_MOST_UNITS, longest=1000, traced=False, unit="units", doc="of each hidden layer"
    )
    dropout: float = tunable(0.0, low=0, high=1, high_open=True, traced=False, limit="0 is none", doc="of hidden units")


class _Tables(nn.Module):
    """The features that are not embedded, then the vectors of the embedded ones.

    Args:
        features: number of features of an example.
        embedded: the features that are category numbers, from 1 on; 0 is an unknown category.
    """

    others: Tensor

    def __init__(self, features: int, embedded: Sequence[Embedding]) -> None:
        super().__init__()
        self.columns = [embedding.feature for embedding in embedded]
        others = [feature for feature in range(features) if feature not in self.columns]
        self.register_buffer("others", torch.tensor(others, dtype=torch.int64), persistent=False)
        self.tables = nn.ModuleList(nn.Embedding(embedding.categories, embedding.width) for embedding in embedded)

    def forward(self, inputs: Tensor) -> Tensor:
        """(examples, features and numbers of vectors) of (examples, features)."""
        parts = [inputs.index_select(1, self.others)]
        for column, table in zip(self.columns, self.tables, strict=True):
            numbers = inputs[:, column].long()
            present = (numbers > 0).to(inputs.dtype)[:, None]
            parts.append(table((numbers - 1).clamp(min=0)) * present)
        return torch.cat(parts, 1)


def build(problem: Problem, dtype: torch.dtype, device: torch.device) -> Network:
    """The model of a problem."""
    settings = settings_from(Settings, problem)
    inputs = math.prod(examples_of(problem).inputs.shape[1:])
    embedded: Sequence[Embedding] = problem.model_settings.get("embedded", ())
    if embedded and dtype == torch.bfloat16:
        raise SpecError("task.embeddings must be left out with dtype bfloat16, which rounds categories", "dtype")
    features = inputs
    inputs += sum(embedding.width - 1 for embedding in embedded)
    sizes = [inputs, *settings.hidden]
    outputs = outputs_of(problem)

    def make() -> nn.Module:
        layers: list[nn.Module] = [_Tables(features, embedded) if embedded else nn.Flatten()]
        for incoming, outgoing in pairwise(sizes):
            layers += [nn.Linear(incoming, outgoing), nn.ReLU()]
            if settings.dropout:
                layers.append(nn.Dropout(settings.dropout))
        return nn.Sequential(*layers, nn.Linear(sizes[-1], outputs))

    return Network(problem, make, dtype, device)
