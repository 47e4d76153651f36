"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.cli import completion
from trainers import COSTS

Url = Annotated[str | None, typer.Option("--url", help="Address of the service; DRIFTLINE_URL by default.")]
TokenFile = Annotated[
    Path | None, typer.Option("--token-file", help="File that holds the bearer token; DRIFTLINE_TOKEN by default.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
StudyName = Annotated[
    str,
    typer.Argument(metavar="STUDY", help="A study's id, or its name (the newest).", autocompletion=completion.studies),
]

StudyFile = Annotated[Path, typer.Argument(metavar="STUDY.yaml", help="The study; `driftline init` writes one.")]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="An output folder of `driftline run`.")]
Where = Annotated[
    str,
    typer.Argument(
        metavar="DIR|STUDY",
        help="An output folder, or the id or name of a study on a service.",
        autocompletion=completion.studies,
    ),
]

RayAddress = Annotated[
    str | None, typer.Option(help="For a folder: a Ray cluster to use; without it a local one is started.")
]
Cores = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="CPU cores to use here; by default all that this process may use."),
]

Cost = Annotated[
    str | None,
    typer.Option(
        help=f"Cost, instead of the study's own: {', '.join(COSTS)}.",
        autocompletion=completion.costs,
    ),
]
At = Annotated[
    str | None,
    typer.Option("--at", metavar="COST", help="Only what holds for up to this cost: 20, or 392.4k, 1.5M, 2G bytes."),
]
Network = Annotated[
    str | None, typer.Option(metavar="BANDWIDTH,LATENCY", help="For --cost time: a client's link, such as 10Gbit,10ms.")
]
Compute = Annotated[
    str | None, typer.Option(metavar="SPEED", help="For --cost time: a client's computer, such as 300GFLOPS.")
]
Stragglers = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE", help="For --cost time: mean share by which chance slows a client down; 0 by default."
    ),
]
Ring = Annotated[
    str | None,
    typer.Option(
        metavar="COMPUTERS,BANDWIDTH,LATENCY",
        help="For --cost time: computers of each client that share its batches, such as 8,400Gbit,1ms.",
    ),
]
Overlap = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE", help="For --cost time: share of a local step during which models are sent; 0 by default."
    ),
]
FlopsPerExample = Annotated[
    float | None,
    typer.Option(
        metavar="N",
        help="For --cost time: operations of one example's gradient; those stored with the study by default.",
    ),
]
