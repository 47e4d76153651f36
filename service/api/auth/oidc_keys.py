"""The public keys of an OpenID Connect issuer: fetched when needed, cached, and refreshed at limited rates."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx
import jwt

from driftline.errors import InvalidSpec, Unauthorized, Unavailable

_LOG = logging.getLogger(__name__)
FRESH_S = 300.0
"""Age at which the keys are fetched again; the old ones stay in use meanwhile."""

TRUSTED_S = 3600.0
"""Age at which keys that could not be refreshed are no longer used: one may have been revoked."""

UNKNOWN_S = 30.0
"""A token with an unlisted key triggers a fetch at most this often."""

PAUSE_S = 5.0
"""Pause after a failed fetch."""

WAIT_S = 6.0
WAITING = 4
"""A request waits at most WAIT_S for keys, and at most WAITING requests do at once, of a process's 40 threads."""

_FETCH_S = 5.0
_BYTES = 1 << 20
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class IssuerKeys:
    """The keys that an issuer lists.

    PyJWT's own client fetches inside the request that needs a key, with a lock for which all other tokens wait, and
    stops using keys that it cannot refresh after five minutes. Here one background thread fetches. A request waits for
    it only if no cached key fits, for a few seconds at most, and only a few requests wait at a time, so that threads
    stay free for other tokens. After a failed fetch requests are answered at once until a pause is over.

    Args:
        issuer: URL of the issuer.
        jwks_url: URL of the keys; "" reads it from ``ISSUER/.well-known/openid-configuration``.
        clock: A monotonic clock, in seconds.
    """

    def __init__(self, issuer: str, jwks_url: str = "", *, clock: Callable[[], float] = time.monotonic) -> None:
        self._issuer = issuer
        self._jwks_url = jwks_url
        self._clock = clock
        self._state = threading.Condition()
        self._fetching = False
        self._waiting = 0
        self._keys: list[Mapping[str, Any]] = []
        self._fetched = -math.inf  # when the keys came
        self._failed = -math.inf  # when a fetch failed last
        self._failure = ""

    def find(self, kid: str | None, algorithm: str) -> jwt.PyJWK:
        """The key that a token says it was signed with.

        Args:
            kid: Id of the key; None if the token names none, which is enough if only one key fits.
            algorithm: The token's signature algorithm; the key must be for it.

        Raises:
            Unauthorized: The issuer lists no such key.
            Unavailable: The issuer does not answer, and the key is not cached.
        """
        with self._state:
            self._begin_where(self._clock() - self._fetched > FRESH_S)
            key = self._fitting(kid, algorithm)
            if key is None:
                self._begin_where(self._clock() - self._fetched > UNKNOWN_S)
                self._wait()
                key = self._fitting(kid, algorithm)
            if key is not None:
                return key
            self._require_answer()
        raise Unauthorized(
            f"the bearer token must be signed with a key for {algorithm} that {self._issuer} lists, got key {kid!r}"
        )

    def _wait(self) -> None:
        """Waits for a running fetch, unless enough requests already do."""
        if self._fetching and self._waiting < WAITING:
            self._waiting += 1
            try:
                self._state.wait_for(lambda: not self._fetching, WAIT_S)
            finally:
                self._waiting -= 1

    def _require_answer(self) -> None:
        """Raises `Unavailable` while a fetch is running or if the last one failed."""
        if self._fetching or self._failed > self._fetched:
            wait = 1.0 if self._fetching else max(1.0, PAUSE_S - (self._clock() - self._failed))
            raise Unavailable(
                f"the keys of {self._issuer}, needed to check this token, are not available: "
                f"{self._failure or 'no answer yet'}; try again in {wait:.0f} s, or use one of Driftline's own tokens",
                retry_after=wait,
            )

    def _fitting(self, kid: str | None, algorithm: str) -> jwt.PyJWK | None:
        if self._clock() - self._fetched > TRUSTED_S:
            return None
        named = [key for key in self._keys if kid is None or key.get("kid") == kid]
        keys = [fit for key in named if (fit := _usable(key, algorithm)) is not None]
        return None if not keys or (kid is None and len(keys) > 1) else keys[0]

    def _begin_where(self, wanted: bool) -> None:
        """Starts a fetch if wanted, unless one is running or has just failed."""
        if wanted and not self._fetching and self._clock() - self._failed > PAUSE_S:
            self._fetching = True
            threading.Thread(target=self._run, name="driftline-oidc-keys", daemon=True).start()

    def _run(self) -> None:
        keys: list[Mapping[str, Any]] = []
        failure = ""
        try:
            keys = self._fetch()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            failure = f"{type(error).__name__}: {error}"
            _LOG.warning("the keys of %s could not be fetched: %s", self._issuer, failure)
        except BaseException as error:  # record it, so that no request waits in vain
            failure = type(error).__name__
            raise
        finally:
            with self._state:
                if failure:
                    self._failed, self._failure = self._clock(), failure
                else:
                    self._fetched, self._keys = self._clock(), keys
                self._fetching = False
                self._state.notify_all()

    def _fetch(self) -> list[Mapping[str, Any]]:
        url = self._jwks_url or self._discovered()
        keys = _json(url).get("keys")
        if not isinstance(keys, list):
            raise ValueError(f"{url} must hold a list of keys")
        return [key for key in keys if isinstance(key, dict)]

    def _discovered(self) -> str:
        place = f"{self._issuer.rstrip('/')}/.well-known/openid-configuration"
        document = _json(place)
        if document.get("issuer") != self._issuer:
            raise ValueError(f"{place} must be of issuer {self._issuer}, got {document.get('issuer')!r}")
        url = document.get("jwks_uri")
        if not isinstance(url, str):
            raise ValueError(f"{place} must name its jwks_uri, got {url!r}")
        require_safe("jwks_uri", url)
        return url


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


def _usable(key: Mapping[str, Any], algorithm: str) -> jwt.PyJWK | None:
    """The key for this algorithm; None if it does not fit."""
    if key.get("use", "sig") != "sig" or key.get("alg", algorithm) != algorithm or key.get("kty") == "oct":
        return None
    try:
        made = jwt.PyJWK(dict(key), algorithm)
    except jwt.PyJWTError:
        return None
    curve = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}.get(algorithm)
    short = made.Algorithm.check_key_length(made.key)  # RSA below 2048 bits
    return None if short or (curve is not None and key.get("crv") != curve) else made


def _json(url: str, deadline_s: float = _FETCH_S) -> dict[str, Any]:
    """The JSON object at a URL, limited in time and size.

    Raises:
        httpx.HTTPError: The request failed.
        ValueError: The answer is not a JSON object, too large, or too slow.
    """
    end = time.monotonic() + deadline_s
    body = b""
    with httpx.stream("GET", url, timeout=deadline_s, headers={"Accept": "application/json"}) as response:
        if response.status_code != 200:
            raise ValueError(f"{url} answered with status {response.status_code}")
        for part in response.iter_bytes():
            body += part
            if len(body) > _BYTES or time.monotonic() > end:
                raise ValueError(f"{url} must answer within {deadline_s:g} s and {_BYTES} bytes")
    document = httpx.Response(200, content=body).json()
    if not isinstance(document, dict):
        raise ValueError(f"{url} must answer with a JSON object")
    return document


def asymmetric(names: Sequence[str]) -> tuple[str, ...]:
    """The given algorithms, or all asymmetric ones if none is given.

    Raises:
        ValueError: One is unknown or not asymmetric.
    """
    known = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
    for name in names:
        if name not in known:
            raise ValueError(f"must be among {', '.join(known)}, got {name!r}")
    return tuple(names) or known
