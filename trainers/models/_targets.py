"""What the targets of examples mean for a network: the shape of its scores, its loss, and its metrics."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from trainers.engine.memory import owned
from trainers.problem import Examples, Problem

_NARROW = (np.dtype(np.uint8), np.dtype(np.int16), np.dtype(np.int32))


@dataclass(frozen=True)
class ClassTargets:
    """Class numbers: scores (examples, classes), cross-entropy.

    Args:
        outputs: number of classes.
    """

    outputs: int
    classifies = True
    positions = 0
    axes: ClassVar[tuple[str, ...]] = ("classes",)

    def held(self, targets: NDArray[Any], like: Tensor) -> Tensor:
        """The targets on the device of `like`, (rows, ...)."""
        return torch.as_tensor(targets, dtype=torch.int64, device=like.device)

    def wanted(self, held: Tensor) -> Tensor:
        """Some of `held`, as losses take them."""
        return held

    def losses(self, scores: Tensor, wanted: Tensor) -> Tensor:
        """The loss of each example."""
        return F.cross_entropy(scores, wanted, reduction="none")

    def right(self, scores: Tensor, wanted: Tensor, like: Tensor) -> Tensor:
        """The share of each example's predictions that are correct, in the type of `like`."""
        return (scores.argmax(1) == wanted).to(like)

    def metrics(self, loss: Tensor) -> dict[str, Tensor]:
        """Further metrics, which follow from the mean test loss (T,)."""
        return {}


@dataclass(frozen=True)
class NumberTargets(ClassTargets):
    """Numbers: scores (examples, numbers), half the squared error as in linear regression.

    Args:
        outputs: numbers of an example.
    """

    classifies = False
    axes = ("targets",)

    def held(self, targets: NDArray[Any], like: Tensor) -> Tensor:
        """(rows, outputs)."""
        return owned(targets, like).view(len(targets), -1)

    def losses(self, scores: Tensor, wanted: Tensor) -> Tensor:
        """Half the squared error."""
        return 0.5 * (scores - wanted).square().sum(-1)


@dataclass(frozen=True)
class TokenTargets(ClassTargets):
    """A token for each position: scores (examples, positions, tokens), the positions' mean cross-entropy in nats.

    Targets are held in the type in which they come, because texts are long.

    Args:
        outputs: size of the vocabulary.
        positions: targets of an example.
        bytes_per_token: of the test examples' targets.
    """

    positions: int = 1
    bytes_per_token: float = 1.0
    axes = ("positions", "tokens")

    def held(self, targets: NDArray[Any], like: Tensor) -> Tensor:
        """(rows, positions)."""
        kept = targets if targets.dtype in _NARROW else targets.astype(np.int64)
        return torch.as_tensor(kept, device=like.device)

    def wanted(self, held: Tensor) -> Tensor:
        """As int64."""
        return held.long()

    def losses(self, scores: Tensor, wanted: Tensor) -> Tensor:
        """Nats a token."""
        each = F.cross_entropy(scores.flatten(0, 1), wanted.flatten(), reduction="none")
        return each.view(wanted.shape).mean(1)

    def right(self, scores: Tensor, wanted: Tensor, like: Tensor) -> Tensor:
        """The share of correct tokens."""
        return (scores.argmax(2) == wanted).to(like).mean(1)

    def metrics(self, loss: Tensor) -> dict[str, Tensor]:
        """test_perplexity, and test_bits_per_byte, which vocabularies have in common."""
        return {"test_perplexity": loss.exp(), "test_bits_per_byte": loss / (math.log(2) * self.bytes_per_token)}


def targets_of(problem: Problem, train: Examples) -> ClassTargets:
    """The targets of a problem.

    Args:
        problem: the problem; "bytes_per_token" in its model_settings is 1 by default.
        train: its examples.
    """
    if train.kind == "numbers":
        return NumberTargets(math.prod(train.targets.shape[1:]))
    if train.kind == "tokens":
        bytes_per_token = float(problem.model_settings.get("bytes_per_token", 1.0))
        return TokenTargets(classes_of(problem, train), train.targets.shape[1], bytes_per_token)
    return ClassTargets(classes_of(problem, train))


def classes_of(problem: Problem, train: Examples) -> int:
    """The number of classes: as given by the task, else the largest class plus one."""
    return int(problem.model_settings.get("classes") or train.targets.max() + 1)


def held_whole(inputs: NDArray[Any], like: Tensor) -> Tensor:
    """Whole numbers on a device, in their own type if it is short; int64 else.

    Args:
        inputs: the numbers, below 2^63.
        like: a tensor with the device.
    """
    whole = inputs if inputs.dtype in _NARROW else inputs.astype(np.int64)
    return owned(whole, torch.empty(0, dtype=torch.as_tensor(whole[:0]).dtype, device=like.device))
