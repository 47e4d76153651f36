"""The loss of each kind of targets, with its derivatives with respect to the scores."""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

_FEW_CLASSES = 16


class Loss(Protocol):
    """A loss of scores against targets of the same shape; `axis` is the axis of outputs, the others are examples."""

    def losses(self, scores: Tensor, targets: Tensor, axis: int = -2) -> Tensor:
        """The losses, without the axis of the outputs."""
        ...

    def slopes_(self, scores: Tensor, targets: Tensor, axis: int = -2) -> Tensor:
        """The derivatives of the losses with respect to the scores; may overwrite the scores."""
        ...

    def bend(self, scores: Tensor, along: Tensor, axis: int = -2) -> Tensor:
        """The second derivatives with respect to the scores, times a change of the scores; a new tensor."""
        ...


class KindLoss(Loss, Protocol):
    """The loss of a kind of targets, which hand-written oracles of networks use too."""

    def weighted_slopes(self, scores: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """Derivatives of the losses times weights (..., examples) by scores (..., examples, outputs); a new tensor."""
        ...


class CrossEntropy:
    """log sum exp(scores) - score of the class.

    Targets are 1 for the class and 0 elsewhere; or the numbers of the classes, int64, without the axis of the outputs,
    which must then be the last one of the scores.
    """

    def losses(self, scores: Tensor, targets: Tensor, axis: int = -2) -> Tensor:
        """The losses, without the axis of the outputs."""
        logs = torch.log_softmax(scores, axis)
        if targets.dtype == torch.int64:
            return -logs.gather(-1, targets[..., None])[..., 0]
        return -(logs * targets).sum(axis)

    def slopes_(self, scores: Tensor, targets: Tensor, axis: int = -2) -> Tensor:
        """Derivatives with respect to the scores; may overwrite the scores."""
        return _shares(scores, axis).sub_(targets)

    def weighted_slopes(self, scores: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """Derivatives of the losses times weights (..., examples) by scores (..., examples, outputs); a new tensor."""
        slopes = torch.softmax(scores, -1).mul_(weights[..., None])
        return slopes.scatter_add_(-1, targets[..., None], -weights[..., None])

    def bend(self, scores: Tensor, along: Tensor, axis: int = -2) -> Tensor:
        """Second derivatives times a change of the scores."""
        shares = torch.softmax(scores, axis)
        return shares * (along - (shares * along).sum(axis, keepdim=True))


class HalfSquares:
    """0.5 |scores - targets|^2."""

    def losses(self, scores: Tensor, targets: Tensor, axis: int = -2) -> Tensor:
        """The losses, without the axis of the outputs."""
        return 0.5 * (scores - targets).square().sum(axis)

    def slopes_(self, scores: Tensor, targets: Tensor, axis: int = -2) -> Tensor:
        """Derivatives with respect to the scores; may overwrite the scores."""
        return scores.sub_(targets)

    def weighted_slopes(self, scores: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """Derivatives of the losses times weights (..., examples) by scores (..., examples, outputs); a new tensor."""
        return self.slopes_(scores.clone(), targets, -1).mul_(weights[..., None])

    def bend(self, scores: Tensor, along: Tensor, axis: int = -2) -> Tensor:
        """Second derivatives times a change of the scores; a new tensor."""
        return along.clone()


class SigmoidCrossEntropy:
    """The sum of -log sigmoid(score) over the tags of the example, and of -log sigmoid(-score) over all other tags.

    Targets are 1 or True for tags of the example, and 0 or False for others.
    """

    def losses(self, scores: Tensor, targets: Tensor, axis: int = -2) -> Tensor:
        """The losses, without the axis of the outputs."""
        return -F.logsigmoid(torch.where(targets.bool(), scores, -scores)).sum(axis)

    def slopes_(self, scores: Tensor, targets: Tensor, axis: int = -2) -> Tensor:
        """Derivatives with respect to the scores; may overwrite the scores."""
        return scores.sigmoid_().sub_(targets.to(scores.dtype))

    def weighted_slopes(self, scores: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """Derivatives of the losses times weights (..., examples) by scores (..., examples, outputs); a new tensor."""
        return self.slopes_(scores.clone(), targets, -1).mul_(weights[..., None])

    def bend(self, scores: Tensor, along: Tensor, axis: int = -2) -> Tensor:
        """Second derivatives times a change of the scores."""
        shares = torch.sigmoid(scores)
        return shares * torch.sigmoid(-scores) * along


def _shares(scores: Tensor, axis: int) -> Tensor:
    """The softmax of scores; with few outputs in the last axis, torch is up to 9 times as slow as through a copy."""
    if axis == -1 and scores.shape[-1] < _FEW_CLASSES:
        return torch.softmax(scores.movedim(-1, 0), 0).movedim(0, -1)
    return torch.softmax(scores, axis)
