"""Settings of clients, read from environment variables.

| variable | meaning | default |
|---|---|---|
| DRIFTLINE_URL | address of a service; without it studies run in this process | none |
| DRIFTLINE_TOKEN | bearer token for that service | none |
| DRIFTLINE_OUT | folder under which local studies keep their files | out |
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from driftline.errors import InvalidSpec


@dataclass(frozen=True)
class Environment:
    """Settings of clients.

    Attributes:
        url: Address of a service, without a trailing slash; None runs studies in this process.
        token: Bearer token; None sends none.
        out: Folder under which local studies keep their files.
    """

    url: str | None = None
    token: str | None = None
    out: Path = Path("out")


def read(environ: Mapping[str, str]) -> Environment:
    """Settings from a mapping of environment variables; an empty value counts as not set.

    Raises:
        InvalidSpec: DRIFTLINE_URL is not an http(s) address.

    Examples:
        >>> read({"DRIFTLINE_URL": "http://tuner:8080/"}).url
        'http://tuner:8080'
    """
    return Environment(
        url=_url(environ),
        token=environ.get("DRIFTLINE_TOKEN") or None,
        out=Path(environ.get("DRIFTLINE_OUT") or "out"),
    )


@functools.cache
def environment() -> Environment:
    """The settings of this process, read from the environment at the first call."""
    return read(os.environ)


def _url(environ: Mapping[str, str]) -> str | None:
    try:
        return http_address(environ.get("DRIFTLINE_URL"))
    except ValueError as error:
        raise InvalidSpec("DRIFTLINE_URL", str(error)) from None


def http_address(url: str | None) -> str | None:
    """An http(s) address without trailing slashes; None if there is none.

    Raises:
        ValueError: The address has another form.
    """
    url = (url or "").rstrip("/") or None
    if url is not None and not url.startswith(("http://", "https://")):
        raise ValueError(f"must start with http:// or https://, got {url!r}")
    if url is not None and not has_host(url):
        raise ValueError(f"must be http(s)://HOST:PORT, an IPv6 address in brackets, got {url!r}")
    return url


def has_host(url: str) -> bool:
    """Whether an address names a host and has no query, no spaces, and no port or a valid one."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0 and url.isprintable() and not ({" ", "?", "#"} & set(url))
    except ValueError:  # an invalid port, or an unpaired bracket
        return False
