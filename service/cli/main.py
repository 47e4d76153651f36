"""The command `driftline`: what it can be told, and how its errors end.

Everything heavy is imported inside the commands, so that --help and typing mistakes are answered at once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from service.cli import theory
from service.errors import DriftlineError

app = typer.Typer(
    name="driftline",
    help="Tunes local update methods of federated and meta-learning and shows their trade-offs.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

StudyFile = Annotated[Path, typer.Argument(metavar="STUDY.yaml", help="The study; see examples/digits.yaml.")]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="An output folder of `driftline run`.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"driftline {version('driftline')}")
        raise typer.Exit()


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """What is common to all commands."""


@app.command()
def validate(
    study: StudyFile,
    estimate: Annotated[bool, typer.Option(help="Time a few rounds to say how long it will take.")] = True,
) -> None:
    """Check a study and estimate its time; starts nothing."""
    from service.cli.check import validate_study

    validate_study(study, estimate=estimate)


@app.command()
def run(
    study: StudyFile,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="Where to; out/NAME by default.")
    ] = None,
    ray_address: Annotated[
        str | None, typer.Option(help="A Ray cluster to use; without it a local one is started.")
    ] = None,
) -> None:
    """Run a study here; the same study into the same folder resumes, or shows what is finished."""
    from service.cli.run import run_study

    run_study(study, out, ray_address)


@app.command()
def resume(
    folder: Folder,
    ray_address: Annotated[
        str | None, typer.Option(help="A Ray cluster to use; without it a local one is started.")
    ] = None,
) -> None:
    """Go on with a stopped study; repeats no finished trial."""
    from service.cli.run import resume_study

    resume_study(folder, ray_address)


@app.command()
def frontier(
    folder: Folder,
    json_: Annotated[bool, typer.Option("--json", help="Print frontier.json instead of the table.")] = False,
    quality: Annotated[str | None, typer.Option(help="Read against another metric that trials reported.")] = None,
    cost: Annotated[str | None, typer.Option(help="Or another cost: rounds, bytes, client_gradients, seconds.")] = None,
) -> None:
    """Show the frontiers of a study, as far as it has come."""
    from service.cli.show import show_frontier

    show_frontier(folder, as_json=json_, quality=quality, cost=cost)


@app.command()
def compare(
    folder: Folder,
    first: Annotated[str, typer.Argument(metavar="LABEL", help="A label of the study.")],
    second: Annotated[str, typer.Argument(metavar="LABEL", help="Another one.")],
) -> None:
    """Compare two labels at equal budgets, paired over seeds; says when no verdict is possible."""
    from service.cli.show import show_comparison

    show_comparison(folder, first, second)


@app.command()
def methods(name: Annotated[str | None, typer.Argument(help="Only this one, in full.")] = None) -> None:
    """List what can be tuned: methods, server optimizers and schedules with their hyperparameters."""
    from service.cli.show import show_methods

    show_methods(name)


@app.command()
def tasks(name: Annotated[str | None, typer.Argument(help="Only this one, in full.")] = None) -> None:
    """List the tasks with their settings."""
    from service.cli.show import show_tasks

    show_tasks(name)


@app.command()
def ui(
    folder: Folder,
    port: Annotated[
        int, typer.Option(min=1, max=65535, help="Port of the MLflow server, on this computer only.")
    ] = 5000,
    browser: Annotated[bool, typer.Option(help="Open the study's page in a browser.")] = True,
) -> None:
    """Open a study in the MLflow UI."""
    from service.cli.ui import open_ui

    open_ui(folder, port, browser=browser)


app.add_typer(theory.app)


def main() -> None:
    """Runs the command line; errors of ours are one line on stderr and an exit code of their kind.

    Exit codes: 0 done, 1 failed, 2 bad input, 3 to 6 as service/errors.py lists them, 130 stopped by Ctrl-C.
    """
    try:
        app()
    except DriftlineError as error:
        typer.echo(f"driftline: {error}", err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
