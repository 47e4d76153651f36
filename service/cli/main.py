"""The command `driftline`: its commands, options and exit codes.

Slow imports are inside the commands, so that --help and usage errors appear at once.
"""

from __future__ import annotations

import atexit
import errno
import gc
import sys
from pathlib import Path
from typing import Annotated

import typer

from driftline.errors import DriftlineError, InvalidSpec
from driftline.extras import missing
from service.cli import completion, data_commands, doctor, papers, remote, theory
from service.cli.options import (
    At,
    Compute,
    Cores,
    Cost,
    FlopsPerExample,
    Folder,
    Json,
    Network,
    Overlap,
    RayAddress,
    Ring,
    Stragglers,
    StudyFile,
    TokenFile,
    Url,
    Where,
)
from service.cli.terminal import echo
from service.garbage import collect_rarely
from trainers import PluginError

OWN_PROCESS = "own process"
"""Tells commands that the process ends with them."""

app = typer.Typer(
    name="driftline",
    help="Tunes local update methods of federated and meta-learning and shows their trade-offs.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(show: bool) -> None:
    if show:
        from importlib.metadata import version

        echo(f"driftline {version('driftline')}")
        raise typer.Exit()


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of all commands."""


@app.command(rich_help_panel="Studies")
def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write; never overwritten.")] = Path(
        "study.yaml"
    ),
    example: Annotated[
        str,
        typer.Option(
            "--from", metavar="NAME", help="The example to write; see --list.", autocompletion=completion.example_names
        ),
    ] = "first",
    data: Annotated[
        str | None, typer.Option(metavar="PATH", help="A study of your own data, a file or folder, instead.")
    ] = None,
    targets: data_commands.Targets = None,
    inputs: data_commands.Inputs = None,
    client: data_commands.Client = None,
    format_: data_commands.Format = None,
    list_: Annotated[bool, typer.Option("--list", help="List the examples instead, one line each.")] = False,
    as_json: Json = False,
) -> None:
    """Write a commented study to start from: a small one on digits, another example, or one of your own data."""
    from service.cli.init import list_examples, write_example, write_own

    if as_json and not list_:
        raise InvalidSpec("--json", "is for --list alone")
    if list_:
        list_examples(as_json=as_json)
    elif data is not None:
        write_own(data, data_commands.description(data, targets, inputs, client, format_), file)
    else:
        write_example(example, file)


@app.command(rich_help_panel="Studies")
def validate(
    study: StudyFile,
    estimate: Annotated[
        bool, typer.Option(help="Estimate the cost; without a service, by timing a few rounds.")
    ] = True,
    warm_start: Annotated[
        str | None,
        typer.Option(metavar="DIR|STUDY", help="Check the study as it begins with this earlier one's results."),
    ] = None,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Check a study and estimate its cost, on the service if one is set; starts nothing."""
    from service.cli.check import validate_study

    validate_study(study, url, token_file, warm_start, estimate=estimate, as_json=as_json)


@app.command(rich_help_panel="Studies")
def run(
    context: typer.Context,
    study: StudyFile,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="Output folder; out/NAME by default.")
    ] = None,
    ray_address: Annotated[
        str | None, typer.Option(help="A Ray cluster to use; without it a local one is started.")
    ] = None,
    warm_start: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="First try what the study in this output folder recommends."),
    ] = None,
    cores: Cores = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed, instead of the study's own.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print frontier.json at the end instead of the table.")
    ] = False,
) -> None:
    """Run a study on this computer; repeating the command resumes it, or shows its result."""
    from service.cli.begun_run import begin

    begun = begin(study, out, ray_address, cores=cores, seed=seed, early=context.obj == OWN_PROCESS)
    from service.cli.run import run_study  # imports much, while Ray starts

    run_study(begun, warm_start, as_json=as_json)


@app.command(rich_help_panel="Studies")
def resume(
    study: Where,
    ray_address: RayAddress = None,
    cores: Cores = None,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Resume a stopped study, in a folder or on a service; finished trials are not repeated."""
    from service.cli.jobs import is_remote

    if is_remote(study, url):
        from service.cli import jobs

        with jobs.connected(url, token_file) as client:
            jobs.say(client.job(study).resume(), as_json=as_json)
        return
    from service.cli.run import resume_study

    resume_study(Path(study), ray_address, cores, as_json=as_json)


@app.command(rich_help_panel="Studies")
def retry(
    study: Where,
    trial: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Only this trial; may be repeated. All FAILED ones by default."),
    ] = None,
    ray_address: RayAddress = None,
    cores: Cores = None,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Run the FAILED trials of a study again, in a folder or on a service; reopens a finished study."""
    from service.cli.jobs import is_remote

    if is_remote(study, url):
        from service.cli import jobs

        with jobs.connected(url, token_file) as client:
            jobs.say(client.job(study).retry(*(trial or ())), as_json=as_json)
        return
    from service.cli.run import retry_trials

    retry_trials(Path(study), trial or (), ray_address, cores, as_json=as_json)


@app.command(rich_help_panel="Results")
def frontier(
    study: Where,
    json_: Annotated[bool, typer.Option("--json", help="Print frontier.json instead of the table.")] = False,
    quality: Annotated[
        str | None, typer.Option(help="Quality metric, instead of the study's own; any that the trials reported.")
    ] = None,
    cost: Cost = None,
    at: At = None,
    importance: Annotated[
        bool, typer.Option("--importance", help="Only how much each hyperparameter matters for speed and quality.")
    ] = False,
    network: Network = None,
    compute: Compute = None,
    stragglers: Stragglers = None,
    flops_per_example: FlopsPerExample = None,
    ring: Ring = None,
    overlap: Overlap = None,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Show the frontiers of a study so far, with any cost, or what to run at one: nothing is run again."""
    from service.cli.show import chosen_cost, show_frontier

    read_as = chosen_cost(
        cost, network, compute, stragglers=stragglers, flops_per_example=flops_per_example, ring=ring, overlap=overlap
    )
    show_frontier(
        study,
        as_json=json_,
        quality=quality,
        cost=read_as,
        at=at,
        importance=importance,
        url=url,
        token_file=token_file,
    )


@app.command(rich_help_panel="Results")
def compare(
    study: Where,
    first: Annotated[
        str | None,
        typer.Argument(metavar="LABEL", help="A label of the study.", autocompletion=completion.labels),
    ] = None,
    second: Annotated[
        str | None, typer.Argument(metavar="LABEL", help="Another label.", autocompletion=completion.labels)
    ] = None,
    other: Annotated[
        str | None,
        typer.Option("--with", metavar="DIR|STUDY", help="Instead of labels: another study that should be the same."),
    ] = None,
    cost: Cost = None,
    at: At = None,
    network: Network = None,
    compute: Compute = None,
    stragglers: Stragglers = None,
    flops_per_example: FlopsPerExample = None,
    ring: Ring = None,
    overlap: Overlap = None,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Compare two labels at equal budgets; says what is compared, and when no verdict is possible.

    With --with it compares the lists of trials of two studies, and names the first trial that differs.
    """
    from service.cli.show import chosen_cost, show_comparison, show_first_difference

    read_as = chosen_cost(
        cost, network, compute, stragglers=stragglers, flops_per_example=flops_per_example, ring=ring, overlap=overlap
    )
    if other is not None and first is None and read_as is None and at is None:
        show_first_difference(study, other, as_json=as_json, url=url, token_file=token_file)
        return
    if other is not None or first is None or second is None:
        raise InvalidSpec("LABEL", "give two labels of the study, or another study with --with (and no cost)")
    show_comparison(study, first, second, as_json=as_json, cost=read_as, at=at, url=url, token_file=token_file)


@app.command(rich_help_panel="Results")
def export(
    study: Where,
    table: Annotated[Path, typer.Argument(metavar="TABLE.parquet", help="The file to write.")],
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Write the ended trials of a study to a table, for `driftline replay`."""
    from service.cli.replay import export_table

    export_table(study, table, as_json=as_json, url=url, token_file=token_file)


@app.command(rich_help_panel="Results")
def replay(
    tables: Annotated[
        list[Path], typer.Argument(metavar="TABLE.parquet", help="Recorded tables with different labels.")
    ],
    labels: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Labels to compare, all by default; one label twice compares it with itself."),
    ] = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Configurations searched for each label.")] = None,
    searches: Annotated[
        int | None, typer.Option(min=1, help="Independent searches among which both are divided.")
    ] = None,
    confirm: Annotated[int | None, typer.Option(min=1, help="Configurations confirmed for each label.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Fresh seeds for each confirmed configuration.")] = None,
    rungs: Annotated[
        str | None, typer.Option(metavar="auto|ROUND,...", help="Rounds after which search trials may be stopped.")
    ] = None,
    rule: Annotated[str | None, typer.Option(help="Which continue: halving, extrapolation or forecast.")] = None,
    sampler: Annotated[str, typer.Option(help="random, tpe, ...; proposals move to recorded rows.")] = "random",
    studies: Annotated[int, typer.Option(min=1, help="How many studies to simulate.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first study; the others count on.")] = 0,
    lift: Annotated[
        float, typer.Option(min=0.0, help="Multiply the area of the last label, to see how often this is noticed.")
    ] = 1.0,
    as_json: Json = False,
) -> None:
    """Simulate studies from recorded tables: how often a budget gives a verdict, and which."""
    from service.cli.replay import replay_tables

    budget: dict[str, int | str | None] = {"trials": trials, "searches": searches, "confirm": confirm, "seeds": seeds}
    budget |= {"rungs": rungs, "rule": rule}
    replay_tables(tables, labels, budget, sampler=sampler, studies=studies, seed=seed, lift=lift, as_json=as_json)


@app.command(rich_help_panel="Methods and tasks")
def methods(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Show this one in full.", autocompletion=completion.method_names),
    ] = None,
    as_json: Json = False,
) -> None:
    """List methods, optimizers, schedules and presets, or show one with its hyperparameters and search space."""
    from service.cli.show import show_methods

    show_methods(name, as_json=as_json)


@app.command(rich_help_panel="Methods and tasks")
def tasks(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Show this one in full.", autocompletion=completion.task_names),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the tasks, or show one with its settings."""
    from service.cli.show import show_tasks

    show_tasks(name, as_json=as_json)


@app.command(rich_help_panel="Results")
def models(
    folder: Folder,
    label: Annotated[
        str | None,
        typer.Option(metavar="LABEL", help="Only this label's models.", autocompletion=completion.labels),
    ] = None,
    as_json: Json = False,
) -> None:
    """Train what a finished study recommends again, and log the models to MLflow, one per row of the table."""
    from service.cli.ui import log_models

    log_models(folder, label, as_json=as_json)


@app.command("open", rich_help_panel="Results")
def open_(folder: Folder) -> None:
    """Open the page of a study, frontier.html, in a browser."""
    from service.cli.ui import open_page

    open_page(folder)


@app.command(rich_help_panel="Results")
def ui(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR", help="Output folders of `driftline run`; several open together.")
    ],
    port: Annotated[
        int, typer.Option(min=1, max=65535, help="Port of the MLflow server, on this computer only.")
    ] = 5000,
    browser: Annotated[bool, typer.Option(help="Open the study's page in a browser.")] = True,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the page's address and MLflow's tracking URI as one line of JSON.")
    ] = False,
) -> None:
    """Open a study in the MLflow UI, or several in one."""
    from service.cli.ui import open_ui

    open_ui(folders, port, browser=browser, as_json=as_json)


@app.command(rich_help_panel="Running a service")
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port; 8080, or 8081 for a scheduler.")] = None,
    only: Annotated[str | None, typer.Option(metavar="api|scheduler", help="Run only this part.")] = None,
    mlflow_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Also start MLflow's server on this port of this computer.")
    ] = None,
    per_project: Annotated[
        int | None,
        typer.Option(min=1, help="Maximum number of studies of one project that run at once."),
    ] = None,
) -> None:
    """Run a service that others submit studies to; set up by DRIFTLINE_* variables (see docs/service.md)."""
    from service.cli.serve import serve as run_service

    run_service(host, port, only, mlflow_port, per_project)


@app.command(rich_help_panel="Running a service")
def migrate(
    database: Annotated[
        str | None, typer.Option(help="URL of the database; DRIFTLINE_DATABASE_URL by default.")
    ] = None,
    to: Annotated[str | None, typer.Option(help="Go back to this revision; later changes are lost.")] = None,
) -> None:
    """Upgrade a service's database to the newest revision; safe to repeat."""
    from service.cli.serve import migrate as run_migration

    run_migration(database, to)


app.add_typer(data_commands.app, rich_help_panel="Studies")
app.add_typer(remote.app)
app.add_typer(doctor.app, rich_help_panel="Running a service")
app.add_typer(theory.app, rich_help_panel="Theory")
app.add_typer(papers.app, rich_help_panel="Theory")


def main() -> None:
    """Runs the command line; a DriftlineError becomes an exit code and a line on stderr, or one for each error.

    Exit codes: 0 done, 1 failed, 2 invalid input, 3 to 6 as listed in driftline/errors.py, 130 stopped by Ctrl-C.
    """
    collect_rarely()
    atexit.register(gc.freeze)  # the interpreter's last collection takes 3 s with Ray, torch and MLflow loaded
    try:
        app(obj=OWN_PROCESS)
    except DriftlineError as error:
        for line in str(error).splitlines():
            echo(f"driftline: {line}", err=True)
        sys.exit(error.exit_code)
    except PluginError as error:
        echo(f"driftline: {error}", err=True)
        sys.exit(2)
    except ModuleNotFoundError as error:
        if (named := missing(error)) is None:
            raise
        echo(f"driftline: {named}", err=True)
        sys.exit(named.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    except OSError as error:
        if error.filename is None and error.errno != errno.ENOSPC:
            raise
        prefix = "" if error.filename is None else f"{error.filename}: "
        echo(f"driftline: {prefix}{error.strerror or error}", err=True)
        sys.exit(1)
