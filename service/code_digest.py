"""Tells whether processes run the same code of Driftline, as driver, workers and API of a study must."""

from __future__ import annotations

import functools
import hashlib
from importlib.util import find_spec
from pathlib import Path

MODULES = ("driftline", "service", "trainers", "search_spaces")
"""Driftline's packages; a package with plug-ins is not among them."""


@functools.cache
def code_digest() -> str:
    """A digest of the source of Driftline's packages, read once by a process.

    Files count, not versions: a checkout that was edited differs. The same files give the same digest, wherever and
    however they are installed.
    """
    return digest_of({module: Path(str(getattr(find_spec(module), "origin", ""))).parent for module in MODULES})


def digest_of(folders: dict[str, Path]) -> str:
    """A digest of the Python files of packages, by their names."""
    whole = hashlib.sha256()
    for name, folder in sorted(folders.items()):
        for file in sorted(folder.rglob("*.py")):
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            whole.update(f"{name}/{file.relative_to(folder).as_posix()} {content}\n".encode())
    return whole.hexdigest()[:12]
