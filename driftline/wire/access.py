"""Messages about tokens, quotas and the audit trail."""

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
"""Scopes that can be requested for a token. Only the service creates drivers' tokens, each for one study."""

PROJECT = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
ProjectName = Annotated[str, StringConstraints(pattern=PROJECT)]
"""1 to 64 letters, digits, '.', '_' or '-', starting with a letter or digit."""


class NewToken(Record):
    """A token to create.

    Attributes:
        name: Its owner or purpose; need not be unique.
        project: Project whose studies it can read and submit.
        scopes: What it may do.
        expires_in_days: Days until it expires; None for never.
    """

    model_config = ConfigDict(strict=True)

    name: str = Field(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")
    project: ProjectName = "default"
    scopes: list[GivenScope] = Field(default=["read", "write"], min_length=1, max_length=3)
    expires_in_days: float | None = Field(default=None, gt=0, le=36_500)


class TokenRecord(Record):
    """A token, without the token itself: only its SHA-256 is stored. Times are in UTC.

    Attributes:
        id: Its id, as in `DELETE tokens/{id}`.
        name: Its owner or purpose.
        project: Project whose studies it can read and submit.
        scopes: What it may do.
        created_at: When it was created.
        created_by: Name of the token that created it.
        expires_at: When it expires; None for never.
        last_used_at: When it was last used, to within a few minutes; None for never.
        revoked_at: When it was revoked; None if it was not.
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
    """Answer to `NewToken`, the only one that shows the token; the rest is as in `TokenRecord`.

    Attributes:
        token: The token itself.
    """

    token: str


class TokenPage(Record):
    """Tokens, newest first."""

    tokens: list[TokenRecord]
    next_page_token: str | None = None


class Whoami(Record):
    """What the request's token allows.

    Attributes:
        id: Id of the token.
        name: Name of the token.
        project: Project whose studies it can read and submit.
        scopes: What it may do.
        study: The only study that it can access; None for all of the project.
        expires_at: When it expires; None for never.
    """

    id: str
    name: str
    project: str
    scopes: list[Scope]
    study: str | None = None
    expires_at: datetime | None = None


class Quota(Record):
    """The limits of a project; None is no limit.

    Attributes:
        studies: Unfinished studies, paused ones included.
        trials: Trials of these studies in total.
        gpu_hours: GPU-hours used by all its studies so far; once they are used up, nothing new starts.
        gpu_hours_pause: Whether studies are also paused when `gpu_hours` are used up. They can be resumed once the
            limit is raised.
        retention_days: Days after which a finished study is deleted with everything that belongs to it.
    """

    model_config = ConfigDict(strict=True)  # true is not a number

    studies: int | None = Field(default=None, ge=0, le=2**31 - 1)
    trials: int | None = Field(default=None, ge=0, le=2**53)
    gpu_hours: float | None = Field(default=None, ge=0, le=1e12, allow_inf_nan=False)
    gpu_hours_pause: bool = False
    retention_days: float | None = Field(default=None, gt=0, le=36_500, allow_inf_nan=False)


class Use(Record):
    """What a project uses of its `Quota`.

    Attributes:
        studies: Unfinished studies, paused ones included.
        trials: Trials of these studies in total.
        gpu_hours: GPU-hours used by all its studies so far.
        curve_rows: Rows of its curves in the database, each of up to 256 rounds, as measured about a minute ago.
        curve_bytes: Compressed bytes in these rows.
    """

    studies: int = 0
    trials: int = 0
    gpu_hours: float = 0.0
    curve_rows: int = 0
    curve_bytes: int = 0


class ProjectQuota(Record):
    """A project's limits and its current use.

    Attributes:
        project: The project.
        limits: The project's own limits if an admin has set them, otherwise the service's.
        use: Current use.
        own: Whether an admin has set limits for this project.
    """

    project: str
    limits: Quota
    use: Use
    own: bool = False


class AuditEvent(Record):
    """Who did what.

    Attributes:
        id: Increases with every event.
        at: When.
        project: The project concerned; "" if unknown.
        actor: Id of the token; "" if unknown.
        actor_name: Name of the token.
        action: study.submit, study.pause, study.resume, study.cancel, study.extend, study.retry, study.delete,
            study.expire, token.create, token.revoke, quota.set, auth.failed.
        target: Id of the study or token, or the project.
        details: Further details.
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
