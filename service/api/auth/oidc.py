"""Bearer tokens of an OpenID Connect issuer: who signed in there gets what the grants give to their groups."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import jwt
from pydantic import Field, field_validator

from driftline.errors import Forbidden, InvalidSpec, Unauthorized
from driftline.study.validation import Section
from driftline.wire.access import ProjectName
from service.api.auth.oidc_keys import IssuerKeys, asymmetric, require_safe
from service.api.auth.tokens import Access, Scope

LEEWAY_S = 30.0
"""How far the issuer's clock and this one may be apart."""

_CLAIMS = ["exp", "iat", "iss", "aud", "sub"]
_NAME = 100
_SUBJECT = 200


class Grant(Section):
    """What the members of a group may do.

    Attributes:
        group: Name of the group, as the issuer writes it into tokens.
        project: Whose studies they see and make.
        scopes: "read", "write", "admin"; see `Access`.
    """

    group: str = Field(min_length=1)
    project: ProjectName = "default"
    scopes: list[Literal["read", "write", "admin"]] = Field(default=["read", "write"], min_length=1)


class OidcConfig(Section):
    """What DRIFTLINE_OIDC holds.

    Attributes:
        issuer: URL of the issuer, as tokens have it in ``iss``.
        audience: What tokens must have in ``aud``: the name of this service at the issuer.
        jwks_url: Where the issuer's keys are; "" asks ``ISSUER/.well-known/openid-configuration``.
        name_claim: The claim that people are shown by; ``sub`` where a token has none.
        groups_claim: The claim with the groups: a list of texts, or one text.
        grants: What groups may do. The first entry whose group a token has decides the project; the scopes are those of
            all entries for this project whose groups it has.
        algorithms: With which tokens may be signed; asymmetric ones only, all by default.
    """

    issuer: str
    audience: str = Field(min_length=1)
    jwks_url: str = ""
    name_claim: str = Field(default="email", min_length=1)
    groups_claim: str = Field(default="groups", min_length=1)
    grants: list[Grant] = Field(min_length=1)
    algorithms: list[str] = Field(default_factory=list)

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
        config: Whose tokens, and what they allow.
        clock: Gives seconds that never go back; for the age of keys.
    """

    def __init__(self, config: OidcConfig, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._keys = IssuerKeys(config.issuer, config.jwks_url, clock=clock)

    @classmethod
    def from_json(cls, document: Mapping[str, Any], *, clock: Callable[[], float] = time.monotonic) -> Oidc:
        """From the mapping that the file DRIFTLINE_OIDC holds.

        Args:
            document: The mapping.
            clock: As for the class.

        Raises:
            InvalidSpec: It is invalid.
        """
        try:
            return cls(OidcConfig.from_json(dict(document)), clock=clock)
        except InvalidSpec as error:
            raise InvalidSpec(f"DRIFTLINE_OIDC: {error.path}".removesuffix(": "), error.problem) from error

    def claims(self, token: str) -> bool:
        """Whether a token is to be checked here: whether it is a JWT, good or bad."""
        return header(token) is not None

    def access(self, token: str) -> Access:
        """What a token allows.

        May wait some seconds for the issuer: not for the thread of an event loop.

        Raises:
            Unauthorized: It is not good; the message says why.
            Forbidden: It is good, but no grant is for its groups.
            Unavailable: The issuer's keys are not at hand.
        """
        claims = self._verified(token)
        subject = str(claims["sub"])
        name = claims.get(self._config.name_claim)
        project, scopes = self._granted(claims.get(self._config.groups_claim))
        return Access(
            project,
            scopes,
            None,
            f"oidc:{_shown(subject, _SUBJECT)}",
            _shown(name if isinstance(name, str) and name else subject, _NAME),
            datetime.fromtimestamp(int(claims["exp"]), UTC),
        )

    def _verified(self, token: str) -> dict[str, Any]:
        found = header(token) or {}
        algorithm, kid = found.get("alg"), found.get("kid")
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
                audience=self._config.audience,
                issuer=self._config.issuer,
                leeway=LEEWAY_S,
                options={"require": _CLAIMS},
            )
        except jwt.ExpiredSignatureError as error:
            raise Unauthorized("the bearer token has expired: sign in again for a new one") from error
        except jwt.InvalidTokenError as error:
            raise Unauthorized(f"the bearer token must be a good one of {self._config.issuer}, got: {error}") from error
        if not claims["sub"] or _moment(claims["exp"]) is None:
            raise Unauthorized("the bearer token must have a sub that is not empty and an exp that is a time")
        return claims

    def _for_us(self, token: str) -> None:
        """Refuses tokens of other issuers before anybody is asked for their keys."""
        try:
            claims = jwt.decode(token, options={"verify_signature": False})
        except jwt.InvalidTokenError as error:
            raise Unauthorized(f"the bearer token must be a JWT that can be read, got: {error}") from error
        if claims.get("iss") != self._config.issuer:
            raise Unauthorized(f"the bearer token must be of {self._config.issuer}, got iss={claims.get('iss')!r}")

    def _granted(self, groups: object) -> tuple[str, frozenset[Scope]]:
        have = {groups} if isinstance(groups, str) else {each for each in _listed(groups) if isinstance(each, str)}
        matching = [grant for grant in self._config.grants if grant.group in have]
        if not matching:
            raise Forbidden(
                f"a grant must be for one of the groups in the token's {self._config.groups_claim!r}, got "
                f"{', '.join(sorted(have)[:10]) or 'none'}: ask for membership, or for a grant in DRIFTLINE_OIDC"
            )
        project = matching[0].project
        return project, frozenset(scope for grant in matching if grant.project == project for scope in grant.scopes)


def header(token: str) -> dict[str, Any] | None:
    """The header of a JWT, not verified; None for what is no JWT."""
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
    """A text of the issuer as it may stand in a log: without control characters, and not longer."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)[:longest]
