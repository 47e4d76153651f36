"""A decoder-only transformer for text: pre-norm blocks, rotary positions, embeddings tied to the scores.

    "model": {"name": "transformer", "width": 64, "depth": 2, "heads": 4}

Each block adds causal attention over `heads` heads, then a perceptron with 4 width hidden units and GELU, each of them
after a layer norm. Linear layers have no biases and norms only scales: with V tokens the model has
V width + depth (12 width^2 + 2 width) + width parameters. How far it looks back is the `context` of the task.

Positions are rotations of queries and keys by angles position 10000^(-2 i heads / width) (Su et al. 2021, "RoFormer").
Parameters start as PyTorch's layers do, drawn from the trial's seed, except that embeddings are normal with standard
deviation 0.02 and the last layer of each addition is divided by sqrt(2 depth) (Radford et al. 2019, "GPT-2").
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainers.errors import SpecError
from trainers.hyperparameters import tunable
from trainers.models._network import Network
from trainers.models._problem import examples_of, outputs_of, settings_from
from trainers.problem import Problem

TARGETS = "tokens"
PARTS = True
DTYPES = ("float32", "float64", "bfloat16")
_BASE = 10000.0
_EMBEDDED = 0.02  # standard deviation


@dataclass(frozen=True)
class Settings:
    """The settings of the model."""

    width: int = tunable(64, low=2, high=8192, traced=False, unit="numbers", doc="of a token between blocks")
    depth: int = tunable(2, low=1, high=256, traced=False, unit="blocks", doc="one after another")
    heads: int = tunable(4, low=1, high=1024, traced=False, doc="of attention; width / heads is an even number")


class _Attention(nn.Module):
    """Causal attention with rotary positions."""

    cosines: Tensor
    sines: Tensor

    def __init__(self, width: int, heads: int, positions: int) -> None:
        super().__init__()
        self.heads = heads
        self.inputs, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        rates = _BASE ** (-torch.arange(0, width // heads, 2, dtype=torch.float64) * heads / width)
        angles = torch.arange(positions, dtype=torch.float64)[:, None] * rates
        self.register_buffer("cosines", angles.cos().float())  # (positions, width / heads / 2)
        self.register_buffer("sines", angles.sin().float())

    def forward(self, hidden: Tensor) -> Tensor:
        """(examples, positions, width)."""
        split = self.inputs(hidden).unflatten(-1, (3, self.heads, -1))
        queries, keys, values = split.movedim(-3, 0).transpose(-2, -3).unbind(0)  # (examples, heads, positions, ...)
        queries, keys = self._turned(queries), self._turned(keys)
        mixed = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        out: Tensor = self.out(mixed.transpose(-2, -3).flatten(-2))
        return out

    def _turned(self, vectors: Tensor) -> Tensor:
        first, second = vectors.chunk(2, -1)
        cosines, sines = self.cosines, self.sines
        return torch.cat((first * cosines - second * sines, second * cosines + first * sines), -1)


class _Block(nn.Module):
    """Adds attention, then a perceptron."""

    def __init__(self, width: int, heads: int, positions: int, depth: int) -> None:
        super().__init__()
        self.before_attention, self.before_perceptron = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.attention = _Attention(width, heads, positions)
        self.inner, self.outer = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)
        with torch.no_grad():
            for last in (self.attention.out, self.outer):
                last.weight /= (2 * depth) ** 0.5

    def forward(self, hidden: Tensor) -> Tensor:
        """(examples, positions, width)."""
        hidden = hidden + self.attention(self.before_attention(hidden))
        out: Tensor = hidden + self.outer(F.gelu(self.inner(self.before_perceptron(hidden))))
        return out


class _Transformer(nn.Module):
    """Scores of the next token at every position."""

    def __init__(self, settings: Settings, tokens: int, positions: int) -> None:
        super().__init__()
        width, depth = settings.width, settings.depth
        self.embedding = nn.Embedding(tokens, width)
        nn.init.normal_(self.embedding.weight, std=_EMBEDDED)
        self.blocks = nn.ModuleList(_Block(width, settings.heads, positions, depth) for _ in range(depth))
        self.norm = nn.LayerNorm(width, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """(examples, positions, tokens) of (examples, positions) int64."""
        hidden = self.embedding(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        return F.linear(self.norm(hidden), self.embedding.weight)


def build(problem: Problem, dtype: torch.dtype, device: torch.device) -> Network:
    """The model of a problem with tokens as inputs and targets.

    Raises:
        SpecError: the width cannot be divided among the heads.
    """
    settings = settings_from(Settings, problem)
    if settings.width % (2 * settings.heads):
        raise SpecError(
            f"task.model.heads must divide width into even parts, got heads={settings.heads} and "
            f"width={settings.width}",
            "task.model.heads",
        )
    tokens, positions = outputs_of(problem), examples_of(problem).inputs.shape[1]
    return Network(problem, lambda: _Transformer(settings, tokens, positions), dtype, device)
