"""Requests to an OpenID Connect issuer: safe addresses only, answers limited in time and size."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx

from driftline.client.network_settings import proxy_for, transport
from driftline.errors import InvalidSpec

FETCH_S = 5.0
"""Seconds that a whole answer may take."""

_BYTES = 1 << 20
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class BadStatus(ValueError):
    """An answer that is not 200.

    Args:
        url: The requested URL.
        status: Its status.

    Attributes:
        status: Its status.
    """

    def __init__(self, url: str, status: int) -> None:
        super().__init__(f"{url} answered with status {status}")
        self.status = status


def require_safe(name: str, url: str) -> None:
    """Rejects a URL through which an attacker in the network could inject keys.

    Raises:
        InvalidSpec: The URL is neither https nor http on this machine.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        parts, host = urlsplit(""), None
    if not host or not (parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK)):
        raise InvalidSpec(name, f"must start with https:// (http:// only with {', '.join(_LOOPBACK)}), got {url!r}")


def fetch_json(url: str, form: Mapping[str, str] | None = None, auth: tuple[str, str] | None = None) -> dict[str, Any]:
    """The JSON object at a URL.

    Args:
        url: The URL.
        form: The form to post; None sends a GET request.
        auth: Name and password of HTTP basic authentication.

    Raises:
        httpx.HTTPError: The request failed.
        ValueError: The answer is not a JSON object, too large, or too slow.
    """
    end = time.monotonic() + FETCH_S
    body = b""
    address = httpx.URL(url)
    network = transport(address, proxy_for(address))
    with (
        httpx.Client(transport=network, trust_env=False, timeout=FETCH_S) as http,
        http.stream(
            "GET" if form is None else "POST", url, data=form, auth=auth, headers={"Accept": "application/json"}
        ) as response,
    ):
        if response.status_code != 200:
            raise BadStatus(url, response.status_code)
        for part in response.iter_bytes():
            body += part
            if len(body) > _BYTES or time.monotonic() > end:
                raise ValueError(f"{url} must answer within {FETCH_S:g} s and {_BYTES} bytes")
    document = httpx.Response(200, content=body).json()
    if not isinstance(document, dict):
        raise ValueError(f"{url} must answer with a JSON object")
    return document


def discover(issuer: str) -> dict[str, Any]:
    """The issuer's description of itself at ``ISSUER/.well-known/openid-configuration``.

    Raises:
        httpx.HTTPError: The request failed.
        ValueError: The answer is not this issuer's.
    """
    url = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    document = fetch_json(url)
    if document.get("issuer") != issuer:
        raise ValueError(f"{url} must be of issuer {issuer}, got {document.get('issuer')!r}")
    return document


def endpoint(issuer: str, document: Mapping[str, Any], name: str) -> str:
    """A URL that an issuer's description names.

    Raises:
        ValueError: The description has no such URL.
        InvalidSpec: The URL is not safe.
    """
    url = document.get(name)
    if not isinstance(url, str):
        raise ValueError(f"{issuer} must name its {name}, got {url!r}")
    require_safe(name, url)
    return url
