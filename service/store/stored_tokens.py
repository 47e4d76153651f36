"""Bearer tokens in the store, stored as hashes."""

from __future__ import annotations

import hashlib
import secrets
from contextlib import suppress
from typing import Any

import sqlalchemy as sa

from driftline.errors import NotFound, Unavailable
from driftline.wire.access import MadeToken, NewToken, TokenRecord
from driftline.wire.ids import new_study_id
from service.store.schema import TOKENS
from service.store.session import Actor, Session, StorePart, moment
from trainers import shown

PREFIX = "dl_"
"""Prefix of all tokens, so that secret scanners recognise them."""

_DAY_S = 24 * 3600.0
_USED_EVERY_S = 300.0


def digest(token: str) -> str:
    """SHA-256 of a token in hexadecimal, which is stored instead of it. No salt: tokens are 256 random bits."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


class StoredTokens(StorePart):
    """The digests of tokens, and what each token allows."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._noted: dict[str, float] = {}  # token id -> time of the last use that was stored or failed to be

    def create(self, new: NewToken, actor: Actor | None = None) -> MadeToken:
        """Make a token.

        Args:
            new: What the token allows.
            actor: Holder of the request's token, for the audit trail.

        Returns:
            The token itself, which cannot be read again, and its record.
        """
        token = PREFIX + secrets.token_urlsafe(32)
        now = self._session.clock()
        values: dict[str, Any] = {
            "id": f"t{new_study_id(int(now * 1000))}",
            "digest": digest(token),
            "name": new.name,
            "project": new.project,
            "scopes": sorted(set(new.scopes)),
            "created_at": now,
            "created_by": "" if actor is None else actor.name,
            "expires_at": None if new.expires_in_days is None else now + new.expires_in_days * _DAY_S,
        }
        with self._session.write() as connection:
            connection.execute(sa.insert(TOKENS).values(**values))
            details = {"name": new.name, "scopes": values["scopes"], "expires_in_days": new.expires_in_days}
            self._session.audit(connection, actor, "token.create", values["id"], new.project, details)
            row = connection.execute(sa.select(TOKENS).where(TOKENS.c.id == values["id"])).one()
        return MadeToken(token=token, **_token(row).model_dump())

    def find(self, *, before: str | None = None, limit: int | None = None) -> list[TokenRecord]:
        """Tokens of all projects, newest first, including revoked and expired ones.

        Args:
            before: Only tokens older than the one with this id.
            limit: Maximum number of tokens.
        """
        query = sa.select(TOKENS).order_by(TOKENS.c.id.desc()).limit(limit)
        if before is not None:
            query = query.where(TOKENS.c.id < before)
        with self._session.read() as connection:
            return [_token(row) for row in connection.execute(query)]

    def revoke(self, token_id: str, actor: Actor | None = None) -> TokenRecord:
        """Revoke a token at once. Idempotent.

        Raises:
            NotFound: No such token.
        """
        condition = TOKENS.c.id == token_id
        with self._session.write() as connection:
            row = connection.execute(sa.select(TOKENS).where(condition).with_for_update()).first()
            if row is None:
                raise NotFound(f"no token {shown(token_id)}; list the tokens to see their ids")
            if row.revoked_at is None:
                connection.execute(sa.update(TOKENS).where(condition).values(revoked_at=self._session.clock()))
                self._session.audit(connection, actor, "token.revoke", token_id, row.project, {"name": row.name})
            return _token(connection.execute(sa.select(TOKENS).where(condition)).one())

    def valid(self, token: str) -> TokenRecord | None:
        """The record of a valid token; None if the token is unknown, expired or revoked.

        Updates the time of last use, at most every five minutes, and not if the database cannot be written.
        """
        return self._valid(TOKENS.c.digest == digest(token))

    def valid_id(self, token_id: str) -> TokenRecord | None:
        """The record of a valid token by its id, for a holder who signed in with the token earlier; otherwise None."""
        return self._valid(TOKENS.c.id == token_id)

    def _valid(self, where: sa.ColumnElement[bool]) -> TokenRecord | None:
        with self._session.read() as connection:
            row = connection.execute(sa.select(TOKENS).where(where)).first()
        now = self._session.clock()
        if row is None or row.revoked_at is not None or (row.expires_at is not None and row.expires_at <= now):
            return None
        used_at = max(row.last_used_at or 0.0, self._noted.get(row.id, 0.0))
        if not 0 <= now - used_at < _USED_EVERY_S:
            self._noted[row.id] = now  # first, so that other requests do not wait for the same write
            with suppress(Unavailable), self._session.write() as connection:
                connection.execute(sa.update(TOKENS).where(TOKENS.c.id == row.id).values(last_used_at=now))
        return _token(row)


def _token(row: sa.Row[Any]) -> TokenRecord:
    values = {name: value for name, value in row._mapping.items() if name != "digest"}
    times = {name: moment(values[name]) for name in ("created_at", "expires_at", "last_used_at", "revoked_at")}
    return TokenRecord.model_validate(values | times)
