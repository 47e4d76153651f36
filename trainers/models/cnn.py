"""A small convolutional network: convolutions with max-pooling by 2 and ReLU, a dense layer, cross-entropy.

    "model": {"name": "cnn", "filters": [16, 32], "kernel": 5, "dense": 256, "dropout": 0.0, "crop": 0, "flip": false}

The inputs are images (channels, height, width) with sides of at least 2^convolutions. Convolutions keep the size;
pooling halves it (rounded down) and comes before ReLU, which is equivalent and cheaper. With 28 x 28 images and 62
classes the defaults have 430,846 parameters. filters [32, 64] and dense 512, with 1,690,046 parameters, are the FEMNIST
model of "On the Outsized Importance of Learning Rates in Local Update Methods" (Charles, Konecny 2020).

In training, `dropout` drops units before both dense layers, `crop` is the largest shift of an image in pixels in each
direction, and `flip` mirrors half of the images. Parameters start as PyTorch's layers do, uniform in
+- 1 / sqrt(inputs of a unit), drawn from the trial's seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from trainers.errors import SpecError
from trainers.hyperparameters import tunable
from trainers.models._by_hand import ByHand
from trainers.models._layers import ConvolutionLayer, DenseLayer
from trainers.models._network import Network, classes_of, image_shape, settings_from
from trainers.problem import Problem

PARTS = True
DTYPES = ("float32", "float64", "bfloat16")
_MOST_UNITS = 10_000_000


@dataclass(frozen=True)
class Settings:
    """The settings of the model."""

    filters: tuple[int, ...] = tunable(
        (16, 32), low=1, high=_MOST_UNITS, longest=1000, traced=False, doc="of each convolution"
    )
    kernel: int = tunable(5, choices=(1, 3, 5, 7), traced=False, unit="pixels", doc="side of the convolutions")
    dense: int = tunable(
        256, low=1, high=_MOST_UNITS, traced=False, unit="units", doc="of the dense layer before the last"
    )
    dropout: float = tunable(0.0, low=0, high=1, high_open=True, traced=False, limit="0 is none", doc="of dense inputs")
    crop: int = tunable(
        0, low=0, high=256, traced=False, unit="pixels", limit="0 is none", doc="random shifts of images"
    )
    flip: bool = tunable(False, traced=False, doc="random horizontal mirroring of images")


class _ChannelsFlat(nn.Module):
    """Images as rows of numbers, channels last, which is their order in memory: no copy."""

    def forward(self, images: Tensor) -> Tensor:
        """(examples, height * width * channels)."""
        return images.permute(0, 2, 3, 1).flatten(1)


def build(problem: Problem, dtype: torch.dtype, device: torch.device) -> Network:
    """The model of a problem with images as inputs and class numbers as targets.

    Raises:
        SpecError: the inputs are not images, or are too small.
    """
    settings = settings_from(Settings, problem)
    channels, height, width = image_shape(problem, "cnn")
    halvings = len(settings.filters)
    if min(height, width) >> halvings == 0:
        raise SpecError(
            f"task.model.filters must be at most {min(height, width).bit_length() - 1} for images of "
            f"{height} x {width}, which each convolution halves, got {halvings}",
            "task.model.filters",
        )
    flat = settings.filters[-1] * (height >> halvings) * (width >> halvings)
    classes = classes_of(problem)

    def make() -> nn.Module:
        layers: list[nn.Module] = []
        for incoming, outgoing in pairwise((channels, *settings.filters)):
            convolution = nn.Conv2d(incoming, outgoing, settings.kernel, padding=settings.kernel // 2)
            layers += [convolution, nn.MaxPool2d(2), nn.ReLU()]
        dropouts = [[nn.Dropout(settings.dropout)] if settings.dropout else [] for _ in range(2)]
        layers += [_ChannelsFlat(), *dropouts[0], nn.Linear(flat, settings.dense), nn.ReLU()]
        return nn.Sequential(*layers, *dropouts[1], nn.Linear(settings.dense, classes))

    model = Network(problem, make, dtype, device, crop=settings.crop, flip=settings.flip)
    if not model.whole_trained:
        return model
    convolutions = [ConvolutionLayer(settings.kernel)] * halvings
    dropouts = [*[None] * (halvings - 1), *model.dropouts] if model.dropouts else []
    by_hand = ByHand(model.layout, [*convolutions, DenseLayer(), DenseLayer()], dropouts, model.rounding)
    model.oracles = {"by_hand": by_hand, **model.oracles}
    return model
