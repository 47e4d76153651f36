"""Who may do what: bearer tokens, each with scopes and bound to a project; a driver's token to one study as well."""

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


@dataclass(frozen=True)
class Access:
    """What the holder of a token may do.

    Attributes:
        project: Whose studies it sees and makes.
        scopes: "read", "write" (submit, pause, resume, cancel, extend, retry, delete), "driver" (what only a study's
            driver may), "admin" (tokens, quotas and the audit trail of all projects; studies of its own project alone).
        study: The only study it may touch; None for all of the project.
        id: Of the token; for a token that is not stored the beginning of its hash.
        name: Of the token.
        expires_at: When it ends; None never.
        over: Of a driver's token: its study has finished or was deleted. What only a driver may is left to the store,
            which knows the attempt: a driver may say once more how its study has ended.
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
        """Who it is, for the audit trail."""
        return Actor(self.id, self.name)

    def require(self, scope: Scope, study: str | None = None) -> None:
        """Allow what needs this scope.

        Args:
            scope: What is needed. A driver may also read its own study.
            study: The study it is about; None where it is about no certain one.

        Raises:
            Forbidden: The token does not allow it.
            Unauthorized: The token has ended with its study.
        """
        if scope != "driver":
            self.require_current()
        if self.study is not None and study != self.study:
            raise Forbidden(f"this token is for study {self.study} alone, got {study or 'a request about all studies'}")
        own = scope == "read" and self.study is not None and "driver" in self.scopes
        if scope not in self.scopes and not own:
            have = ", ".join(sorted(self.scopes)) or "none"
            raise Forbidden(f"this needs a token with scope {scope!r}, got one with: {have}")

    def require_current(self) -> None:
        """Refuse a driver's token that has ended with its study.

        Raises:
            Unauthorized: It has.
        """
        if self.over:
            raise Unauthorized(f"this driver's token has ended with study {self.study}")


class Issuer(Protocol):
    """Knows the tokens that somebody else has issued."""

    def claims(self, token: str) -> bool:
        """Whether a token is of the kind that is checked here, good or bad."""

    def access(self, token: str) -> Access:
        """What it allows.

        Raises:
            Unauthorized: It is not good.
            Forbidden: It is good, and allows nothing here.
            Unavailable: It cannot be checked now.
        """


class Tokens:
    """The known tokens. Only their hashes are kept; a driver's token is made from a secret and stored nowhere.

    Args:
        tokens: Token -> what it allows.
        secret: Key that signs drivers' tokens; the same in all processes that serve one database. A fresh one by
            default.
        store: Where further tokens are: looked at with every request, so that a revoked one is refused at once.
        issuer: Whose tokens are good as well.
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
        """One random token that allows everything, for a service inside a process; with the token itself."""
        token = secrets.token_urlsafe(32)
        return cls({token: Access()}), token

    def driver(self, study_id: str, project: str = "default") -> str:
        """The token of a study's driver: the same every time."""
        return f"{_DRIVER}.{study_id}.{project}.{self._sign(study_id, project)}"

    def access(self, token: str) -> Access:
        """What a token allows.

        Raises:
            Unauthorized: The token is not known, has expired or was revoked.
            Forbidden: Its issuer's groups have no grant here.
            Unavailable: The store or the issuer that could know it does not answer.
        """
        known = self._known.get(_digest(token))
        if known is not None:
            return known
        kind, _, rest = token.partition(".")
        study, _, rest = rest.partition(".")
        project, _, signature = rest.rpartition(".")
        if kind == _DRIVER and hmac.compare_digest(signature.encode(), self._sign(study, project).encode()):
            return Access(project, frozenset({"driver"}), study, f"driver.{study}", "the study's driver")
        if self._issuer is not None and self._issuer.claims(token):
            return self._issuer.access(token)
        stored = None if self._store is None else self._store.tokens.valid(token)
        if stored is None:
            raise Unauthorized("the bearer token is not known, or no longer; ask for one, and set DRIFTLINE_TOKEN")
        return _stored(stored)

    def _sign(self, study_id: str, project: str) -> str:
        return hmac.new(self._secret, f"{study_id}/{project}".encode(), hashlib.sha256).hexdigest()


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _named(token: str, access: Access) -> Access:
    """A token of the configuration, with something to call it by."""
    return replace(access, id=access.id or f"key-{_digest(token).hex()[:12]}", name=access.name or "configured")


def _stored(record: TokenRecord) -> Access:
    return Access(record.project, frozenset(record.scopes), None, record.id, record.name, expires_at=record.expires_at)
