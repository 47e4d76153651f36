"""The commands that speak to a service: at DRIFTLINE_URL with DRIFTLINE_TOKEN, or as --url and --token-file say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()
token_app = typer.Typer(name="token", help="Tokens of a service (needs scope admin).", no_args_is_help=True)
app.add_typer(token_app)

Url = Annotated[str | None, typer.Option("--url", help="Address of the service; DRIFTLINE_URL by default.")]
TokenFile = Annotated[
    Path | None, typer.Option("--token-file", help="File that holds the bearer token; DRIFTLINE_TOKEN by default.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
StudyName = Annotated[str, typer.Argument(metavar="STUDY", help="A study's id, or its name (the newest).")]
StudyFile = Annotated[Path, typer.Argument(metavar="STUDY.yaml", help="The study; see examples/digits.yaml.")]


@app.command()
def submit(
    study: StudyFile,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the result and show it.")] = False,
    key: Annotated[
        str | None, typer.Option(help="The same key again gives the study submitted before, not another one.")
    ] = None,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Submit a study to a service; prints its id."""
    from service.cli import jobs

    with jobs.connected(url, token_file) as client:
        jobs.submit(client, study, wait=wait, key=key, as_json=as_json)


@app.command("list")
def list_(url: Url = None, token_file: TokenFile = None, as_json: Json = False) -> None:
    """List the studies of a service, newest first."""
    from service.cli import jobs

    with jobs.connected(url, token_file) as client:
        jobs.list_all(client, as_json=as_json)


@app.command()
def watch(study: StudyName, url: Url = None, token_file: TokenFile = None) -> None:
    """Watch a study of a service until it has finished; Ctrl-C leaves it running."""
    from service.cli import jobs

    with jobs.connected(url, token_file) as client:
        jobs.wait(client.job(study))


@app.command()
def pause(study: StudyName, url: Url = None, token_file: TokenFile = None, as_json: Json = False) -> None:
    """Pause a study of a service: its packs write checkpoints, `resume` goes on from there."""
    from service.cli import jobs

    with jobs.connected(url, token_file) as client:
        jobs.say(client.job(study).pause(), as_json=as_json)


@app.command()
def cancel(study: StudyName, url: Url = None, token_file: TokenFile = None, as_json: Json = False) -> None:
    """End a study of a service for good; what was measured stays."""
    from service.cli import jobs

    with jobs.connected(url, token_file) as client:
        jobs.say(client.job(study).cancel(), as_json=as_json)


@app.command()
def delete(
    study: StudyName,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Delete a study of a service: trials, curves, checkpoints, logs, runs in MLflow."""
    from service.cli import jobs

    with jobs.connected(url, token_file) as client:
        jobs.delete(client.job(study), yes=yes)


@app.command()
def extend(
    study: StudyName,
    trials: Annotated[int | None, typer.Option(min=1, help="New trials_per_method, at least as many as now.")] = None,
    seeds: Annotated[int | None, typer.Option(min=0, help="New number of seeds, at least as many as now.")] = None,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Give a study of a service a larger budget; a finished one runs again and repeats no trial."""
    from driftline.errors import InvalidSpec
    from service.cli import jobs

    if trials is None and seeds is None:
        raise InvalidSpec("--trials", "or --seeds must be given: the new numbers")
    with jobs.connected(url, token_file) as client:
        jobs.say(client.job(study).extend(trials_per_method=trials, seeds=seeds), as_json=as_json)


@app.command()
def logs(
    study: StudyName,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the study has finished.")] = False,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Show what a study's drivers have logged."""
    from service.cli import jobs

    with jobs.connected(url, token_file) as client:
        jobs.show_logs(client.job(study), follow=follow, as_json=as_json)


@app.command()
def whoami(url: Url = None, token_file: TokenFile = None, as_json: Json = False) -> None:
    """Show what your token allows."""
    from service.cli import tokens

    tokens.show_own(url, token_file, as_json=as_json)


@app.command()
def quota(
    project: Annotated[
        str | None, typer.Argument(metavar="PROJECT", help="Any project (needs scope admin); your own by default.")
    ] = None,
    studies: Annotated[str | None, typer.Option(metavar="N|none", help="Set: unfinished studies.")] = None,
    trials: Annotated[str | None, typer.Option(metavar="N|none", help="Set: trials that these have in all.")] = None,
    gpu_hours: Annotated[str | None, typer.Option(metavar="N|none", help="Set: GPU-hours since the beginning.")] = None,
    gpu_hours_pause: Annotated[
        str | None, typer.Option(metavar="yes|no", help="Set: whether studies are paused when these are used up.")
    ] = None,
    retention_days: Annotated[
        str | None, typer.Option(metavar="N|none", help="Set: days after its end when a finished study is deleted.")
    ] = None,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Show what a project may have and has; with options, set what it may have."""
    from service.cli import quotas

    wanted = {
        "studies": studies,
        "trials": trials,
        "gpu_hours": gpu_hours,
        "gpu_hours_pause": gpu_hours_pause,
        "retention_days": retention_days,
    }
    quotas.quota(url, token_file, project, wanted, as_json=as_json)


@token_app.command("create")
def create_token(
    name: Annotated[str, typer.Argument(help="Whose it is, or what it is for.")],
    project: Annotated[str, typer.Option(help="Whose studies it sees and makes.")] = "default",
    scope: Annotated[
        list[str] | None, typer.Option(help="read, write, driver or admin; may be repeated. read and write by default.")
    ] = None,
    days: Annotated[float | None, typer.Option(help="Days after which it ends; never by default.")] = None,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Make a token; prints it this once, the rest on stderr."""
    from service.cli import tokens

    tokens.create(url, token_file, name, project, scope or ["read", "write"], days, as_json=as_json)


@token_app.command("list")
def list_tokens(url: Url = None, token_file: TokenFile = None, as_json: Json = False) -> None:
    """List all tokens, without the tokens themselves."""
    from service.cli import tokens

    tokens.show_all(url, token_file, as_json=as_json)


@token_app.command("revoke")
def revoke_token(
    token: Annotated[str, typer.Argument(metavar="ID", help="The id that `driftline token list` shows.")],
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Revoke a token: the next request with it is refused."""
    from service.cli import tokens

    tokens.revoke(url, token_file, token)
