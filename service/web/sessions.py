"""Sessions of signed-in browsers: a signed cookie that names a token, never the token itself.

Nothing is stored: every replica with the same DRIFTLINE_SECRET accepts the cookie. It ends `SESSION_S` after sign-in,
and at once when its token expires or is revoked. A session may only read, whatever its token allows.
"""

from __future__ import annotations

import base64
import hmac
from dataclasses import replace
from datetime import datetime

from pydantic import ValidationError

from driftline.errors import Forbidden, Unauthorized
from driftline.wire.access import Scope
from driftline.wire.records import Record
from service.api.auth.tokens import Access, Tokens

COOKIE = "driftline-session"
SESSION_S = 12 * 3600.0
"""Seconds after which people sign in again."""

_PURPOSE = "web-session"
_READING = frozenset[Scope]({"read", "admin"})  # on a page, admin allows reading the audit trail


class SignedIn(Record):
    """What the cookie says.

    Attributes:
        id: Id of the access; the token behind it is checked at every request.
        name: Name of the token.
        project: Its project.
        scopes: Its scopes at sign-in; used for tokens of an issuer, which are not stored.
        expires_at: When the token expires; None: never.
        until: Unix time at which the session ends.
    """

    id: str
    name: str
    project: str
    scopes: list[Scope]
    expires_at: datetime | None
    until: float

    def access(self, tokens: Tokens) -> Access:
        """What the session allows now: reading, as far as its token still allows it.

        Raises:
            Unauthorized: The token has expired or was revoked.
        """
        earlier = Access(self.project, frozenset(self.scopes), None, self.id, self.name, self.expires_at)
        current = tokens.current(earlier)
        return replace(current, scopes=current.scopes & _READING)


def start(tokens: Tokens, access: Access, now: float) -> tuple[str, int]:
    """The cookie of a new session, and for how many seconds the browser should keep it.

    Args:
        tokens: Signs the cookie.
        access: What the token that signs in allows.
        now: Unix time.

    Raises:
        Forbidden: The token cannot read a project's studies.
    """
    if access.study is not None:
        raise Forbidden("a driver's token cannot sign in: use your own")
    access.require("read")
    until = now + SESSION_S
    if access.expires_at is not None:
        until = min(until, access.expires_at.timestamp())
    signed_in = SignedIn(
        id=access.id,
        name=access.name,
        project=access.project,
        scopes=sorted(access.scopes & _READING),
        expires_at=access.expires_at,
        until=until,
    )
    text = base64.urlsafe_b64encode(signed_in.model_dump_json().encode()).decode().rstrip("=")
    return f"{text}.{tokens.signature(_PURPOSE, text)}", max(1, int(until - now))


def read(tokens: Tokens, cookie: str, now: float) -> SignedIn:
    """What a cookie made by `start` says.

    Args:
        tokens: Checks the signature.
        cookie: The cookie's value.
        now: Unix time.

    Raises:
        Unauthorized: The cookie is forged, damaged or too old.
    """
    text, _, signature = cookie.rpartition(".")
    if not hmac.compare_digest(signature.encode(), tokens.signature(_PURPOSE, text).encode()):
        raise Unauthorized("the session is not valid: sign in again")
    try:
        signed_in = SignedIn.model_validate_json(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValidationError, ValueError) as error:  # signed by another version
        raise Unauthorized("the session is of another version: sign in again") from error
    if signed_in.until <= now:
        raise Unauthorized("the session has ended: sign in again")
    return signed_in
