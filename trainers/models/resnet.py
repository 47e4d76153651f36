"""A residual network with group normalisation for small images: ResNet-18 as used for CIFAR.

The loss is that of the targets.

    "model": {"name": "resnet", "blocks": [2, 2, 2, 2], "width": 64, "groups": 2, "crop": 0, "flip": false}

A convolution of 3 x 3 without pooling, then stages of blocks of two such convolutions. Every stage but the first halves
the sides and doubles the channels, beginning with `width`; a convolution of 1 x 1 then carries the shortcut. The mean
over the image goes into the last layer. The defaults have 11,173,962 parameters with 10 classes and 11,220,132 with the
100 of CIFAR-100, as with batch normalisation; two groups are those of "Adaptive Federated Optimization" (Reddi et al.
2021), where `crop` cuts images to 24 x 24 instead of shifting them. The network is that of "Deep Residual Learning for
Image Recognition" (He et al. 2016), and the normalisation of "The Non-IID Data Quagmire of Decentralized Machine
Learning" (Hsieh et al. 2020).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainers.errors import SpecError
from trainers.hyperparameters import tunable
from trainers.models._network import Network
from trainers.models._problem import image_shape, outputs_of, settings_from
from trainers.problem import Problem

TARGETS = ("classes", "tags", "numbers")
PARTS = True
DTYPES = ("float32", "float64", "bfloat16")


@dataclass(frozen=True)
class Settings:
    """The settings of the model."""

    blocks: tuple[int, ...] = tunable(
        (2, 2, 2, 2), low=1, high=1000, longest=10, traced=False, doc="of each stage, two convolutions each"
    )
    width: int = tunable(64, low=1, high=8192, traced=False, unit="channels", doc="of the first stage")
    groups: int = tunable(2, low=1, high=8192, traced=False, doc="of channels, for group normalisation")
    crop: int = tunable(
        0, low=0, high=256, traced=False, unit="pixels", limit="0 is none", doc="random shifts of images"
    )
    flip: bool = tunable(False, traced=False, doc="random horizontal mirroring of images")


class _ResidualBlock(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, incoming: int, outgoing: int, stride: int, groups: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(incoming, outgoing, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outgoing, outgoing, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.GroupNorm(groups, outgoing) for _ in range(2))
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or incoming != outgoing:
            self.shortcut = nn.Sequential(
                nn.Conv2d(incoming, outgoing, 1, stride, bias=False), nn.GroupNorm(groups, outgoing)
            )

    def forward(self, images: Tensor) -> Tensor:
        """(examples, outgoing, height, width)."""
        hidden = F.relu(self.norms[0](self.first(images)))
        return F.relu(self.norms[1](self.second(hidden)) + self.shortcut(images))


class _Residual(nn.Module):
    """Scores of images."""

    def __init__(self, settings: Settings, channels: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(channels, settings.width, 3, 1, 1, bias=False), nn.GroupNorm(settings.groups, settings.width)
        )
        stages, incoming = [], settings.width
        for stage, count in enumerate(settings.blocks):
            outgoing = settings.width << stage
            for number in range(count):
                stride = 2 if stage and not number else 1
                stages.append(_ResidualBlock(incoming, outgoing, stride, settings.groups))
                incoming = outgoing
        self.stages = nn.Sequential(*stages)
        self.last = nn.Linear(incoming, outputs)

    def forward(self, images: Tensor) -> Tensor:
        """(examples, outputs)."""
        scores: Tensor = self.last(self.stages(F.relu(self.first(images))).mean((2, 3)))
        return scores


def build(problem: Problem, dtype: torch.dtype, device: torch.device) -> Network:
    """The model of a problem with images as inputs.

    Raises:
        SpecError: the inputs are not images, or the groups do not divide the channels.
    """
    settings, outputs = settings_from(Settings, problem), outputs_of(problem)
    channels, _, _ = image_shape(problem, "resnet")
    if settings.width % settings.groups:
        raise SpecError(
            f"task.model.groups must divide the width, got groups={settings.groups} for width={settings.width}",
            "task.model.groups",
        )

    def make() -> nn.Module:
        return _Residual(settings, channels, outputs)

    return Network(problem, make, dtype, device, crop=settings.crop, flip=settings.flip)
