"""Decodes images of one size with Pillow, to greyscale or RGB."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.data.damage import DAMAGE
from trainers.data.extra import library
from trainers.errors import SpecError

_GREY = ("1", "L")
_SIDE = 4096  # pixels: no model takes a larger image, but a damaged header may claim one


def decoded(sources: Sequence[tuple[str, Path | bytes]]) -> NDArray[np.uint8]:
    """(images, channels, height, width), with one channel if all are grey, else three.

    Args:
        sources: (name for errors, file or its content) of each image.

    Raises:
        ValueError: an image is damaged or has another size.
    """
    pillow = library("PIL.Image", "images")
    grey, size = True, None
    for name, source in sources:
        with _opened(pillow, name, source) as image:
            grey = grey and image.mode in _GREY
            size = size or image.size
            if image.size != size:
                first = f"{size[0]} x {size[1]} as {sources[0][0]} has"
                raise ValueError(
                    f"must hold images of one size, {first}, got {image.size[0]} x {image.size[1]} in {name}: "
                    "resize them"
                )
    width, height = size or (0, 0)
    pixels = np.empty((len(sources), 1 if grey else 3, height, width), np.uint8)
    for number, (name, source) in enumerate(sources):
        with _opened(pillow, name, source) as image:
            try:
                values = np.asarray(image.convert("L" if grey else "RGB"))
            except (*DAMAGE, SyntaxError) as error:
                raise ValueError(f"must hold images, got {name}: {error}") from error
        pixels[number] = values[None] if grey else values.transpose(2, 0, 1)
    return pixels


def _opened(pillow: Any, name: str, source: Path | bytes) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pillow.DecompressionBombWarning)
            image = pillow.open(io.BytesIO(source) if isinstance(source, bytes) else source)
    except SpecError:
        raise
    except (*DAMAGE, SyntaxError, pillow.DecompressionBombError, pillow.DecompressionBombWarning) as error:
        reason = "another kind of file" if isinstance(error, pillow.UnidentifiedImageError) else error
        raise ValueError(f"must hold images, got {name}: {reason}") from error
    if max(image.size) > _SIDE:
        raise ValueError(f"must hold images of at most {_SIDE} pixels a side, got {image.size} in {name}")
    return image
