"""Tokens, quotas and the audit trail, as they travel."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, JsonValue, StringConstraints

from driftline.wire.records import Record

Scope = Literal["read", "write", "driver", "admin"]
SCOPES: frozenset[Scope] = frozenset({"read", "write", "driver", "admin"})
"""read; write: submit, pause, resume, cancel, extend, retry, delete; driver: a driver's requests;
admin: tokens, quotas."""

GivenScope = Literal["read", "write", "admin"]
"""What a token may be given; the service itself makes tokens of drivers, each for one study."""

PROJECT = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
ProjectName = Annotated[str, StringConstraints(pattern=PROJECT)]
"""1 to 64 letters, digits, '.', '_' or '-', the first no mark."""


class NewToken(Record):
    """POST tokens.

    Attributes:
        name: Whose it is or what it is for; need not be unique.
        project: Whose studies it sees and makes.
        scopes: What it may do.
        expires_in_days: After which it is no longer known; None never.
    """

    model_config = ConfigDict(strict=True)

    name: str = Field(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")
    project: ProjectName = "default"
    scopes: list[GivenScope] = Field(default=["read", "write"], min_length=1, max_length=3)
    expires_in_days: float | None = Field(default=None, gt=0, le=36_500)


class TokenRecord(Record):
    """A token, without the token itself: only its SHA-256 is stored.

    Attributes:
        id: What `DELETE tokens/{id}` names.
        name: Whose it is or what it is for.
        project: Whose studies it sees and makes.
        scopes: What it may do.
        created_at: When it was made.
        created_by: Name of the token that made it.
        expires_at: When it ends; None never.
        last_used_at: When it was last used, to some minutes; None never.
        revoked_at: When it was revoked; None when it was not.
    """

    id: str
    name: str
    project: str
    scopes: list[Scope]
    created_at: datetime
    created_by: str = ""
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None


class MadeToken(TokenRecord):
    """Answer to `NewToken`: the token is shown this once."""

    token: str


class TokenPage(Record):
    """Tokens, newest first."""

    tokens: list[TokenRecord]
    next_page_token: str | None = None


class Whoami(Record):
    """What the request's token allows.

    Attributes:
        id: Of the token.
        name: Of the token.
        project: Whose studies it sees and makes.
        scopes: What it may do.
        study: The only study it may touch; None for all of the project.
        expires_at: When it ends; None never.
    """

    id: str
    name: str
    project: str
    scopes: list[Scope]
    study: str | None = None
    expires_at: datetime | None = None


class Quota(Record):
    """How much a project may have, and how long it is kept; None is no limit.

    Attributes:
        studies: Studies that are not finished (paused ones count).
        trials: Trials that these may have in all.
        gpu_hours: GPU-hours used by all its studies since the beginning; once they are used, nothing new starts.
        gpu_hours_pause: Whether studies are paused, too, when these hours are used up; none is resumed until there are
            more.
        retention_days: Days after its end when a finished study is deleted with everything that belongs to it.
    """

    model_config = ConfigDict(strict=True)  # true is no number

    studies: int | None = Field(default=None, ge=0, le=2**31 - 1)
    trials: int | None = Field(default=None, ge=0, le=2**53)
    gpu_hours: float | None = Field(default=None, ge=0, le=1e12, allow_inf_nan=False)
    gpu_hours_pause: bool = False
    retention_days: float | None = Field(default=None, gt=0, le=36_500, allow_inf_nan=False)


class Use(Record):
    """How much a project has; see `Quota`.

    Attributes:
        studies: Studies that are not finished.
        trials: Trials that these have in all.
        gpu_hours: GPU-hours used since the beginning.
        curve_rows: Rows that its curves take in the database, of up to 256 rounds each, as measured about a minute ago.
        curve_bytes: Bytes in these rows.
    """

    studies: int = 0
    trials: int = 0
    gpu_hours: float = 0.0
    curve_rows: int = 0
    curve_bytes: int = 0


class ProjectQuota(Record):
    """What a project may have, and what it has.

    Attributes:
        project: The project.
        limits: The project's own limits where an admin has set them, else the service's.
        use: What it has now.
        own: Whether an admin has set limits for this project.
    """

    project: str
    limits: Quota
    use: Use
    own: bool = False


class AuditEvent(Record):
    """Who did what.

    Attributes:
        id: Grows.
        at: When.
        project: Whose project it is about; "" where none is known.
        actor: Id of the token; "" where none is known.
        actor_name: Name of the token.
        action: study.submit, study.pause, study.resume, study.cancel, study.extend, study.retry, study.delete,
            study.expire, token.create, token.revoke, quota.set, auth.failed.
        target: Id of the study or token, or the project.
        details: What else there is to say.
    """

    id: int
    at: datetime
    project: str
    actor: str
    actor_name: str
    action: str
    target: str
    details: dict[str, JsonValue] = Field(default_factory=dict)


class AuditPage(Record):
    """Audit events, newest first."""

    events: list[AuditEvent]
    next_page_token: str | None = None
