"""What the targets of examples mean for a network: the shape of its scores, its loss, and its metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from trainers.engine.memory import owned, tensor_of
from trainers.models._losses import CrossEntropy, HalfSquares, KindLoss, SigmoidCrossEntropy
from trainers.models._measures import Measure, auc, bits_per_byte, macro_f1, mean_of, perplexity, ratio_of
from trainers.problem import PADDING, Examples, Problem
from trainers.target_kinds import Kind

_NARROW = (np.dtype(np.uint8), np.dtype(np.int16), np.dtype(np.int32))


@dataclass(frozen=True)
class ClassTargets:
    """Class numbers: scores (examples, classes), cross-entropy.

    Args:
        outputs: number of classes.
    """

    outputs: int
    name: ClassVar[Kind] = "classes"
    classifies = True
    positions = 0
    axes: ClassVar[tuple[str, ...]] = ("classes",)
    loss: ClassVar[KindLoss] = CrossEntropy()

    @property
    def measures(self) -> Mapping[str, Measure]:
        """The measures of a model on examples, by name."""
        return {"loss": mean_of("loss"), "accuracy": mean_of("right"), "macro_f1": macro_f1(), "auc": auc()}

    @property
    def validating(self) -> ClassTargets:
        """The targets of examples for validation."""
        return self

    def held(self, targets: NDArray[Any], like: Tensor) -> Tensor:
        """The targets on the device of `like`, (rows, ...)."""
        return tensor_of(targets, torch.int64, like.device)

    def wanted(self, targets: Tensor) -> Tensor:
        """Some targets, as losses take them."""
        return targets

    def losses(self, scores: Tensor, targets: Tensor) -> Tensor:
        """The loss of each example."""
        return F.cross_entropy(scores, targets, reduction="none")

    def column(self, name: str, scores: Tensor, targets: Tensor) -> Tensor:
        """A column of a measure: a value for each example.

        Args:
            name: as in `Measure.columns`.
            scores: (..., examples, outputs); of "loss", without further axes.
            targets: (examples, ...).

        Returns:
            (..., examples); of "right", the share of each example's predictions that are correct.
        """
        match name:
            case "loss":
                return self.losses(scores, targets)
            case "right":
                return scores.max(-1).indices == targets
            case "predicted":
                return scores.max(-1).indices
            case "class":
                return targets.expand(scores.shape[:-1])
            case "margin":
                return scores[..., 1].double() - scores[..., 0].double()
        raise KeyError(name)


@dataclass(frozen=True)
class NumberTargets(ClassTargets):
    """Numbers: scores (examples, numbers), half the squared error as in linear regression.

    Args:
        outputs: numbers of an example.
    """

    name: ClassVar[Kind] = "numbers"
    classifies = False
    axes = ("targets",)
    loss: ClassVar[KindLoss] = HalfSquares()

    @property
    def measures(self) -> Mapping[str, Measure]:
        """The loss."""
        return {"loss": mean_of("loss")}

    def held(self, targets: NDArray[Any], like: Tensor) -> Tensor:
        """(rows, outputs)."""
        return owned(targets, like).view(len(targets), -1)

    def losses(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Half the squared error."""
        return self.loss.losses(scores, targets, -1)


@dataclass(frozen=True)
class TagTargets(ClassTargets):
    """Any number of tags of an example: scores (examples, tags), the sum of the tags' sigmoid cross-entropies.

    A tag is predicted if its score is above 0. The k tags with the largest scores are those of precision and recall at
    k; of equal scores, the first.

    Args:
        outputs: number of tags.
        at: k; at most that number.
    """

    at: int = 1
    name: ClassVar[Kind] = "tags"
    classifies = False
    axes = ("tags",)
    loss: ClassVar[KindLoss] = SigmoidCrossEntropy()

    @property
    def measures(self) -> Mapping[str, Measure]:
        """Precision and recall count the tags of all examples together, as F1 does."""
        return {
            "loss": mean_of("loss"),
            "precision_at_k": mean_of("share_of_first"),
            "recall_at_k": ratio_of("hits_of_first", "tags"),
            "micro_f1": ratio_of("twice_hits", "predicted_and_tags"),
        }

    def held(self, targets: NDArray[Any], like: Tensor) -> Tensor:
        """(rows, outputs), True for tags of the example."""
        return tensor_of(targets, torch.bool, like.device)

    def losses(self, scores: Tensor, targets: Tensor) -> Tensor:
        """The sum over the tags."""
        return self.loss.losses(scores, targets, -1)

    def column(self, name: str, scores: Tensor, targets: Tensor) -> Tensor:
        """Numbers of tags of each example; "share_of_first" is the share of its first k that are its tags."""
        match name:
            case "loss":
                return self.losses(scores, targets)
            case "tags":
                return targets.sum(-1).expand(scores.shape[:-1])
            case "twice_hits":
                return 2 * ((scores > 0) & targets).sum(-1)
            case "predicted_and_tags":
                return (scores > 0).sum(-1) + targets.sum(-1)
            case "hits_of_first" | "share_of_first":
                first = scores.sort(dim=-1, descending=True, stable=True).indices[..., : self.at]
                hits = targets.expand(scores.shape).gather(-1, first).sum(-1)
                return hits if name == "hits_of_first" else hits.double() / self.at
        raise KeyError(name)


@dataclass(frozen=True)
class TokenTargets(ClassTargets):
    """A token for each position: scores (examples, positions, tokens), the positions' mean cross-entropy in nats.

    Targets are held in the type in which they come, because texts are long.

    Args:
        outputs: size of the vocabulary.
        positions: targets of an example.
        bytes_per_token: bytes per token of the test examples' targets.
        first_word: smallest token that accuracy counts, for sentences, which may end before the last position; 0 is for
            texts without ends and counts all tokens.
        bytes_to_validate: bytes per token of the targets of examples for validation; None is those of the test.
    """

    positions: int = 1
    bytes_per_token: float = 1.0
    first_word: int = 0
    bytes_to_validate: float | None = None
    name: ClassVar[Kind] = "tokens"
    axes = ("positions", "tokens")

    @property
    def measures(self) -> Mapping[str, Measure]:
        """bits_per_byte is comparable across vocabularies; sentences lack it: their unknown words have no bytes."""
        if self.first_word:
            loss, accuracy = ratio_of("summed_loss", "tokens"), ratio_of("right_words", "words")
            return {"loss": loss, "accuracy": accuracy, "perplexity": perplexity(loss)}
        return {
            "loss": mean_of("loss"),
            "accuracy": mean_of("right"),
            "perplexity": perplexity(mean_of("loss")),
            "bits_per_byte": bits_per_byte(self.bytes_per_token),
        }

    @property
    def validating(self) -> TokenTargets:
        """The targets of examples for validation, with their own bytes per token."""
        return self if self.bytes_to_validate is None else replace(self, bytes_per_token=self.bytes_to_validate)

    def held(self, targets: NDArray[Any], like: Tensor) -> Tensor:
        """(rows, positions)."""
        kept = targets if targets.dtype in _NARROW else targets.astype(np.int64)
        return tensor_of(kept, device=like.device)

    def wanted(self, targets: Tensor) -> Tensor:
        """Some targets, as int64."""
        return targets.long()

    def losses(self, scores: Tensor, targets: Tensor) -> Tensor:
        """The mean loss of each example's tokens, in nats."""
        if self.first_word:
            return self._summed(scores, targets) / (targets != PADDING).sum(1)
        losses = F.cross_entropy(scores.flatten(0, 1), targets.flatten(), reduction="none")
        return losses.view(targets.shape).mean(1)

    def _summed(self, scores: Tensor, targets: Tensor) -> Tensor:
        losses = F.cross_entropy(scores.flatten(0, 1), targets.flatten(), reduction="none", ignore_index=PADDING)
        return losses.view(targets.shape).sum(1)

    def column(self, name: str, scores: Tensor, targets: Tensor) -> Tensor:
        """The loss, or "right", the share of correct tokens; for sentences, sums over tokens or words."""
        match name:
            case "loss":
                return self.losses(scores, targets)
            case "right":
                return (scores.argmax(2) == targets).double().mean(1)
            case "summed_loss":
                return self._summed(scores, targets)
            case "tokens":
                return (targets != PADDING).sum(1)
            case "words":
                return (targets >= self.first_word).sum(1)
            case "right_words":
                return ((scores.argmax(2) == targets) & (targets >= self.first_word)).sum(1)
        raise KeyError(name)


@dataclass(frozen=True)
class PairTargets(ClassTargets):
    """The item that pairs with the inputs: scores (examples, items), max(0, margin - score of the item).

    The loss also takes only the scores of the examples' items, (examples,). The k items with the largest scores are
    those of recall at k, the share of examples whose item is among them; of equal scores, the first.

    Args:
        outputs: number of items.
        at: k; at most that number.
        margin: score of a pair from which its loss is 0.
    """

    at: int = 1
    margin: float = 1.0
    name: ClassVar[Kind] = "pairs"
    classifies = False
    axes = ("items",)

    @property
    def measures(self) -> Mapping[str, Measure]:
        """The loss, and recall."""
        return {"loss": mean_of("loss"), "recall_at_k": mean_of("hit")}

    def losses(self, scores: Tensor, targets: Tensor) -> Tensor:
        """The hinge of the true pair."""
        return (self.margin - _own(scores, targets)).clamp(min=0)

    def column(self, name: str, scores: Tensor, targets: Tensor) -> Tensor:
        """The loss, or "hit", 1 if the item is among the first k."""
        if name == "loss":
            return self.losses(scores, targets)
        if name != "hit":
            raise KeyError(name)
        target_scores, places = _own(scores, targets)[..., None], torch.arange(self.outputs, device=scores.device)
        ahead = (scores > target_scores) | ((scores == target_scores) & (places < targets[..., None]))
        return (ahead.sum(-1) < self.at).double()


@dataclass(frozen=True)
class OwnLosses(PairTargets):
    """No targets: the module's scores (examples, 1) are the losses."""

    def losses(self, scores: Tensor, targets: Tensor) -> Tensor:
        """The scores."""
        return scores[..., 0]


def _own(scores: Tensor, targets: Tensor) -> Tensor:
    """The score of each example's item."""
    if scores.dim() == targets.dim():
        return scores
    return scores.gather(-1, targets[..., None])[..., 0]


def targets_of(problem: Problem, train: Examples) -> ClassTargets:
    """The targets of a problem.

    Args:
        problem: the problem. In its model_settings, "bytes_per_token" is 1 by default, "bytes_to_validate" is
            bytes_per_token, "first_word" 0, and "at" the number of tags or items.
        train: its examples.
    """
    if train.kind == "numbers":
        return NumberTargets(math.prod(train.targets.shape[1:]))
    if train.kind == "tags":
        tags = train.targets.shape[1]
        return TagTargets(tags, min(int(problem.model_settings.get("at", tags)), tags))
    if train.kind == "pairs":
        items, settings = _classes(problem, train), problem.model_settings
        return PairTargets(items, min(int(settings.get("at", items)), items), float(settings.get("margin", 1.0)))
    if train.kind == "tokens":
        settings, positions = problem.model_settings, train.targets.shape[1]
        sizes = float(settings.get("bytes_per_token", 1.0)), int(settings.get("first_word", 0))
        return TokenTargets(_classes(problem, train), positions, *sizes, settings.get("bytes_to_validate"))
    return ClassTargets(_classes(problem, train))


def held_whole(inputs: NDArray[Any], like: Tensor) -> Tensor:
    """Whole numbers on a device, in their own type if it is short, else as int64.

    Args:
        inputs: the numbers, below 2^63.
        like: a tensor with the device.
    """
    whole = inputs if inputs.dtype in _NARROW else inputs.astype(np.int64)
    return owned(whole, torch.empty(0, dtype=torch.as_tensor(whole[:0]).dtype, device=like.device))


def _classes(problem: Problem, train: Examples) -> int:
    """The number of classes: as given by the task, else the largest class plus one."""
    return int(problem.model_settings.get("classes") or train.targets.max() + 1)
