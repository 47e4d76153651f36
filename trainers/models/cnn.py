"""A small convolutional network: convolutions with max-pooling by 2 and ReLU, dense layers, the loss of the targets.

    "model": {"name": "cnn", "filters": [16, 32], "kernel": 5, "padding": "same", "pooling": "each", "groups": 0,
              "dense": [256], "dropout": [0.0], "crop": 0, "flip": false}
    "model": {"name": "cnn", "preset": "femnist_dropout"}

The inputs are images (channels, height, width). Convolutions keep the size with padding `same`, and cut off kernel - 1
pixels with `none`; pooling halves it (rounded down), after each convolution, the last one alone, or none. It comes
before ReLU, which is equivalent and cheaper. `groups` above 0 puts group normalisation after each convolution. `dense`
and `dropout` are numbers or lists; dense 0 leaves the last layer alone.

A `preset` has the settings of a paper, and other keys change it. Numbers of parameters:

    femnist          1,690,046 with 28 x 28 and 62 classes   McMahan et al. 2017; Charles and Konecny 2020
    femnist_dropout  1,206,590 with 28 x 28 and 62 classes   Reddi et al. 2021
    leaf             6,603,710 with 28 x 28 and 62 classes   Caldas et al. 2018
    cifar10          1,068,298 with 3 x 24 x 24 and 10 classes            McMahan et al. 2017, not normalised
    niid_bench       62,006 with 3 x 32 x 32 and 10 classes   Li et al. 2022
    omniglot         112,261 with 28 x 28 and 5 classes      Finn et al. 2017, with group instead of batch normalisation

In training, `dropout` drops units before each dense layer and the last one, `crop` is the largest shift of an image in
pixels in each direction, and `flip` mirrors half of the images. Parameters start as PyTorch's layers do, uniform in
+- 1 / sqrt(inputs of a unit), drawn from the trial's seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from trainers.errors import SpecError
from trainers.hyperparameters import check, join, tunable
from trainers.models._network import Network
from trainers.models._problem import image_shape, outputs_of, settings_from
from trainers.problem import Problem
from trainers.spelling import hint
from trainers.values import shown

TARGETS = ("classes", "tags", "numbers")
PARTS = True
DTYPES = ("float32", "float64", "bfloat16")
_MOST_UNITS = 10_000_000
_PRESETS: Mapping[str, Mapping[str, Any]] = {
    "femnist": {"filters": [32, 64], "dense": [512]},
    "femnist_dropout": {
        "filters": [32, 64],
        "kernel": 3,
        "padding": "none",
        "pooling": "last",
        "dense": [128],
        "dropout": [0.25, 0.5],
    },
    "leaf": {"filters": [32, 64], "dense": [2048]},
    "cifar10": {"filters": [64, 64], "dense": [384, 192]},
    "niid_bench": {"filters": [6, 16], "padding": "none", "dense": [120, 84]},
    "omniglot": {"filters": [64] * 4, "kernel": 3, "groups": 4, "dense": [0]},
}


@dataclass(frozen=True)
class Settings:
    """The settings of the model."""

    filters: tuple[int, ...] = tunable(
        (16, 32), low=1, high=_MOST_UNITS, longest=1000, traced=False, doc="of each convolution"
    )
    kernel: int = tunable(5, choices=(1, 3, 5, 7), traced=False, unit="pixels", doc="side of the convolutions")
    padding: str = tunable("same", choices=("same", "none"), traced=False, doc="of the convolutions")
    pooling: str = tunable("each", choices=("each", "last", "none"), traced=False, doc="after which convolutions")
    groups: int = tunable(
        0, low=0, high=_MOST_UNITS, traced=False, limit="0 is none", doc="of channels, for group normalisation"
    )
    dense: tuple[int, ...] = tunable(
        (256,),
        low=0,
        high=_MOST_UNITS,
        longest=1000,
        traced=False,
        unit="units",
        limit="0 is none",
        doc="of each dense layer before the last",
    )
    dropout: tuple[float, ...] = tunable(
        (0.0,),
        low=0,
        high=1,
        high_open=True,
        longest=1000,
        traced=False,
        limit="0 is none",
        doc="of the inputs of each dense layer and of the last one; a number for all",
    )
    crop: int = tunable(
        0, low=0, high=256, traced=False, unit="pixels", limit="0 is none", doc="random shifts of images"
    )
    flip: bool = tunable(False, traced=False, doc="random horizontal mirroring of images")

    @property
    def hidden(self) -> tuple[int, ...]:
        """Units of each dense layer before the last."""
        return tuple(units for units in self.dense if units)

    @property
    def drops(self) -> tuple[float, ...]:
        """Dropout of the inputs of each dense layer, the last one included."""
        layers = len(self.hidden) + 1
        return self.dropout * layers if len(self.dropout) == 1 else self.dropout


class _ChannelsFlat(nn.Module):
    """Images as rows of numbers, channels last, which is their order in memory: no copy."""

    def forward(self, images: Tensor) -> Tensor:
        """(examples, height * width * channels)."""
        return images.permute(0, 2, 3, 1).flatten(1)


def parse(document: dict[str, Any], path: str) -> dict[str, Any]:
    """The settings of a document, with those of its preset filled in.

    Args:
        document: settings of the model.
        path: dotted path of the model.

    Raises:
        SpecError: a setting is unknown or invalid, or they do not fit together.
    """
    preset = document.pop("preset", None)
    if preset is not None and (not isinstance(preset, str) or preset not in _PRESETS):
        key_path = join(path, "preset")
        raise SpecError(f"{key_path}: no preset {shown(preset)}: {hint(str(preset), _PRESETS)}", key_path)
    values = check(
        Settings, _listed({**_PRESETS.get(preset or "", {}), **document}), path, other_keys=("name", "preset")
    )
    settings = Settings(**values)
    if len(settings.drops) != len(settings.hidden) + 1:
        key_path = join(path, "dropout")
        raise SpecError(
            f"{key_path} must be a number, or {len(settings.hidden) + 1} numbers, one for each dense layer and "
            f"the last, got {len(settings.dropout)}",
            key_path,
        )
    for filters in settings.filters:
        if settings.groups and filters % settings.groups:
            key_path = join(path, "groups")
            raise SpecError(f"{key_path} must divide all filters, got groups={settings.groups} for {filters}", key_path)
    return {key: list(item) if isinstance(item, tuple) else item for key, item in values.items()}


def build(problem: Problem, dtype: torch.dtype, device: torch.device) -> Network:
    """The model of a problem with images as inputs.

    Raises:
        SpecError: the inputs are not images, or are too small.
    """
    model_settings = {**problem.model_settings, **_listed(problem.model_settings)}
    settings = settings_from(Settings, Problem(problem.model, problem.train, model_settings=model_settings))
    channels, height, width = image_shape(problem, "cnn")
    height, width = (_side(side, settings, (height, width)) for side in (height, width))
    flat = settings.filters[-1] * height * width
    sizes = (flat, *settings.hidden, outputs_of(problem))

    def make() -> nn.Module:
        layers: list[nn.Module] = []
        padding = settings.kernel // 2 if settings.padding == "same" else 0
        for number, (incoming, outgoing) in enumerate(pairwise((channels, *settings.filters))):
            layers.append(nn.Conv2d(incoming, outgoing, settings.kernel, padding=padding))
            if settings.groups:
                layers.append(nn.GroupNorm(settings.groups, outgoing))
            if _pools(settings, number):
                layers.append(nn.MaxPool2d(2))
            layers.append(nn.ReLU())
        layers.append(_ChannelsFlat())
        for drop, (incoming, outgoing) in zip(settings.drops, pairwise(sizes), strict=True):
            layers += [*[nn.Dropout(drop)] * (drop > 0), nn.Linear(incoming, outgoing), nn.ReLU()]
        return nn.Sequential(*layers[:-1])

    return Network(problem, make, dtype, device, crop=settings.crop, flip=settings.flip)


def _listed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with lists in place of single numbers."""
    alone = {key: settings[key] for key in ("dense", "dropout") if key in settings}
    return {**settings, **{key: value if isinstance(value, list | tuple) else [value] for key, value in alone.items()}}


def _pools(settings: Settings, number: int) -> bool:
    return settings.pooling == "each" or (settings.pooling == "last" and number + 1 == len(settings.filters))


def _side(side: int, settings: Settings, whole: tuple[int, int]) -> int:
    """The side of an image after the convolutions."""
    for number in range(len(settings.filters)):
        side -= 0 if settings.padding == "same" else settings.kernel - 1
        side = side // 2 if _pools(settings, number) else side
        if side < 1:
            raise SpecError(
                f"task.model.filters must be at most {number} for images of {whole[0]} x {whole[1]}, which each "
                f"convolution makes smaller, got {len(settings.filters)}",
                "task.model.filters",
            )
    return side
