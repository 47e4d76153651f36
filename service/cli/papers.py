"""`driftline papers`: runs the papers' figures and tables as studies, and says whether their statements hold."""

from __future__ import annotations

import json
import textwrap
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from driftline.errors import InvalidSpec
from service.cli import completion
from service.cli.file_errors import cannot_write
from service.cli.options import Cores, Json
from service.cli.terminal import echo
from trainers import hint, shown
from trainers.own_files import put

app = typer.Typer(name="papers", help="Figures and tables of the papers: run them, and check their statements.")

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="A preset; `driftline papers` lists them.", autocompletion=completion.papers),
]


@app.callback(invoke_without_command=True)
def list_presets(context: typer.Context, as_json: Json = False) -> None:
    """List the presets of the papers, each with the statement that it should show."""
    if context.invoked_subcommand is not None:
        return
    from driftline.study.papers import presets

    if as_json:
        rows = [{"name": name, "figure": preset.figure, "statement": preset.statement} for name, preset in presets()]
        echo(json.dumps(rows, indent=2))
        return
    for name, preset in presets():
        echo(f"{name}: {preset.figure}")
        echo(textwrap.fill(preset.statement, 100, initial_indent="    ", subsequent_indent="    "))


@app.command()
def run(
    name: Name,
    scale: Annotated[str, typer.Option(metavar="small|full", help="For two cores, or as in the paper.")] = "small",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="Output folder; out/papers/NAME by default.")
    ] = None,
    panel: Annotated[str | None, typer.Option(metavar="PANEL", help="Only this panel of the figure.")] = None,
    cores: Cores = None,
) -> None:
    """Run a figure or table; repeating the command resumes it. Each of several panels gets a folder of its own."""
    from driftline.client.environment import environment
    from driftline.study.papers import SCALES, preset
    from driftline.study.yaml_files import dumped
    from service.cli.begun_run import BegunRun
    from service.cli.run import run_study
    from service.settings import ray_address

    chosen = preset(name)
    if scale not in SCALES:
        raise InvalidSpec("--scale", f"must be {' or '.join(SCALES)}, got {shown(scale)}")
    if panel is not None and panel not in chosen.panels:
        raise InvalidSpec("--panel", f"no panel {shown(panel)}: {hint(panel, chosen.panels)}")
    studies = {
        panel_name: chosen.study_of(name, scale, panel_name)
        for panel_name in chosen.panels
        if panel in (None, panel_name)
    }
    folder = out or environment().out / "papers" / name
    for study in studies.values():
        study.check()
    for panel_name, study in studies.items():
        run_study(BegunRun(study, dumped(study.to_json()), folder / panel_name, ray_address(), cores, None))


@app.command()
def check(
    name: Name,
    out: Annotated[Path, typer.Argument(metavar="DIR", help="The output folder of `driftline papers run`.")],
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw the curves of all panels into this file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say whether a figure or table holds: agrees, disagrees or undecided, with the numbers that decide."""
    from driftline.results.show.curves_picture import curves_png
    from driftline.results.statements import Judgement, judged, overall
    from driftline.study.papers import SCALES, preset
    from service.embedded.folder import DATABASE
    from service.embedded.folder_results import stored_reading, stored_study

    chosen = preset(name)
    by_panel: dict[str, list[Judgement]] = {}
    begun = [panel for panel in chosen.panels if (out / panel / DATABASE).exists()] or chosen.panels[:1]
    for panel in chosen.panels:
        folder, statements = out / panel, chosen.statements(panel)
        if panel not in begun:
            by_panel[panel] = [Judgement(statement.text, "undecided", "not run") for statement in statements]
            continue
        record = stored_study(folder)
        for label in chosen.labels(panel):
            if label not in record.study.labels:
                raise InvalidSpec("DIR", f"must hold the study of {name}, but {folder} has no label {shown(label)}")
        if record.fingerprint not in [chosen.study_of(name, scale, panel).fingerprint() for scale in SCALES]:
            echo(f"note: the study in {folder} is {name} at neither scale, but changed", err=True)
        if record.state != "SUCCEEDED":
            echo(f"note: the study in {folder} is {record.state.lower()}: this is its result so far", err=True)
        by_panel[panel] = judged(
            statements,
            partial(stored_reading, folder),
            lambda panel: stored_reading(out / panel) if panel in begun else None,
        )
    if picture is not None:
        metrics = dict.fromkeys(statement.metric for statement in chosen.shows if statement.metric is not None)
        drawn = curves_png({panel or name: stored_reading(out / panel) for panel in begun}, list(metrics))
        try:
            put(picture, drawn)
        except OSError as error:
            raise cannot_write("--picture", picture, error) from error
    outcome = overall(judgement for judgements in by_panel.values() for judgement in judgements)
    if as_json:
        panels = {panel: [asdict(judgement) for judgement in judgements] for panel, judgements in by_panel.items()}
        echo(json.dumps({"name": name, "figure": chosen.figure, "outcome": outcome, "panels": panels}, indent=2))
        return
    echo(f"{chosen.figure}: {outcome}")
    echo(textwrap.fill(chosen.statement, 100))
    for panel, judgements in by_panel.items():
        for judgement in judgements:
            echo(f"  {panel + ': ' if panel else ''}{judgement.statement}: {judgement.outcome}, {judgement.why}")
