"""Bearer tokens of an OpenID Connect issuer: users get the scopes that the grants give to their groups."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import jwt
from pydantic import Field, field_validator

from driftline.errors import Forbidden, InvalidSpec, Unauthorized
from driftline.study.validation import Section
from driftline.wire.access import ProjectName
from service.api.auth.code_flow import OidcCodeFlow, SignInConfig
from service.api.auth.issuer_answers import require_safe
from service.api.auth.oidc_keys import IssuerKeys, asymmetric
from service.api.auth.tokens import ISSUED, Access, CodeFlow, Scope

LEEWAY_S = 30.0
"""Tolerated difference between the issuer's clock and this one, in seconds."""

_CLAIMS = ["exp", "iat", "iss", "aud", "sub"]
_NAME = 100
_SUBJECT = 200


class Grant(Section):
    """What the members of a group may do.

    Attributes:
        group: Name of the group, as in the issuer's tokens.
        project: The project whose studies they may see and submit.
        scopes: "read", "write", "admin"; see `Access`.
    """

    group: str = Field(min_length=1)
    project: ProjectName = "default"
    scopes: list[Literal["read", "write", "admin"]] = Field(default=["read", "write"], min_length=1)


class OidcConfig(Section):
    """Contents of the file DRIFTLINE_OIDC.

    Attributes:
        issuer: URL of the issuer, equal to ``iss`` in its tokens.
        audience: Required ``aud`` of tokens: the name of this service at the issuer.
        jwks_url: URL of the issuer's keys; "" reads it from ``ISSUER/.well-known/openid-configuration``.
        name_claim: The claim with a user's display name; if a token lacks it, ``sub``.
        groups_claim: The claim with the groups: a list of strings, or one string.
        grants: What groups may do. The first entry that matches one of the token's groups decides the project; the
            scopes are those of all matching entries for this project.
        algorithms: Allowed signature algorithms; asymmetric ones only, default all of them.
        sign_in: How people sign in on the service's pages; None: with a token only.
    """

    issuer: str
    audience: str = Field(min_length=1)
    jwks_url: str = ""
    name_claim: str = Field(default="email", min_length=1)
    groups_claim: str = Field(default="groups", min_length=1)
    grants: list[Grant] = Field(min_length=1)
    algorithms: list[str] = Field(default_factory=list)
    sign_in: SignInConfig | None = None

    @field_validator("issuer", "jwks_url")
    @classmethod
    def _safe(cls, url: str) -> str:
        if url:
            require_safe("", url)
        return url

    @field_validator("issuer")
    @classmethod
    def _given(cls, url: str) -> str:
        if not url:
            raise ValueError("must be the issuer's URL, got ''")
        return url

    @field_validator("algorithms")
    @classmethod
    def _known(cls, names: list[str]) -> list[str]:
        return list(asymmetric(names))


class Oidc:
    """Checks tokens of one issuer.

    Args:
        config: The issuer, and what its tokens allow.
        clock: A monotonic clock in seconds, for the age of keys.

    Attributes:
        code_flow: How people sign in on the pages; None if that is not configured.
    """

    def __init__(self, config: OidcConfig, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._keys = IssuerKeys(config.issuer, config.jwks_url, clock=clock)
        self.code_flow: CodeFlow | None = None
        if config.sign_in is not None:
            self.code_flow = OidcCodeFlow(config.issuer, config.sign_in, self._person, clock=clock)

    @classmethod
    def from_json(cls, document: Mapping[str, Any], *, clock: Callable[[], float] = time.monotonic) -> Oidc:
        """Make it from the mapping in the file DRIFTLINE_OIDC.

        Args:
            document: The mapping.
            clock: A monotonic clock in seconds.

        Raises:
            InvalidSpec: The mapping is invalid.
        """
        try:
            return cls(OidcConfig.from_json(dict(document)), clock=clock)
        except InvalidSpec as error:
            raise error.moved(lambda path: f"DRIFTLINE_OIDC: {path}".removesuffix(": ")) from error

    def claims(self, token: str) -> bool:
        """Whether this class checks the token: whether it is a JWT, valid or not."""
        return header(token) is not None

    def access(self, token: str) -> Access:
        """What a token allows.

        May wait some seconds for the issuer, so do not call it in an event loop.

        Raises:
            Unauthorized: The token is invalid; the message says why.
            Forbidden: The token is valid, but no grant matches its groups.
            Unavailable: The issuer's keys are not available.
        """
        return self._access(self._verified(token, self._config.audience))

    def _person(self, id_token: str, client: str, nonce: str) -> Access:
        """Access of a person who has just signed in.

        Args:
            id_token: The ID token that the issuer has sent.
            client: Id of the client that the token must be for.
            nonce: What the token must repeat, so that it belongs to this sign-in.

        Raises:
            Unauthorized: The token is invalid, or of another sign-in.
            Forbidden: No grant matches the person's groups.
            Unavailable: The issuer's keys are not available.
        """
        claims = self._verified(id_token, client)
        if claims.get("azp", client) != client or not hmac.compare_digest(
            str(claims.get("nonce", "")).encode(), nonce.encode()
        ):
            raise Unauthorized("the issuer's answer is for another sign-in: sign in again")
        return self._access(claims)

    def _access(self, claims: Mapping[str, Any]) -> Access:
        subject = str(claims["sub"])
        name = claims.get(self._config.name_claim)
        project, scopes = self._granted(claims.get(self._config.groups_claim))
        return Access(
            project,
            scopes,
            None,
            f"{ISSUED}{_shown(subject, _SUBJECT)}",
            _shown(name if isinstance(name, str) and name else subject, _NAME),
            datetime.fromtimestamp(int(claims["exp"]), UTC),
        )

    def _verified(self, token: str, audience: str) -> dict[str, Any]:
        fields = header(token) or {}
        algorithm, kid = fields.get("alg"), fields.get("kid")
        if algorithm not in self._config.algorithms:
            allowed = ", ".join(self._config.algorithms)
            raise Unauthorized(f"the bearer token must be signed with one of {allowed}, got {algorithm!r}")
        self._for_us(token)
        key = self._keys.find(None if kid is None else str(kid), str(algorithm))
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[str(algorithm)],
                audience=audience,
                issuer=self._config.issuer,
                leeway=LEEWAY_S,
                options={"require": _CLAIMS},
            )
        except jwt.ExpiredSignatureError as error:
            raise Unauthorized("the bearer token has expired: sign in again for a new one") from error
        except jwt.InvalidTokenError as error:
            raise Unauthorized(f"the bearer token is not valid for {self._config.issuer}: {error}") from error
        if not claims["sub"] or _moment(claims["exp"]) is None:
            raise Unauthorized("the bearer token must have a nonempty sub and an exp that is a time")
        return claims

    def _for_us(self, token: str) -> None:
        """Rejects tokens of other issuers before any keys are fetched."""
        try:
            claims = jwt.decode(token, options={"verify_signature": False})
        except jwt.InvalidTokenError as error:
            raise Unauthorized(f"the bearer token must be a readable JWT, got: {error}") from error
        if claims.get("iss") != self._config.issuer:
            raise Unauthorized(f"the bearer token must come from {self._config.issuer}, got iss={claims.get('iss')!r}")

    def _granted(self, groups: object) -> tuple[str, frozenset[Scope]]:
        have = {groups} if isinstance(groups, str) else {group for group in _listed(groups) if isinstance(group, str)}
        matching = [grant for grant in self._config.grants if grant.group in have]
        if not matching:
            raise Forbidden(
                f"no grant matches the groups in the token's {self._config.groups_claim!r}: "
                f"{', '.join(sorted(have)[:10]) or 'none'}; ask to join a group, or for a grant in DRIFTLINE_OIDC"
            )
        project = matching[0].project
        return project, frozenset(scope for grant in matching if grant.project == project for scope in grant.scopes)


def header(token: str) -> dict[str, Any] | None:
    """The unverified header of a JWT; None if the token is not a JWT."""
    if token.count(".") != 2:
        return None
    try:
        return jwt.get_unverified_header(token)
    except (jwt.InvalidTokenError, ValueError):
        return None


def _listed(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


def _moment(value: Any) -> datetime | None:
    try:
        return datetime.fromtimestamp(int(value), UTC)
    except (OverflowError, OSError, ValueError, TypeError):
        return None


def _shown(text: str, longest: int) -> str:
    """A string from the issuer made safe for logs: no control characters, at most `longest` characters."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)[:longest]
