"""Writes the results of docs/papers.md, and its pictures, from the output folders of `driftline papers run`.

    python -m benchmarks.papers_page out/papers

Everything below the page's line "## Results" is replaced; docs/papers/NAME.png are the pictures.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

from driftline.study.papers import Preset, presets
from driftline.study.spec import Study
from service.embedded.folder import DATABASE
from service.embedded.folder_results import stored_study

DOCS = Path(__file__).parents[1] / "docs"
HEADING = "## Results\n"


def section(name: str, preset: Preset, folder: Path) -> str:
    """The part of the page about a figure or table that was run."""
    begun = _begun(preset, folder)
    parts = [f"### {name}: {preset.figure}", _wrapped(preset.statement)]
    picture = f"papers/{name}.png"
    (DOCS / "papers").mkdir(exist_ok=True)
    command = ["papers", "check", name, str(folder), "--json", "--picture", str(DOCS / picture)]
    ran = subprocess.run([sys.executable, "-m", "service.cli", *command], check=True, stdout=subprocess.PIPE, text=True)
    checked = json.loads(ran.stdout)
    rows = [
        f"| {panel + ': ' if panel else ''}{row['statement']} | {row['outcome']} | {row['why']} |"
        for panel, judgements in checked["panels"].items()
        for row in judgements
    ]
    outcome = f"**{checked['outcome'].capitalize()}.** {_sizes(preset, folder, begun)}. {preset.remarks}"
    parts += [
        _wrapped(outcome),
        f"![{preset.figure}]({picture})",
        f"`driftline papers check {name} out/papers/{name}`:",
    ]
    return "\n\n".join([*parts, "\n".join(["| statement | outcome | by |", "|---|---|---|", *rows])])


def _begun(preset: Preset, folder: Path) -> list[str]:
    return [panel for panel in preset.panels if (folder / panel / DATABASE).exists()]


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)


def _sizes(preset: Preset, folder: Path, begun: list[str]) -> str:
    """What was run, in words, each size once with its panels."""
    sizes: dict[str, list[str]] = {}
    for panel in begun:
        record = stored_study(folder / panel)
        text = _size(record.study) + ("" if record.state == "SUCCEEDED" else f", {record.state.lower()}")
        sizes.setdefault(text, []).append(panel)
    if missing := [panel for panel in preset.panels if panel not in begun]:
        sizes["not run"] = missing
    parts = [f"{', '.join(panels)}: {text}" if panels != [""] else text for text, panels in sizes.items()]
    return "; ".join(parts).capitalize() if begun == [""] else "; ".join(parts)


def _size(study: Study) -> str:
    budget = study.budget
    scale = "full scale" if study.name.endswith("-full") else "small scale"
    trials = f"{budget.trials_per_method} search trial{'s' * (budget.trials_per_method > 1)}"
    searches = f" in {budget.searches} searches" if budget.searches > 1 else ""
    confirmed = f"{budget.confirm} configuration{'s' * (budget.confirm > 1)} on {budget.seeds} further seeds"
    return f"{scale}, {trials} a label{searches}, {confirmed}, {budget.last_round} rounds"


def main() -> None:
    """Writes the page."""
    (root,) = map(Path, sys.argv[1:])
    page = DOCS / "papers.md"
    kept = page.read_text(encoding="utf-8").split(HEADING)[0]
    parts = [section(name, preset, root / name) for name, preset in presets() if _begun(preset, root / name)]
    rows = [f"| {name} | {preset.figure} |" for name, preset in presets() if not _begun(preset, root / name)]
    parts.append("\n".join([NOT_RUN, "", "| preset | figure or table |", "|---|---|", *rows]))
    page.write_text("\n\n".join([kept + HEADING.strip(), INTRODUCTION, *parts]) + "\n", encoding="utf-8")


INTRODUCTION = """\
`python -m benchmarks.papers_page out/papers` writes this part of the page from output folders: the
outcomes and numbers of `driftline papers check NAME out/papers/NAME --picture FILE.png`. A picture
shows each label's curve over the rounds: the mean over seeds, and the lowest and highest seed.
Differences are on the study's scale, 0 the untrained model and 1 the best end."""

NOT_RUN = """\
### Not run yet

These presets wait for hours of processors; their data at the small scale are at hand, and
`driftline papers run NAME` runs them."""

if __name__ == "__main__":
    main()
