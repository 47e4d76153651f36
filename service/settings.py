"""What the environment says, read once.

| variable | meaning | default |
|---|---|---|
| DRIFTLINE_URL | address of a service; without it everything runs in this process | none |
| DRIFTLINE_TOKEN | bearer token for that service | none |
| DRIFTLINE_OUT | folder under which embedded studies keep their files | out |
| DRIFTLINE_RAY_ADDRESS | Ray cluster that embedded studies use; without it a local one is started | none |

DATA_DIR, the folder of the data sets, is read by the trainers alone.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from service.errors import InvalidSpec

__all__ = ["Settings", "read", "settings"]


@dataclass(frozen=True)
class Settings:
    """The environment's settings.

    Attributes:
        url: Address of a service, without a slash at the end; None runs embedded.
        token: Bearer token; None sends none.
        out: Folder under which embedded studies keep their files.
        ray_address: Ray cluster for embedded studies; None starts a local one.
    """

    url: str | None = None
    token: str | None = None
    out: Path = Path("out")
    ray_address: str | None = None


def read(environ: Mapping[str, str]) -> Settings:
    """Settings from a mapping of environment variables; an empty value counts as not set.

    Raises:
        InvalidSpec: DRIFTLINE_URL is no http(s) address.

    Examples:
        >>> read({"DRIFTLINE_URL": "http://tuner:8080/"}).url
        'http://tuner:8080'
    """
    url = environ.get("DRIFTLINE_URL", "").rstrip("/") or None
    if url is not None and not url.startswith(("http://", "https://")):
        raise InvalidSpec("DRIFTLINE_URL", f"must start with http:// or https://, got {url!r}")
    return Settings(
        url=url,
        token=environ.get("DRIFTLINE_TOKEN") or None,
        out=Path(environ.get("DRIFTLINE_OUT") or "out"),
        ray_address=environ.get("DRIFTLINE_RAY_ADDRESS") or None,
    )


@functools.cache
def settings() -> Settings:
    """The settings of this process, read from the environment at the first call."""
    return read(os.environ)
