"""What a notebook shows of studies and jobs: plain tables that follow the page's own colours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from driftline.wire.records import TRIAL_FINISHED, LabelProgress, StudyRecord, TrialState

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
    return _title(str(spec["name"]), "") + _table((), facts) + _table(("label", "method", "tuned"), rows)


def job_html(record: StudyRecord) -> str:
    """A submitted study: its state, how far each label has come, where its curves are."""
    rows = [(label, *_done(progress)) for label, progress in record.progress.items()]
    reason = f"<p>{escape(record.reason)}</p>" if record.reason else ""
    link = record.mlflow_url or ""
    shown = escape(link, quote=True)
    mlflow = f'<p><a href="{shown}">{shown}</a></p>' if link.startswith(("http://", "https://")) else ""
    state = f"{record.state.lower()}, {record.id}"
    return _title(record.name, state) + reason + _table(("label", "search", "front", "rounds"), rows) + mlflow


def _tuned(entry: Mapping[str, Any]) -> list[str]:
    """Dotted names of an entry's space, its server's and its schedule's."""
    found = [str(name) for name in _space(entry)]
    for part in ("server", "schedule"):
        found += [f"{part}.{name}" for name in _space(entry.get(part) or {})]
    return found


def _space(part: Mapping[str, Any]) -> Iterable[str]:
    space = part.get("space") or {}
    return [f"the {space} space"] if isinstance(space, str) else list(space)


def _done(progress: LabelProgress) -> tuple[str, str, str]:
    def phase(counts: Mapping[TrialState, int]) -> str:
        return f"{sum(n for state, n in counts.items() if state in TRIAL_FINISHED)} of {sum(counts.values())}"

    total = progress.rounds_total
    share = f" ({100 * progress.rounds_done / total:.0f} %)" if total else ""
    return phase(progress.search), phase(progress.front), f"{progress.rounds_done}{share}"


def _title(name: str, remark: str) -> str:
    return f"<p><b>{escape(name)}</b>{' &middot; ' + escape(remark) if remark else ''}</p>"


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f'<th style="{_CELL}">{escape(text)}</th>' for text in heads)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_CELL}">{escape(text)}</td>' for text in row) + "</tr>" for row in rows
    )
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if head else ''}<tbody>{body}</tbody></table>"
