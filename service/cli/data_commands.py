"""`driftline data describe`: what a user's data hold, as a table and as a picture; `driftline data fetch`."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from driftline.errors import InvalidSpec, NotFound
from service.cli.file_errors import cannot_write, file_exists
from service.cli.options import Json
from service.cli.terminal import echo
from trainers import SpecError
from trainers.own_files import put_new

if TYPE_CHECKING:
    from trainers.data_description import Description

app = typer.Typer(
    name="data", help="Your own data: what they hold, and what is wrong; public data.", no_args_is_help=True
)

DataPath = Annotated[str, typer.Argument(metavar="PATH", help="A file or folder in any format that Driftline reads.")]
Inputs = Annotated[str | None, typer.Option(metavar="COLUMNS", help="Columns of inputs, separated by commas.")]
Targets = Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of labels, or of numbers to predict.")]
Client = Annotated[str | None, typer.Option(metavar="COLUMN", help="Column that says whose each example is.")]
Format = Annotated[str | None, typer.Option("--format", metavar="NAME", help="Format, if the name does not say it.")]

_TARGETS = {
    "numbers": "numbers to predict",
    "tokens": "each word of a text, from those before it",
    "pairs": "each item of a client, from those before it",
}
_COLUMNS, _LABELS = 30, 12  # rows of the tables


@app.callback()
def group() -> None:
    """Makes `describe` a command of its own."""


@app.command()
def describe(
    path: DataPath,
    targets: Targets = None,
    inputs: Inputs = None,
    client: Client = None,
    format_: Format = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw sizes and labels by client: .png, .svg or .pdf.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show clients, sizes, label skew, an example and what is probably wrong."""
    summary = description(path, targets, inputs, client, format_)
    if plot is not None:
        from service.cli.data_picture import picture

        kind = plot.suffix.removeprefix(".")
        if kind not in ("png", "svg", "pdf"):
            raise InvalidSpec("--plot", f"must end in .png, .svg or .pdf, got {plot.name}")
        try:
            put_new(plot, picture(summary, kind))
        except FileExistsError as error:
            raise file_exists(plot) from error
        except OSError as error:
            raise cannot_write("--plot", plot, error) from error
    if as_json:
        echo(json.dumps(_document(summary), indent=2))
        return
    _print(path, summary)
    if plot is not None:
        echo(f"Drew {plot}.")


@app.command()
def fetch(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A public data set; without it, all are listed.")
    ] = None,
    to: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where to put it; default: NAME in $DATA_DIR, or here.")
    ] = None,
    mirror: Annotated[
        str | None, typer.Option(metavar="URL", help="Folder of a server of yours with the same files.")
    ] = None,
) -> None:
    """Download a public data set, with its checksums; what an interrupted download has is kept."""
    from service.cli.public_data import PUBLIC

    if name is None:
        width = max(map(len, PUBLIC))
        for data_name, data in PUBLIC.items():
            echo(f"{data_name:<{width}}  {data.about}")
        return
    if name not in PUBLIC:
        raise NotFound(f"no public data set {name!r}: known are {', '.join(PUBLIC)}")
    from service.cli.data_fetch import fetch as fetch_data

    data = PUBLIC[name]
    folder = to or Path(os.environ.get("DATA_DIR") or ".") / name
    fetch_data(data, folder, mirror, echo)
    path = name if to is None else str(to)
    task = {"name": "data", "path": path, **data.task}
    echo(f"terms: {data.terms}")
    echo(f"task: {json.dumps(task)}")


def description(
    path: str, targets: str | None, inputs: str | None, client: str | None, format_: str | None
) -> Description:
    """The description of data, by the options of a command.

    Raises:
        InvalidSpec: The data are damaged, or no task can be made of them.
    """
    from trainers.data_description import describe as describe_data

    listed = None if inputs is None else [name.strip() for name in inputs.split(",")]
    options = {"targets": targets, "inputs": listed, "client": client, "format": format_}
    try:
        return describe_data(path, {key: value for key, value in options.items() if value is not None})
    except SpecError as error:  # keys of the task are options here
        message = re.sub(r"^task\.(targets|inputs|client|format)\b", r"--\1", str(error))
        raise InvalidSpec("", message.removeprefix("task.path: ")) from error


def _document(summary: Description) -> dict[str, Any]:
    return {
        "task": summary.task,
        "format": summary.format,
        "columns": [vars(column) for column in summary.columns],
        "clients": len(summary.sizes),
        "sizes": summary.sizes.tolist(),
        "names": list(summary.people),
        "labels": dict(zip(summary.labels, summary.counts.sum(0).tolist(), strict=True)),
        "label_skew": summary.skew,
        "test_examples": summary.test,
        "notes": list(summary.notes),
    }


def _print(path: str, summary: Description) -> None:
    sizes = summary.sizes
    echo(f"{path}: {summary.format}, {sizes.sum()} training and {summary.test} test examples")
    middle = f"median {median(sizes.tolist()):g}" + ("" if summary.people else ", drawn at random")
    echo(f"clients     {len(sizes)}, of {sizes.min()} to {sizes.max()} examples, {middle}")
    if summary.skew is None:
        echo(f"targets     {_TARGETS[summary.kind]}")
    else:
        counts = summary.counts.sum(0).tolist()
        most = [f"{label} {count}" for label, count in zip(summary.labels, counts, strict=True)]
        more = [f"and {len(most) - _LABELS} more"] if len(most) > _LABELS else []
        echo(f"labels      {len(most)}: {', '.join([*most[:_LABELS], *more])}")
        echo(f"label skew  {summary.skew:.2f} (0: all clients have the same mixture of labels; near 1: each its own)")
    echo("")
    shown = summary.columns[:_COLUMNS]
    width = max(len("column"), *(len(column.name) for column in shown))
    what = max(len("holds"), *(len(column.what) for column in shown))
    echo(f"{'column':<{width}}  {'holds':<{what}}  first example")
    for column in shown:
        echo(f"{column.name:<{width}}  {column.what:<{what}}  {column.first}")
    if len(summary.columns) > _COLUMNS:
        echo(f"and {len(summary.columns) - _COLUMNS} more columns")
    if summary.notes:
        echo("")
    for note in summary.notes:
        echo(f"note: {note}")
