"""HTML for notebooks of a study: plain tables in the page's own colours."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from driftline.study.spec import Study

_CELL = "text-align:left;padding:2px 12px 2px 0;vertical-align:top"


def study_html(study: Study) -> str:
    """A study: task, budget, objective, and the hyperparameters of each entry that are tuned."""
    budget, objective = study.budget, study.objective
    facts = [
        ("task", str(study.task["name"])) if study.program is None else ("program", " ".join(study.program.command)),
        ("objective", f"{objective.quality} against {objective.cost}"),
        ("budget", f"{budget.trials_per_method} trials a method, {budget.trial_text}, {budget.seeds} seeds"),
    ]
    rows = [(entry.label, entry.name, ", ".join(entry.parameters()) or "nothing") for entry in study.methods]
    return html_title(study.name, "") + html_table((), facts) + html_table(("label", "method", "tuned"), rows)


def html_title(name: str, remark: str) -> str:
    """A heading: a name in bold, and a remark unless it is empty."""
    return f"<p><b>{escape(name)}</b>{' &middot; ' + escape(remark) if remark else ''}</p>"


def html_table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table; without heads, the rows alone."""
    head = "".join(f'<th style="{_CELL}">{escape(text)}</th>' for text in heads)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_CELL}">{escape(text)}</td>' for text in row) + "</tr>" for row in rows
    )
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if head else ''}<tbody>{body}</tbody></table>"
