"""Folders of images: CLASS/image.png or CLIENT/CLASS/image.png, in the folder itself or in its train and test.

The columns are `image`, (examples, channels, height, width), `label`, the name of the folder, and `client`, the name
of the folder around it. All images have one size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.data.damage import reading
from trainers.data.format_contract import Columns
from trainers.data.image_files import decoded
from trainers.data.sides import TEST, SideColumns, require_files

FOLDERS = True
_ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
_BY_CLASS, _BY_CLIENT = 2, 3  # parts of a path below the folder
_LOOKED_AT = 10_000  # entries


class _ImageColumns:
    """Images of one side.

    Args:
        root: folder of the classes or clients.
        files: images below it.
        by_client: whether the outer folders are clients.
    """

    def __init__(self, root: Path, files: Sequence[Path], by_client: bool) -> None:
        self._root, self._files = root, files
        self.names = ("image", "label", "client") if by_client else ("image", "label")

    def array(self, name: str, key_path: str) -> NDArray[Any]:
        if name == "image":
            with reading(self._root.name, key_path):
                return decoded([(str(file.relative_to(self._root)), file) for file in self._files])
        part = -2 if name == "label" else -3
        return np.array([file.parts[part] for file in self._files], dtype=np.str_)


def recognises(path: Path) -> bool:
    """Whether a path is a folder with images in its subfolders."""
    below = chain.from_iterable(path.glob(depth) for depth in ("*/*", "*/*/*", "*/*/*/*"))
    return path.is_dir() and any(_belongs(file) for file in islice(below, _LOOKED_AT))


def files(path: Path) -> Sequence[Path]:
    """All images, sorted by name."""
    return [file for side in _sides(path).values() for file in side]


def has_test(path: Path) -> bool:
    """Whether there is a folder `test` with folders of images, beside `train`."""
    return TEST in _sides(path)


def names(path: Path, key_path: str) -> Sequence[str]:
    """Names of the columns."""
    return [name for name in read(path, (), key_path).names if not name.endswith(TEST)]


def read(path: Path, column_names: Sequence[str], key_path: str) -> Columns:
    """The columns of a folder.

    Raises:
        SpecError: images are not in folders of classes, or not all in folders of clients.
    """
    side_files = _sides(path)
    require_files(
        path, side_files, "a folder of folders of images, CLASS/image.png or CLIENT/CLASS/image.png", key_path
    )
    columns: dict[str, Columns] = {}
    for ending, side in side_files.items():
        root = _roots(path)[ending]
        with reading(path.name, key_path):
            depths = Counter(len(file.relative_to(root).parts) for file in side)
            if len(depths) > 1 or not {_BY_CLASS, _BY_CLIENT} & set(depths):
                rarest = min(depths, key=lambda depth: (depth in (_BY_CLASS, _BY_CLIENT), depths[depth]))
                odd = next(file for file in side if len(file.relative_to(root).parts) == rarest).relative_to(path)
                raise ValueError(f"images must all be in CLASS/image.png or all in CLIENT/CLASS/image.png, got {odd}")
        columns[ending] = _ImageColumns(root, side, _BY_CLIENT in depths)
    return SideColumns(columns)


def _roots(path: Path) -> Mapping[str, Path]:
    """Ending of the columns' names -> folder of classes or clients."""
    train, test = path / "train", path / "test"
    if train.is_dir() and any(entry.is_dir() for entry in train.iterdir()):
        return {"": train, **({TEST: test} if test.is_dir() else {})}
    return {"": path}


def _sides(path: Path) -> Mapping[str, Sequence[Path]]:
    sides = {ending: sorted(_images(root)) for ending, root in _roots(path).items()}
    return {ending: side for ending, side in sides.items() if side or not ending}


def _images(root: Path) -> Iterator[Path]:
    return (file for file in root.rglob("*") if _belongs(file) and file.is_file())


def _belongs(file: Path) -> bool:
    return file.name.lower().endswith(_ENDINGS) and file.name[0] not in "._"
