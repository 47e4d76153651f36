"""The command `driftline quota`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from driftline.client.admin_client import AdminClient
from driftline.errors import InvalidSpec
from driftline.wire.access import ProjectQuota, Quota
from service.cli.jobs import address, refuse, say_waiting
from service.cli.terminal import echo


def quota(
    url: str | None,
    token_file: Path | None,
    project: str | None,
    changes: Mapping[str, str | None],
    *,
    as_json: bool,
) -> None:
    """Sets the given limits of a project, and prints its quota.

    Args:
        url: URL of the service.
        token_file: File with the token.
        project: Name of the project; None is the token's own.
        changes: Field of `Quota` -> a number, "none" for no limit, "yes" or "no", or None to keep it.
        as_json: Print JSON.

    Raises:
        InvalidSpec: A limit is neither a number nor "none", or a switch neither "yes" nor "no".
    """
    new = {name: _limit(name, text) for name, text in changes.items() if text is not None}
    where, token = address(url, token_file)
    with AdminClient(where, token, on_wait=say_waiting) as api:
        quota = api.quota(project)
        if new:
            try:
                limits = Quota.model_validate({**quota.limits.model_dump(), **new})
            except ValidationError as error:
                refuse(error, Quota, {name: f"--{name.replace('_', '-')}" for name in changes})
            quota = api.set_quota(quota.project, limits)
    if as_json:
        echo(quota.model_dump_json(indent=2))
        return
    _say(quota)


def _limit(name: str, text: str) -> float | int | None:
    option = f"--{name.replace('_', '-')}"
    if name == "gpu_hours_pause":
        if text not in ("yes", "no"):
            raise InvalidSpec(option, f"must be yes or no, got {text!r}")
        return text == "yes"
    if text == "none":
        return None
    try:
        return int(text) if name in ("studies", "trials") else float(text)
    except ValueError:
        raise InvalidSpec(option, f"must be a number, or none for no limit, got {text!r}") from None


def _say(quota: ProjectQuota) -> None:
    origin = "its own limits" if quota.own else "the service's limits"
    echo(f"{quota.project}: {origin}")
    for name, what in (("studies", "unfinished studies"), ("trials", "trials in these"), ("gpu_hours", "GPU-hours")):
        limit, use = getattr(quota.limits, name), getattr(quota.use, name)
        then = ", then studies are paused" if name == "gpu_hours" and quota.limits.gpu_hours_pause else ""
        echo(f"  {what:<20} {use:g} of {'unlimited' if limit is None else f'{limit:g}'}{then}")
    echo(f"  {'curves':<20} {quota.use.curve_bytes / 1e6:,.1f} MB in {quota.use.curve_rows:,} rows")
    days = quota.limits.retention_days
    kept = "are kept forever" if days is None else f"are deleted {days:g} days after their end"
    echo(f"  {'finished studies':<20} {kept}")
