"""Three sets of images in the data folder, as bytes: read once per process, scaled only when a problem is built.

Labels and writers are read without decompressing the images, so that checking a task takes milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainers.data import archive
from trainers.data.federated import Federated, labelled
from trainers.data.folder import find
from trainers.data.partitions import Rows
from trainers.errors import MissingDataError
from trainers.problem import Problem

CLASSES = 10
_WHITE = 255.0
_CHUNK = 4096  # images scaled at once


@dataclass(frozen=True)
class ImageFile:
    """One set of images.

    Args:
        file: path relative to the data folder.
        shape: shape of all images together, with the channels, if any, last.
        train: number of leading rows for training; the others are the test set. 0 if the set has no such order.
        mean: mean of each channel, subtracted from pixels in [0, 1]; () does not standardise.
        deviation: standard deviation of each channel, by which pixels are then divided.
    """

    file: str
    shape: tuple[int, ...]
    train: int = 0
    mean: tuple[float, ...] = ()
    deviation: tuple[float, ...] = ()

    @property
    def example(self) -> tuple[int, int, int]:
        """Shape of one image for models, (channels, height, width)."""
        _, height, width, *channels = self.shape
        return (channels[0] if channels else 1, height, width)

    def labels(self) -> Rows:
        """(examples,) class of each image, read-only.

        Raises:
            MissingDataError: the file is absent or damaged.
        """
        return _numbers(find(self.file).resolve(), "labels", self.shape[:1])

    def writers(self) -> Rows:
        """(examples,) writer of each image, read-only.

        Raises:
            MissingDataError: the file is absent or damaged.
        """
        return _numbers(find(self.file).resolve(), "writer", self.shape[:1])

    def scaled(self, rows: Rows, dtype: str) -> NDArray[np.floating]:
        """Images (rows, channels, height, width), with pixels in [0, 1] or standardised.

        Args:
            rows: rows of the images, in the order of the result.
            dtype: "float32" or "float64".

        Raises:
            MissingDataError: the file is absent or damaged.
        """
        pixels = _array(find(self.file).resolve(), "images", self.shape)
        if pixels.ndim == 3:
            pixels = pixels[..., None]
        out = np.empty((len(rows), pixels.shape[3], *pixels.shape[1:3]), dtype=dtype)
        mean = np.array(self.mean or (0.0,), dtype=dtype).reshape(-1, 1, 1)
        deviation = np.array(self.deviation or (1.0,), dtype=dtype).reshape(-1, 1, 1)
        for start in range(0, len(rows), _CHUNK):  # in place: no second copy of the whole set
            part = out[start : start + _CHUNK]
            np.divide(pixels[rows[start : start + _CHUNK]].transpose(0, 3, 1, 2), _WHITE, out=part, casting="same_kind")
            if self.mean:
                part -= mean
                part /= deviation
        return out


MNIST = ImageFile("mnist_by_writer/mnist_by_writer.npz", (70000, 28, 28), train=60000)
FASHION = ImageFile("fashion_mnist_900/fashion_mnist_900.npz", (900, 28, 28))
CIFAR = ImageFile(
    "cifar10_subset/cifar10_subset.npz",
    (5000, 32, 32, 3),
    train=4000,
    mean=(0.49159668, 0.48175928, 0.4446567),  # red, green and blue, over the 4000 training images
    deviation=(0.24711378, 0.24397223, 0.26250026),
)


def image_task(images: ImageFile, settings: Federated, dtype: str) -> Problem:
    """The problem of a task on images.

    Args:
        images: the images of the task.
        settings: the split task.
        dtype: type of the inputs, "float32" or "float64".
    """
    return labelled(settings, lambda rows: images.scaled(rows, dtype), images.labels())


@lru_cache(maxsize=8)
def _numbers(path: Path, name: str, shape: tuple[int, ...]) -> Rows:
    numbers = _array.__wrapped__(path, name, shape).astype(np.int64)
    numbers.setflags(write=False)
    return numbers


@lru_cache(maxsize=1)
def _array(path: Path, name: str, shape: tuple[int, ...]) -> NDArray[np.generic]:
    try:
        array = archive.read(path, name)
    except archive.DAMAGE as error:
        raise MissingDataError(
            f"the data file {path.name} must be readable, got {type(error).__name__} for its array {name}: "
            "put it there again"
        ) from error
    if array.shape != shape:
        raise MissingDataError(
            f"the array {name} of {path.name} must have shape {shape}, got {array.shape}: put the file there again"
        )
    return array
