"""Bearer tokens: each has scopes and belongs to a project; a driver's token is also bound to one study."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from driftline.errors import Forbidden, Unauthorized
from driftline.wire.access import SCOPES, Scope, TokenRecord
from service.store.session import Actor
from service.store.store import Store

__all__ = ["SCOPES", "Access", "Scope", "Tokens"]
_DRIVER = "driver"
ISSUED = "oidc:"
"""Ids of accesses that an issuer grants start with this."""

FOR_CLIENTS = "; ask for one and set DRIFTLINE_TOKEN"
"""A part of the message about an unknown token, which pages leave out."""


@dataclass(frozen=True)
class Access:
    """What the holder of a token may do.

    Attributes:
        project: The project whose studies it may see and submit.
        scopes: "read", "write" (submit, pause, resume, cancel, extend, retry, delete), "driver" (what only a study's
            driver may do), "admin" (tokens, quotas and audit trail of all projects; studies only of its own project).
        study: The only study it may access; None for all studies of the project.
        id: Id of the token; for a token that is not stored, the beginning of its hash.
        name: Name of the token.
        expires_at: When the token expires; None: never.
        over: Whether this is the token of a driver whose study has finished or was deleted. Only requests with scope
            "driver" are still accepted: the store knows the attempt, and lets its driver repeat its release.
    """

    project: str = "default"
    scopes: frozenset[Scope] = SCOPES
    study: str | None = None
    id: str = field(default="", compare=False)
    name: str = field(default="", compare=False)
    expires_at: datetime | None = field(default=None, compare=False)
    over: bool = field(default=False, compare=False)

    @property
    def actor(self) -> Actor:
        """The token's holder, for the audit trail."""
        return Actor(self.id, self.name)

    def require(self, scope: Scope, study: str | None = None) -> None:
        """Check that the token has a scope.

        Args:
            scope: The scope needed. A driver may also read its own study.
            study: The study that the request is about; None if it is about no single study.

        Raises:
            Forbidden: The token does not allow it.
            Unauthorized: The token has expired with its study.
        """
        if scope != "driver":
            self.require_current()
        if self.study is not None and study != self.study:
            raise Forbidden(f"this token is only for study {self.study}, got {study or 'a request about all studies'}")
        own_study = scope == "read" and self.study is not None and "driver" in self.scopes
        if scope not in self.scopes and not own_study:
            have = ", ".join(sorted(self.scopes)) or "none"
            raise Forbidden(f"this needs a token with scope {scope!r}, got one with: {have}")

    def require_current(self) -> None:
        """Refuse a driver's token whose study is over.

        Raises:
            Unauthorized: The study has finished or was deleted.
        """
        if self.over:
            raise Unauthorized(f"this driver's token has expired: study {self.study} is over")


class CodeFlow(Protocol):
    """Lets people sign in at an identity provider, in a browser.

    Attributes:
        host: The provider's name for people.
    """

    @property
    def host(self) -> str: ...

    def begin(self, state: str, verifier: str, nonce: str) -> str:
        """Address of the provider's page on which a person signs in.

        Args:
            state: Text that the provider sends back with the person.
            verifier: A secret of this sign-in; only its hash is sent.
            nonce: Text that the provider's answer must repeat.

        Raises:
            Unavailable: The provider does not answer.
        """

    def finish(self, code: str, verifier: str, nonce: str, now: float) -> Access:
        """Access of the person who came back with a code.

        Raises:
            Unauthorized: The code is invalid.
            Forbidden: The person is known, but may do nothing here.
            Unavailable: The provider does not answer.
        """


class Issuer(Protocol):
    """Checks the tokens of an identity provider.

    Attributes:
        code_flow: How people sign in on the pages; None if that is not configured.
    """

    @property
    def code_flow(self) -> CodeFlow | None: ...

    def claims(self, token: str) -> bool:
        """Whether this issuer checks such a token, valid or not."""

    def access(self, token: str) -> Access:
        """What the token allows.

        Raises:
            Unauthorized: The token is invalid.
            Forbidden: The token is valid, but allows nothing here.
            Unavailable: The token cannot be checked now.
        """


class Tokens:
    """All tokens that the service accepts. Keeps only their hashes; drivers' tokens are signed and stored nowhere.

    Args:
        tokens: Token -> what it allows.
        secret: Key that signs drivers' tokens; the same in all processes that serve one database. Random by
            default.
        store: Holds further tokens; read at every request, so that a revoked token is rejected at once.
        issuer: An identity provider whose tokens are accepted too.
    """

    def __init__(
        self,
        tokens: Mapping[str, Access] | None = None,
        secret: bytes | None = None,
        *,
        store: Store | None = None,
        issuer: Issuer | None = None,
    ) -> None:
        self._issuer = issuer
        self._known = {_digest(token): _named(token, access) for token, access in (tokens or {}).items()}
        self._secret = secret or secrets.token_bytes(32)
        self._store = store

    @classmethod
    def random(cls) -> tuple[Tokens, str]:
        """Tokens with one random token that allows everything, for an embedded service; and that token."""
        token = secrets.token_urlsafe(32)
        return cls({token: Access()}), token

    @property
    def code_flow(self) -> CodeFlow | None:
        """How people sign in at the identity provider; None if that is not configured."""
        return None if self._issuer is None else self._issuer.code_flow

    def driver(self, study_id: str, project: str = "default") -> str:
        """The token of a study's driver; always the same."""
        return f"{_DRIVER}.{study_id}.{project}.{self._sign(study_id, project)}"

    def access(self, token: str) -> Access:
        """What a token allows.

        Raises:
            Unauthorized: The token is unknown, expired or revoked.
            Forbidden: No grant matches the groups of the issuer's token.
            Unavailable: The store or the issuer does not answer.
        """
        access = self._known.get(_digest(token))
        if access is not None:
            return access
        kind, _, rest = token.partition(".")
        study, _, rest = rest.partition(".")
        project, _, signature = rest.rpartition(".")
        if kind == _DRIVER and hmac.compare_digest(signature.encode(), self._sign(study, project).encode()):
            return Access(project, frozenset({"driver"}), study, f"driver.{study}", "the study's driver")
        if self._issuer is not None and self._issuer.claims(token):
            return self._issuer.access(token)
        stored = None if self._store is None else self._store.tokens.valid(token)
        if stored is None:
            raise Unauthorized(f"the bearer token is unknown, expired or revoked{FOR_CLIENTS}")
        return _stored(stored)

    def current(self, earlier: Access) -> Access:
        """What the token of an earlier access allows now; an issuer's grant holds until it expires.

        Raises:
            Unauthorized: The token is unknown, expired or revoked.
        """
        for configured in self._known.values():
            if configured.id == earlier.id:
                return configured
        if earlier.id.startswith(ISSUED) and self._issuer is not None:
            return earlier
        stored = None if self._store is None else self._store.tokens.valid_id(earlier.id)
        if stored is None:
            raise Unauthorized("the token of this session has expired or was revoked: sign in with another one")
        return _stored(stored)

    def signature(self, purpose: str, text: str) -> str:
        """A signature of the text, with a key of the purpose's own derived from the secret."""
        key = hmac.digest(self._secret, purpose.encode(), "sha256")
        return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()

    def _sign(self, study_id: str, project: str) -> str:
        return hmac.new(self._secret, f"{study_id}/{project}".encode(), hashlib.sha256).hexdigest()


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _named(token: str, access: Access) -> Access:
    """The access of a configured token, with an id and a name."""
    return replace(access, id=access.id or f"key-{_digest(token).hex()[:12]}", name=access.name or "configured")


def _stored(record: TokenRecord) -> Access:
    return Access(record.project, frozenset(record.scopes), None, record.id, record.name, expires_at=record.expires_at)
