"""Commands for a service, given by DRIFTLINE_URL and DRIFTLINE_TOKEN or by --url and --token-file.

Some of them also take output folders.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from driftline.client.environment import environment
from service.cli import completion
from service.cli.options import Cores, Json, RayAddress, StudyFile, StudyName, TokenFile, Url, Where

STUDIES = "Studies on a service"
ACCESS = "Projects and tokens"
"""Headings in `driftline --help`."""

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]

app = typer.Typer()
token_app = typer.Typer(name="token", help="Tokens of a service (needs scope admin).", no_args_is_help=True)
app.add_typer(token_app, rich_help_panel=ACCESS)


@app.command(rich_help_panel=STUDIES)
def submit(
    study: StudyFile,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the result and show it.")] = False,
    key: Annotated[
        str | None, typer.Option(help="Idempotency key: using it again returns the study submitted before.")
    ] = None,
    warm_start: Annotated[
        str | None,
        typer.Option(metavar="STUDY", help="First try what this study on the service recommends."),
    ] = None,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Submit a study to a service; prints its id."""
    from service.cli import jobs

    with jobs.connected(url, token_file) as client:
        jobs.submit(client, url or environment().url or "", study, warm_start, wait=wait, key=key, as_json=as_json)


@app.command("list", rich_help_panel=STUDIES)
def list_(
    state: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STATE", help="Only studies in this state; may be repeated.", autocompletion=completion.states
        ),
    ] = None,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """List the studies of your project on a service, newest first, with their owners."""
    from service.cli import jobs

    with jobs.connected(url, token_file) as client:
        jobs.list_all(client, state or (), as_json=as_json)


@app.command(rich_help_panel="Studies")
def watch(
    study: Where,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the study's record as a line of JSON whenever it has changed.")
    ] = False,
) -> None:
    """Watch a study, in a folder or on a service, until it has finished; Ctrl-C leaves it running."""
    from service.cli import jobs

    with jobs.readable(study, url, token_file) as job:
        jobs.wait(job, study, as_json=as_json)


@app.command(rich_help_panel=STUDIES)
def pause(study: StudyName, url: Url = None, token_file: TokenFile = None, as_json: Json = False) -> None:
    """Pause a study on a service: its packs write checkpoints, from which `resume` continues."""
    from service.cli import jobs

    with jobs.connected(url, token_file) as client:
        jobs.say(client.job(study).pause(), as_json=as_json)


@app.command(rich_help_panel=STUDIES)
def cancel(
    study: StudyName, yes: Yes = False, url: Url = None, token_file: TokenFile = None, as_json: Json = False
) -> None:
    """Cancel a study on a service for good; its results stay."""
    from service.cli import jobs

    with jobs.connected(url, token_file) as client:
        jobs.cancel(client.job(study), yes=yes, as_json=as_json)


@app.command(rich_help_panel=STUDIES)
def delete(
    study: StudyName, yes: Yes = False, url: Url = None, token_file: TokenFile = None, as_json: Json = False
) -> None:
    """Delete a study of a service: trials, curves, checkpoints, logs, runs in MLflow."""
    from service.cli import jobs

    with jobs.connected(url, token_file) as client:
        jobs.delete(client.job(study), yes=yes, as_json=as_json)


@app.command(rich_help_panel="Studies")
def extend(
    study: Where,
    trials: Annotated[
        int | None, typer.Option(min=1, help="New trials_per_method, at least the present number.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=0, help="New number of seeds, at least the present one.")] = None,
    ray_address: RayAddress = None,
    cores: Cores = None,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Give a study a larger budget, in a folder or on a service; a finished one continues, without repeating trials."""
    from driftline.errors import InvalidSpec
    from service.cli import jobs
    from service.cli.jobs import is_remote

    if trials is None and seeds is None:
        raise InvalidSpec("", "nothing to extend: pass --trials or --seeds")
    if not is_remote(study, url):
        from service.cli.run import extend_study

        extend_study(Path(study), (trials, seeds), ray_address, cores, as_json=as_json)
        return
    with jobs.connected(url, token_file) as client:
        jobs.say(client.job(study).extend(trials_per_method=trials, seeds=seeds), as_json=as_json)


@app.command(rich_help_panel="Studies")
def logs(
    study: Where,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing until the study has finished.")] = False,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Show the logs of a study's drivers, in a folder or on a service."""
    from service.cli import jobs

    with jobs.readable(study, url, token_file) as job:
        jobs.show_logs(job, follow=follow, as_json=as_json)


@app.command(rich_help_panel=ACCESS)
def whoami(url: Url = None, token_file: TokenFile = None, as_json: Json = False) -> None:
    """Show what your token allows."""
    from service.cli import token_commands

    token_commands.show_own(url, token_file, as_json=as_json)


@app.command(rich_help_panel=ACCESS)
def quota(
    project: Annotated[
        str | None, typer.Argument(metavar="PROJECT", help="Any project (needs scope admin); your own by default.")
    ] = None,
    studies: Annotated[str | None, typer.Option(metavar="N|none", help="Set: unfinished studies.")] = None,
    trials: Annotated[str | None, typer.Option(metavar="N|none", help="Set: trials in unfinished studies.")] = None,
    gpu_hours: Annotated[str | None, typer.Option(metavar="N|none", help="Set: GPU-hours used in total.")] = None,
    gpu_hours_pause: Annotated[
        str | None, typer.Option(metavar="yes|no", help="Set: whether studies are paused when GPU-hours are used up.")
    ] = None,
    retention_days: Annotated[
        str | None, typer.Option(metavar="N|none", help="Set: days after which finished studies are deleted.")
    ] = None,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Show a project's limits and use; options set its limits."""
    from service.cli import quota_command

    changes = {
        "studies": studies,
        "trials": trials,
        "gpu_hours": gpu_hours,
        "gpu_hours_pause": gpu_hours_pause,
        "retention_days": retention_days,
    }
    quota_command.quota(url, token_file, project, changes, as_json=as_json)


@token_app.command("create")
def create_token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the holder or purpose.")],
    project: Annotated[str, typer.Option(help="The project whose studies it may see and submit.")] = "default",
    scope: Annotated[
        list[str] | None, typer.Option(help="read, write or admin; may be repeated. read and write by default.")
    ] = None,
    days: Annotated[float | None, typer.Option(help="Days until it expires; never by default.")] = None,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Make a token and print it once; its id goes to stderr."""
    from service.cli import token_commands

    token_commands.create(url, token_file, name, project, scope or ["read", "write"], days, as_json=as_json)


@token_app.command("list")
def list_tokens(url: Url = None, token_file: TokenFile = None, as_json: Json = False) -> None:
    """List all tokens by id and name; the tokens themselves are not stored."""
    from service.cli import token_commands

    token_commands.show_all(url, token_file, as_json=as_json)


@token_app.command("revoke")
def revoke_token(
    token: Annotated[str, typer.Argument(metavar="ID", help="The id that `driftline token list` shows.")],
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Revoke a token: the next request with it is rejected.

    Restoring a backup from before makes it valid again: revoke it again then.
    """
    from service.cli import token_commands

    token_commands.revoke(url, token_file, token, as_json=as_json)
