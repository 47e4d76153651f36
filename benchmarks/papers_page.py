"""Writes the results of docs/papers.md, and its pictures, from the output folders of `driftline papers run`.

    python -m benchmarks.papers_page out/papers     # a folder for each preset; what is missing stays as it was
    python -m benchmarks.papers_page                # the page alone, from what is recorded

docs/papers/NAME.json records what each panel of a preset showed, and its picture lies beside it. A run replaces its own
panels, so that runs of several days and machines add up. Everything below the page's line "## Results" is replaced.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from driftline.results.show.curves_picture import curves_png
from driftline.results.statements import Judgement, overall
from driftline.study.papers import SCALES, Preset, presets
from driftline.study.spec import Study
from service.embedded.folder import DATABASE
from service.embedded.folder_results import stored_reading, stored_study

DOCS = Path(__file__).parents[1] / "docs"
PAGE, RECORDS = DOCS / "papers.md", DOCS / "papers"
HEADING = "## Results\n"

Panels = dict[str, dict[str, Any]]
"""By panel: `ran`, what was run, in words; `fingerprint` of its study; `picture`; `statements`, as check gives them."""


def recorded(name: str) -> Panels:
    """What is recorded of a preset; nothing if it was never run."""
    file = RECORDS / f"{name}.json"
    panels: Panels = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return panels


def record(name: str, preset: Preset, folder: Path) -> None:
    """Records the finished panels of a folder, and draws them."""
    begun = {panel: stored_study(folder / panel) for panel in preset.panels if (folder / panel / DATABASE).exists()}
    finished = {panel: stored for panel, stored in begun.items() if stored.state == "SUCCEEDED"}
    if not finished:
        return
    RECORDS.mkdir(exist_ok=True)
    picture = "-".join([name, *([] if [*finished] == preset.panels else finished)]) + ".png"
    metrics = dict.fromkeys(statement.metric for statement in preset.shows if statement.metric is not None)
    curves = {panel or name: stored_reading(folder / panel) for panel in finished}
    (RECORDS / picture).write_bytes(curves_png(curves, list(metrics)))
    command = ["papers", "check", name, str(folder), "--json"]
    ran = subprocess.run([sys.executable, "-m", "service.cli", *command], check=True, stdout=subprocess.PIPE, text=True)
    checked = json.loads(ran.stdout)["panels"]
    panels = recorded(name)
    for panel, stored in finished.items():
        panels[panel] = {
            "ran": _size(stored.study),
            "fingerprint": stored.fingerprint,
            "picture": picture,
            "statements": checked[panel],
        }
    panels = {panel: panels[panel] for panel in preset.panels if panel in panels}
    (RECORDS / f"{name}.json").write_text(json.dumps(panels, indent=2) + "\n", encoding="utf-8")


def section(name: str, preset: Preset, panels: Panels) -> str:
    """The part of the page about a figure or table that was run."""
    judgements = [Judgement(**row) for panel in panels.values() for row in panel["statements"]]
    missing = [Judgement(panel, "undecided", "not run") for panel in preset.panels if panel not in panels]
    outcome = overall([*judgements, *missing])
    rows = [
        f"| {panel + ': ' if panel else ''}{row['statement']} | {row['outcome']} | {row['why']} |"
        for panel, found in panels.items()
        for row in found["statements"]
    ]
    changed = [panel for panel in panels if not _current(name, preset, panel, panels[panel])]
    note = " The preset has changed since." if changed else ""
    pictures = dict.fromkeys(panel["picture"] for panel in panels.values())
    return "\n\n".join(
        [
            f"### {name}: {preset.figure}",
            _wrapped(preset.statement),
            _wrapped(f"**{outcome.capitalize()}.** {_ran(preset, panels)}.{note}"),
            _wrapped(preset.remarks),
            *(f"![{preset.figure}](papers/{picture})" for picture in pictures),
            f"`driftline papers check {name} out/papers/{name}`:",
            "\n".join(["| statement | outcome | by |", "|---|---|---|", *rows]),
        ]
    )


def _current(name: str, preset: Preset, panel: str, found: Mapping[str, Any]) -> bool:
    """Whether the recorded panel is of the preset as it is now."""
    studies = [preset.study_of(name, scale, panel).fingerprint() for scale in SCALES]
    said = [statement.text for statement in preset.statements(panel)]
    return found["fingerprint"] in studies and [row["statement"] for row in found["statements"]] == said


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)


def _ran(preset: Preset, panels: Panels) -> str:
    """What was run, in words, each size once with its panels."""
    sizes: dict[str, list[str]] = {}
    for panel, found in panels.items():
        sizes.setdefault(found["ran"], []).append(panel)
    if missing := [panel for panel in preset.panels if panel not in panels]:
        sizes["not run"] = missing
    parts = [f"{', '.join(names)}: {text}" if names != [""] else text for text, names in sizes.items()]
    return parts[0].capitalize() if list(panels) == [""] else "; ".join(parts)


def _size(study: Study) -> str:
    budget = study.budget
    scale = "full scale" if study.name.endswith("-full") else "small scale"
    trials = f"{budget.trials_per_method} search trial{'s' * (budget.trials_per_method > 1)}"
    searches = f" in {budget.searches} searches" if budget.searches > 1 else ""
    confirmed = f", {budget.confirm} configuration{'s' * (budget.confirm > 1)} on {budget.seeds} further seeds"
    return f"{scale}, {trials} a label{searches}{confirmed * bool(budget.seeds)}, {budget.trial_text}"


def results() -> str:
    """Everything below the page's heading, from what is recorded."""
    found = {name: recorded(name) for name, _ in presets()}
    parts = [section(name, preset, found[name]) for name, preset in presets() if found[name]]
    if rows := [f"| {name} | {preset.figure} |" for name, preset in presets() if not found[name]]:
        parts.append("\n".join([NOT_RUN, "", "| preset | figure or table |", "|---|---|", *rows]))
    return "\n" + "\n\n".join([INTRODUCTION, *parts]) + "\n"


def main() -> None:
    """Records the folders, if any, and writes the page."""
    for root in map(Path, sys.argv[1:2]):
        for name, preset in presets():
            record(name, preset, root / name)
    kept = PAGE.read_text(encoding="utf-8").split(HEADING)[0]
    PAGE.write_text(kept + HEADING + results(), encoding="utf-8")
    used = {panel["picture"] for name, _ in presets() for panel in recorded(name).values()}
    for picture in RECORDS.glob("*.png"):
        if picture.name not in used:
            picture.unlink()


INTRODUCTION = """\
`python -m benchmarks.papers_page out/papers` writes this part of the page from output folders: the
outcomes and numbers of `driftline papers check NAME out/papers/NAME --picture FILE.png`, which
`docs/papers/NAME.json` keeps. A picture shows each label's curve over the rounds: the mean over
seeds, and the lowest and highest seed. Differences are on the study's scale, 0 the untrained model
and 1 the best end."""

NOT_RUN = """\
### Not run yet

These presets wait for hours of processors; their data at the small scale are at hand, and
`driftline papers run NAME` runs them."""

if __name__ == "__main__":
    main()
