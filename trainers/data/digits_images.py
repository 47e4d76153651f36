"""The handwritten digits of scikit-learn: 1797 images of 8 x 8, read without importing scikit-learn."""

from __future__ import annotations

import gzip
import importlib.util
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainers.errors import MissingDataError

CLASSES = 10
PIXELS = 64
_LARGEST = 16.0


@cache
def load() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """All images and their digits, from the installed package.

    Returns:
        (images (1797, 64) scaled to [0, 1], digits (1797,)), both read-only.

    Raises:
        MissingDataError: scikit-learn is not installed, or lacks the data.
    """
    path = find()
    try:
        with gzip.open(path, "rt", encoding="ascii") as file:
            table = np.loadtxt(file, delimiter=",", dtype=np.float64)
    except (OSError, EOFError, ValueError) as error:
        raise MissingDataError(
            f"the digits data must be readable, got {type(error).__name__} for {path.name}: "
            "install it again with: pip install --force-reinstall scikit-learn"
        ) from error
    images, digits = table[:, :PIXELS] / _LARGEST, table[:, PIXELS].astype(np.int64)
    images.setflags(write=False)
    digits.setflags(write=False)
    return images, digits


def find() -> Path:
    """The file of the digits in the installed scikit-learn.

    Raises:
        MissingDataError: scikit-learn is not installed, or lacks the file.
    """
    spec = importlib.util.find_spec("sklearn")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if path.is_file():
            return path
    raise MissingDataError(
        "the digits data must be installed, got no scikit-learn with its data: pip install scikit-learn"
    )
