"""Files that appear in an output folder whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def put_all(folder: Path, files: Mapping[str, bytes]) -> None:
    """Writes files by name."""
    for name, data in files.items():
        put(folder / name, data)


def put(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all."""
    part = path.parent / f".{path.name}.part"
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
