"""What a notebook shows of a study: plain tables in the page's own colours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from trainers import ROLES

_CELL = "text-align:left;padding:2px 12px 2px 0;vertical-align:top"


def study_html(spec: Mapping[str, Any]) -> str:
    """A study: task, budget, objective, and what is tuned of each entry.

    Args:
        spec: The study as `Study.to_json` gives it.
    """
    task, budget, objective = spec["task"], spec["budget"], spec["objective"]
    facts = [
        ("task", str(task.get("name", ""))),
        ("objective", f"{objective['quality']} against {objective['cost']}"),
        (
            "budget",
            f"{budget['trials_per_method']} trials a method, {budget['rounds']} rounds, {budget['seeds']} seeds",
        ),
    ]
    rows = [(entry["label"], entry["name"], ", ".join(_tuned(entry)) or "nothing") for entry in spec["methods"]]
    return html_title(str(spec["name"]), "") + html_table((), facts) + html_table(("label", "method", "tuned"), rows)


def _tuned(entry: Mapping[str, Any]) -> list[str]:
    """Dotted names of an entry's space, its optimizers' and its schedule's."""
    found = [str(name) for name in _space(entry)]
    for part in (*ROLES, "schedule"):
        found += [f"{part}.{name}" for name in _space(entry.get(part) or {})]
    return found


def _space(part: Mapping[str, Any]) -> Iterable[str]:
    space = part.get("space") or {}
    return [f"the {space} space"] if isinstance(space, str) else list(space)


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
