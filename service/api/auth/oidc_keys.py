"""The public keys of an OpenID Connect issuer: fetched when needed, cached, and refreshed at limited rates."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx
import jwt

from driftline.errors import Unauthorized, Unavailable
from service.api.auth.issuer_answers import discover, endpoint, fetch_json

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

    def _begin_where(self, due: bool) -> None:
        """Starts a fetch if one is due, unless one is running or has just failed."""
        if due and not self._fetching and self._clock() - self._failed > PAUSE_S:
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
        url = self._jwks_url or endpoint(self._issuer, discover(self._issuer), "jwks_uri")
        keys = fetch_json(url).get("keys")
        if not isinstance(keys, list):
            raise ValueError(f"{url} must hold a list of keys")
        return [key for key in keys if isinstance(key, dict)]


def _usable(key: Mapping[str, Any], algorithm: str) -> jwt.PyJWK | None:
    """The key for this algorithm; None if it does not fit."""
    if key.get("use", "sig") != "sig" or key.get("alg", algorithm) != algorithm or key.get("kty") == "oct":
        return None
    try:
        jwk = jwt.PyJWK(dict(key), algorithm)
    except jwt.PyJWTError:
        return None
    curve = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}.get(algorithm)
    short = jwk.Algorithm.check_key_length(jwk.key)  # RSA below 2048 bits
    return None if short or (curve is not None and key.get("crv") != curve) else jwk


def asymmetric(names: Sequence[str]) -> tuple[str, ...]:
    """The given algorithms, or all asymmetric ones if none is given.

    Raises:
        ValueError: One is unknown or not asymmetric.
    """
    algorithms = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
    for name in names:
        if name not in algorithms:
            raise ValueError(f"must be among {', '.join(algorithms)}, got {name!r}")
    return tuple(names) or algorithms
