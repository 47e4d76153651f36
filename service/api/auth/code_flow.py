"""Signing in on the pages through an OpenID Connect issuer: the authorization code flow with PKCE (RFC 7636).

The browser goes to the issuer's page and comes back with a code, which the service exchanges for an ID token. The
caller keeps state, nonce and verifier; only the issuer's addresses are stored here.
"""

from __future__ import annotations

import base64
import hashlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

import httpx
from pydantic import Field, field_validator

from driftline.errors import InvalidSpec, Unauthorized, Unavailable
from driftline.study.validation import Section
from service.api.auth.issuer_answers import BadStatus, discover, endpoint, fetch_json, require_safe
from service.api.auth.tokens import Access

CALLBACK = "/sign-in/issuer/done"
"""Path to which the issuer sends people back; `SignInConfig.redirect_url` ends with this path."""

AT_ONCE = 4
"""Most requests that wait for the issuer at a time, of a process's 40 threads; others are answered with 503."""

_FRESH_S = 300.0  # age at which the issuer's description is read again
_PAUSE_S = 5.0  # after a failure
_HOURS = 12.0


class SignInConfig(Section):
    """The part ``sign_in`` of the file DRIFTLINE_OIDC.

    Attributes:
        client_id: The service's id at the issuer.
        client_secret_file: File with the client's secret; None for a public client.
        redirect_url: Where the issuer sends people back, as it is registered there: the service's address for people,
            and ``/sign-in/issuer/done``.
        scopes: What the issuer is asked for; must make it put the groups into the ID token.
        hours: How long a session lasts, at most 12.
    """

    client_id: str = Field(min_length=1)
    client_secret_file: Path | None = None
    redirect_url: str
    scopes: list[str] = Field(default=["openid", "email", "profile"], min_length=1)
    hours: float = Field(default=_HOURS, gt=0, le=_HOURS)

    @field_validator("redirect_url")
    @classmethod
    def _ours(cls, url: str) -> str:
        require_safe("", url)
        if not url.endswith(CALLBACK):
            raise ValueError(f"must end with {CALLBACK}, got {url!r}")
        return url

    @field_validator("scopes")
    @classmethod
    def _with_openid(cls, scopes: list[str]) -> list[str]:
        if "openid" not in scopes:
            raise ValueError(f"must have openid, got {', '.join(scopes)}")
        return scopes


class OidcCodeFlow:
    """The flow with one issuer.

    Args:
        issuer: URL of the issuer.
        config: The client's settings.
        person: Returns what a person may do, from the ID token, the client's id and the nonce.
        clock: A monotonic clock in seconds.

    Attributes:
        host: The issuer's host, for people.

    Raises:
        InvalidSpec: The client's secret cannot be read.
    """

    def __init__(
        self,
        issuer: str,
        config: SignInConfig,
        person: Callable[[str, str, str], Access],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.host = urlsplit(issuer).netloc
        self._issuer = issuer
        self._config = config
        self._person = person
        self._secret = _secret(config.client_secret_file)
        self._clock = clock
        self._places = threading.BoundedSemaphore(AT_ONCE)
        self._read: Mapping[str, Any] = {}
        self._read_at = self._failed_at = -math.inf

    def begin(self, state: str, verifier: str, nonce: str) -> str:
        """Address of the issuer's page on which a person signs in.

        Args:
            state: Text that the issuer sends back with the person.
            verifier: A secret of this sign-in; only its hash is sent.
            nonce: Text that the ID token must repeat.

        Raises:
            Unavailable: The issuer does not answer.
        """
        with self._asking():
            page = endpoint(self._issuer, self._description(), "authorization_endpoint")
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        query = {
            "response_type": "code",
            "client_id": self._config.client_id,
            "redirect_uri": self._config.redirect_url,
            "scope": " ".join(self._config.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        return f"{page}{'&' if urlsplit(page).query else '?'}{urlencode(query)}"

    def finish(self, code: str, verifier: str, nonce: str, now: float) -> Access:
        """Access of the person who came back with a code, until the session ends.

        Args:
            code: The issuer's code.
            verifier: As in `begin`.
            nonce: As in `begin`.
            now: Unix time.

        Raises:
            Unauthorized: The issuer does not take the code, or its ID token is invalid.
            Forbidden: No grant matches the person's groups.
            Unavailable: The issuer does not answer.
        """
        with self._asking():
            document = self._description()
            url = endpoint(self._issuer, document, "token_endpoint")
            form = {
                "grant_type": "authorization_code",
                "code": code,
                "redirect_uri": self._config.redirect_url,
                "code_verifier": verifier,
            }
            form, auth = self._authenticated(form, document)
            try:
                answer = fetch_json(url, form, auth)
            except BadStatus as error:  # 400 for a code that is invalid, or was used before
                if error.status >= 500:
                    raise
                raise Unauthorized(f"{self.host} did not accept this sign-in: sign in again ({error})") from error
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise Unauthorized(f"{self.host} sent no ID token: sign_in.scopes must have openid")
        access = self._person(token, self._config.client_id, nonce)
        return replace(access, expires_at=datetime.fromtimestamp(now + 3600 * self._config.hours, UTC))

    def _authenticated(
        self, form: dict[str, str], document: Mapping[str, Any]
    ) -> tuple[dict[str, str], tuple[str, str] | None]:
        """How the client proves itself: by the header that every issuer must know, or else in the form."""
        named = {**form, "client_id": self._config.client_id}
        if not self._secret:
            return named, None
        ways = document.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        if isinstance(ways, list) and "client_secret_basic" not in ways and "client_secret_post" in ways:
            return {**named, "client_secret": self._secret}, None
        return form, (quote_plus(self._config.client_id), quote_plus(self._secret))

    def _description(self) -> Mapping[str, Any]:
        """The issuer's description of itself, read at most every five minutes."""
        if self._clock() - self._read_at > _FRESH_S:
            if self._clock() - self._failed_at < _PAUSE_S:
                raise ValueError("it did not answer a moment ago")
            try:
                self._read = discover(self._issuer)
            except (httpx.HTTPError, ValueError):
                self._failed_at = self._clock()
                raise
            self._read_at = self._clock()
        return self._read

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Turns failures of the issuer into `Unavailable`, and limits how many requests wait for the issuer.

        Raises:
            Unavailable: The issuer does not answer, or too many requests wait for it.
        """
        if not self._places.acquire(blocking=False):
            raise Unavailable("too many people are signing in: try again in a moment", retry_after=1.0)
        try:
            yield
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise Unavailable(
                f"{self._issuer} is not available: {error}; try again in {_PAUSE_S:.0f} s, or sign in with a token",
                retry_after=_PAUSE_S,
            ) from error
        finally:
            self._places.release()


def _secret(file: Path | None) -> str:
    if file is None:
        return ""
    try:
        secret = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        raise InvalidSpec("sign_in.client_secret_file", f"must be a file with a secret, got {str(file)!r}") from error
    if not secret:
        raise InvalidSpec("sign_in.client_secret_file", f"must hold the client's secret, got an empty {str(file)!r}")
    return secret
