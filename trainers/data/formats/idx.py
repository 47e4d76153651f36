"""MNIST's idx files, also gzipped: train-images-idx3-ubyte and train-labels-idx1-ubyte, t10k-... for testing.

The data are a folder, or one file of images with its labels beside it. The columns are `image`, (examples, 1, height,
width), and `label`.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.data import gzipped
from trainers.data.damage import reading
from trainers.data.format_contract import Columns
from trainers.data.sides import SideColumns, SideFiles, title

FOLDERS = True
_NAME = re.compile(r"(images|labels)[-.]idx\d-[a-z]+(\.gz)?$")
_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_KEYS = {"image": "images", "label": "labels"}
_PIECE = 2**20  # bytes read at once: a damaged header may promise more than the file holds
_IMAGES = 3  # axes
_FILES = SideFiles(
    lambda file: _NAME.search(file.name) is not None,
    "a folder of MNIST's idx files, such as train-images-idx3-ubyte.gz",
)
has_test = _FILES.has_test


class _IdxColumns:
    """Images and labels of one side.

    Args:
        files: "image" and "label" -> file.
        path: of the file or folder.
    """

    names = tuple(_KEYS)

    def __init__(self, files: Mapping[str, Path], path: Path) -> None:
        self._files, self._path = files, path

    def array(self, name: str, key_path: str) -> NDArray[Any]:
        file = self._files[name]
        with reading(title(file, self._path), key_path):
            array = _read(file)
            return array[:, None] if name == "image" and array.ndim == _IMAGES else array


def recognises(path: Path) -> bool:
    """Whether a path is a file with a name like MNIST's, or a folder of such files."""
    return _FILES.belongs(path) if path.is_file() else bool(_FILES.sides(path)[""])


def files(path: Path) -> Sequence[Path]:
    """The files of images and of labels."""
    return sorted({path, *_pair([path], path).values()}) if path.is_file() else _FILES.files(path)


def names(path: Path, key_path: str) -> Sequence[str]:
    """Names of the columns."""
    return _IdxColumns.names


def read(path: Path, column_names: Sequence[str], key_path: str) -> Columns:
    """The columns of a folder, or of a file and its pair beside it."""
    columns: dict[str, Columns] = {}
    for ending, side in _FILES.required(path, key_path).items():
        pair = _pair(side, path)
        with reading(path.name, key_path):
            for key, word in _KEYS.items():
                if not pair.get(key, Path()).is_file():
                    raise ValueError(f"must have one file of {word} beside {side[0].name}, such as {word}-idx")
        columns[ending] = _IdxColumns(pair, path if path.is_dir() else path.parent)
    return SideColumns(columns)


def _pair(side: Sequence[Path], path: Path) -> Mapping[str, Path]:
    """Column -> file, for columns with exactly one file."""
    candidates = list(side)
    if path.is_file():
        match = _NAME.search(path.name)
        start = path.name[: match.start()] if match else path.name
        candidates = [file for file in path.parent.iterdir() if file.name.startswith(start) and _FILES.belongs(file)]
    by_column = {key: [file for file in candidates if word in file.name] for key, word in _KEYS.items()}
    return {key: files[0] for key, files in by_column.items() if len(files) == 1}


def _read(file: Path) -> NDArray[Any]:
    with gzipped.opened(file) as opened:
        zeros, kind, axes = struct.unpack(">HBB", opened.read(4))
        if zeros or kind not in _TYPES or not 1 <= axes <= 4:
            raise ValueError("must begin as an idx file does, with two zeros, a type and a number of axes")
        shape = struct.unpack(f">{axes}I", opened.read(4 * axes))
        dtype = np.dtype(_TYPES[kind])
        size = math.prod(shape) * dtype.itemsize
        content = bytearray()
        while piece := opened.read(min(_PIECE, size + 1 - len(content))):
            content += piece
        if len(content) != size:
            more = "more" if len(content) > size else len(content)
            raise ValueError(f"must have {size} bytes of data, as its header {shape} says, got {more}")
    return np.frombuffer(content, dtype).reshape(shape).astype(dtype.newbyteorder("="), copy=False)
