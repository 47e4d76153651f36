"""The commands for tokens."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import cast, get_args

from pydantic import ValidationError

from driftline.client.admin_client import AdminClient
from driftline.errors import InvalidSpec
from driftline.results.show.escaped_text import escaped
from driftline.wire.access import GivenScope, NewToken
from service.cli.jobs import address, refuse, say_waiting
from service.cli.terminal import echo


def show_own(url: str | None, token_file: Path | None, *, as_json: bool) -> None:
    """Prints what your token allows."""
    with _api(url, token_file) as api:
        whoami = api.whoami()
    if as_json:
        echo(whoami.model_dump_json(indent=2))
        return
    ends = f", until {whoami.expires_at:%Y-%m-%d %H:%M}" if whoami.expires_at else ""
    subject = f" ({whoami.id})" if whoami.id.startswith("oidc:") else ""  # names from an issuer need not be unique
    echo(f"{escaped(whoami.name)}{escaped(subject)}: project {whoami.project}, may {', '.join(whoami.scopes)}{ends}")


def create(
    url: str | None,
    token_file: Path | None,
    name: str,
    project: str,
    scopes: list[str],
    days: float | None,
    *,
    as_json: bool,
) -> None:
    """Makes a token and prints it.

    Raises:
        InvalidSpec: A scope is unknown.
    """
    strange = [scope for scope in scopes if scope not in get_args(GivenScope)]
    if strange:
        raise InvalidSpec("--scope", f"must be among {', '.join(get_args(GivenScope))}, got {strange[0]!r}")
    try:
        new_token = NewToken(name=name, project=project, scopes=cast(list[GivenScope], scopes), expires_in_days=days)
    except ValidationError as error:
        refuse(error, NewToken, {"expires_in_days": "--days", "project": "--project", "name": "NAME"})
    with _api(url, token_file) as api:
        created = api.make_token(new_token)
    if as_json:
        echo(created.model_dump_json(indent=2))
        return
    ends = f"; it expires {_day(created.expires_at)}" if created.expires_at else ""
    echo(f"{created.id} for {escaped(created.name)}, project {created.project}{ends}. Shown only once:", err=True)
    echo(created.token)


def show_all(url: str | None, token_file: Path | None, *, as_json: bool) -> None:
    """Prints all tokens."""
    with _api(url, token_file) as api:
        tokens = api.tokens()
    if as_json:
        echo(json.dumps([token.model_dump(mode="json") for token in tokens], indent=2))
        return
    for token in tokens:
        facts = [f"created {_day(token.created_at)}"]
        facts += [f"expires {_day(token.expires_at)}"] if token.expires_at else []
        facts += [f"last used {_day(token.last_used_at)}"] if token.last_used_at else []
        facts += [f"revoked {_day(token.revoked_at)}"] if token.revoked_at else []
        name = escaped(token.name)
        echo(f"{token.id}  {token.project:<12} {','.join(token.scopes):<22} {name}  ({', '.join(facts)})")


def revoke(url: str | None, token_file: Path | None, token: str, *, as_json: bool) -> None:
    """Revokes a token."""
    with _api(url, token_file) as api:
        record = api.revoke_token(token)
    echo(record.model_dump_json(indent=2) if as_json else f"{token}: revoked")


def _api(url: str | None, token_file: Path | None) -> AdminClient:
    where, token = address(url, token_file)
    return AdminClient(where, token, on_wait=say_waiting)


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M}"
