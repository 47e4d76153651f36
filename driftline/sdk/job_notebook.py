"""HTML for notebooks of a submitted study."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from driftline.results.show.escaped_text import escaped
from driftline.study.notebook import html_table, html_title
from driftline.wire.records import TRIAL_FINISHED, LabelProgress, StudyRecord, TrialState


def job_html(record: StudyRecord) -> str:
    """A submitted study: its state, the progress of each label, a link to its curves."""
    rows = [(label, *_done(progress)) for label, progress in record.progress.items()]
    reason = f"<p>{escape(escaped(record.reason))}</p>" if record.reason else ""
    link = record.mlflow_url or ""
    shown = escape(link, quote=True)
    mlflow = f'<p><a href="{shown}">{shown}</a></p>' if link.startswith(("http://", "https://")) else ""
    state = f"{record.state.lower()}, {record.id}"
    return (
        html_title(record.name, state)
        + reason
        + html_table(("label", "search", "confirmation", "rounds"), rows)
        + mlflow
    )


def _done(progress: LabelProgress) -> tuple[str, str, str]:
    def phase(counts: Mapping[TrialState, int]) -> str:
        return f"{sum(n for state, n in counts.items() if state in TRIAL_FINISHED)} of {sum(counts.values())}"

    total = progress.rounds_total
    share = f" ({100 * progress.rounds_done / total:.0f} %)" if total else ""
    return phase(progress.search), phase(progress.confirmation), f"{progress.rounds_done}{share}"
