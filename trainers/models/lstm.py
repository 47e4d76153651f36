"""A recurrent network for text: embeddings, layers of LSTM, a dense layer of scores at every position.

    "model": {"name": "lstm", "embedding": 8, "width": 256, "depth": 2, "projection": 0}

The defaults are the model for Shakespeare of "Adaptive Federated Optimization" (Reddi et al. 2021), after LEAF (Caldas
et al. 2018); PyTorch's LSTM has a second bias for each gate. With V tokens, the first of `depth` layers has
4 width (embedding + width + 2) parameters and each other one 4 width (2 width + 2), beside V embedding for the
embeddings and V (width + 1) for the scores. `projection` above 0 puts a dense layer without activation before the
scores; with embedding 96, width 670, depth 1 and projection 96 it is the same paper's next-word model for Stack
Overflow. Every window starts from zeros. Parameters start as PyTorch's layers do, drawn from the trial's seed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainers.hyperparameters import tunable
from trainers.models._network import Network
from trainers.models._problem import outputs_of, settings_from
from trainers.problem import Problem

TARGETS = "tokens"
PARTS = True
DTYPES = ("float32", "float64", "bfloat16")


@dataclass(frozen=True)
class Settings:
    """The settings of the model."""

    embedding: int = tunable(8, low=1, high=8192, traced=False, unit="numbers", doc="of a token")
    width: int = tunable(256, low=1, high=8192, traced=False, unit="units", doc="of each layer")
    depth: int = tunable(2, low=1, high=64, traced=False, unit="layers", doc="one after another")
    projection: int = tunable(
        0, low=0, high=8192, traced=False, unit="units", limit="0 is none", doc="of a dense layer before the scores"
    )


class _Recurrent(nn.Module):
    """Scores of the next token at every position."""

    def __init__(self, settings: Settings, tokens: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, settings.embedding)
        self.layers = nn.LSTM(settings.embedding, settings.width, settings.depth, batch_first=True)
        self.projection = nn.Linear(settings.width, settings.projection) if settings.projection else nn.Identity()
        self.scores = nn.Linear(settings.projection or settings.width, tokens)

    def forward(self, tokens: Tensor) -> Tensor:
        """(examples, positions, tokens) of (examples, positions) int64."""
        scores: Tensor = self.scores(self.projection(self.layers(self.embedding(tokens))[0]))
        return scores


def build(problem: Problem, dtype: torch.dtype, device: torch.device) -> Network:
    """The model of a problem with tokens as inputs and targets."""
    settings, tokens = settings_from(Settings, problem), outputs_of(problem)
    return Network(problem, lambda: _Recurrent(settings, tokens), dtype, device)
