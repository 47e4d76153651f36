"""Builds a package of the installed Driftline for a Ray cluster, with the content of a wheel."""

from __future__ import annotations

import functools
import hashlib
import io
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

from driftline.errors import DriftlineError
from service.code_digest import MODULES

_ENDINGS = frozenset({".py", ".html", ".mako", ".ini", ".json", ".csv", ".txt"})
_WHEN = (1980, 1, 1, 0, 0, 0)  # fixed, so that the same content gives the same bytes and name


@functools.cache
def package() -> tuple[str, bytes]:
    """Name and content of the package; the name is a hash of the content.

    Raises:
        DriftlineError: Driftline is not installed as files that can be read.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as out:
        for name, content in sorted(_files()):
            out.writestr(zipfile.ZipInfo(name, _WHEN), content, zipfile.ZIP_DEFLATED)
    content = buffer.getvalue()
    return f"_ray_pkg_{hashlib.sha256(content).hexdigest()[:16]}.zip", content


def _files() -> Iterator[tuple[str, bytes]]:
    installed = distribution("driftline")
    folder = f"driftline-{installed.version}.dist-info"  # entry points and the version are read from it
    for name in ("METADATA", "entry_points.txt"):
        text = installed.read_text(name)
        if text is None and name == "METADATA":
            text = installed.read_text("PKG-INFO")  # of an editable installation
        if text is not None:
            yield f"{folder}/{name}", text.encode()
    for module in MODULES:
        spec = find_spec(module)
        if spec is None or spec.origin is None:
            raise DriftlineError(f"the module {module} must be installed as files to be sent to Ray, got none")
        origin = Path(spec.origin)
        for file in origin.parent.rglob("*"):
            if file.suffix in _ENDINGS and "__pycache__" not in file.parts:
                yield f"{module}/{file.relative_to(origin.parent).as_posix()}", file.read_bytes()
