"""What is shown of a study's progress at one moment: a row for each label, and the totals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from driftline.results.show.escaped_text import escaped
from driftline.wire.durations import clock_text
from driftline.wire.records import STUDY_FINISHED, TRIAL_FINISHED, LabelProgress, StudyRecord, TrialState

PLAIN_LABELS = 4
"""A plain line shows the totals alone if there are more labels."""


@dataclass(frozen=True)
class LabelView:
    """One row of the view: a label, or several together.

    Attributes:
        label: The entry.
        search: Finished and planned search trials.
        confirmation: Finished and planned confirmation trials.
        rounds: Rounds reported, those of running trials included, and expected.
        running: Trials that run.
        stopped: Search trials that were stopped early so far.
        diverged: Diverged trials so far.
        failed: Failed trials so far.
        best: Best quality so far, in the metric's own sign; None before the first.
        bars: Its frontier, see `sparklines`; "" where it is not shown.
    """

    label: str
    search: tuple[int, int]
    confirmation: tuple[int, int]
    rounds: tuple[int, int]
    running: int = 0
    stopped: int = 0
    diverged: int = 0
    failed: int = 0
    best: float | None = None
    bars: str = ""


@dataclass(frozen=True)
class View:
    """Everything shown at one moment.

    Attributes:
        state: The study's state.
        rows: One row per label, in the study's order.
        rounds: Rounds reported and expected, of all labels.
        rate: Rounds per second, summed over trials; None until known.
        left_s: Seconds left at this rate; None until known, and at the end.
        passed_s: Seconds since the display began.
        new_rounds: Rounds reported since then.
        reason: Why the study is in its state; "" without a reason. Not shown for a failed one, whose error says it.
    """

    state: str
    rows: tuple[LabelView, ...]
    rounds: tuple[int, int]
    rate: float | None = None
    left_s: float | None = None
    passed_s: float = 0.0
    new_rounds: int = 0
    reason: str = ""

    @property
    def head(self) -> str:
        """The share of the rounds that is done, or for a study that does not run its state; with the reason."""
        text = share_text(*self.rounds) if self.state == "RUNNING" else self.state.lower()
        return f"{text} ({escaped(self.reason)})" if self.reason and self.state != "FAILED" else text

    @property
    def pace(self) -> list[str]:
        """How fast it runs and how long it will take; at the end, what was done since the display began."""
        if self.state in STUDY_FINISHED:
            return [f"{self.new_rounds:,} rounds in {clock_text(self.passed_s)}"] if self.new_rounds else []
        if self.rate is None or self.left_s is None:
            return []
        return [f"{self.rate:.0f} rounds/s", f"{clock_text(self.left_s)} left"]


def label_views(
    record: StudyRecord, best: Mapping[str, float], bars: Mapping[str, str] | None = None
) -> tuple[LabelView, ...]:
    """A row for each label.

    Args:
        record: The study.
        best: Best quality by label, in the metric's own sign.
        bars: Frontiers by label, see `sparklines`.
    """
    budget = record.study.budget
    return tuple(
        LabelView(
            label=label,
            search=(_finished(progress.search), budget.trials_per_method),
            confirmation=(
                _finished(progress.confirmation),
                max(budget.confirmation_trials, sum(progress.confirmation.values())),
            ),
            rounds=(progress.rounds_done, progress.rounds_total),
            running=_count("RUNNING", progress),
            stopped=_count("STOPPED", progress),
            diverged=_count("DIVERGED", progress),
            failed=_count("FAILED", progress),
            best=best.get(label),
            bars=(bars or {}).get(label, ""),
        )
        for label, progress in record.progress.items()
    )


def together(name: str, rows: Sequence[LabelView]) -> LabelView:
    """One row with the totals of several."""

    def total(counts: Iterable[tuple[int, int]]) -> tuple[int, int]:
        done, planned = zip(*counts, strict=True) if rows else ((), ())
        return sum(done), sum(planned)

    return LabelView(
        label=name,
        search=total(row.search for row in rows),
        confirmation=total(row.confirmation for row in rows),
        rounds=total(row.rounds for row in rows),
        running=sum(row.running for row in rows),
        stopped=sum(row.stopped for row in rows),
        diverged=sum(row.diverged for row in rows),
        failed=sum(row.failed for row in rows),
    )


def folded(rows: tuple[LabelView, ...], most: int) -> tuple[LabelView, ...]:
    """The rows, or if there are more than `most`, fewer: finished labels share one row, waiting ones another.

    If that is not enough, the last running labels share a row as well. The last row then has the totals of all labels.
    """
    if len(rows) <= most:
        return rows
    ended = [row for row in rows if not row.running and row.rounds[0] >= row.rounds[1]]
    waiting = [row for row in rows if not row.running and not row.rounds[0] and row not in ended]
    active = [row for row in rows if row not in ended and row not in waiting]
    room = max(most - 1 - bool(ended) - bool(waiting), 1)
    if len(active) > room:
        active[room - 1 :] = [together(f"{len(active) - room + 1} under way", active[room - 1 :])]
    first = [together(f"{len(ended)} finished", ended)] if ended else []
    last = [together(f"{len(waiting)} waiting", waiting)] if waiting else []
    return (*first, *active, *last, together(f"all {len(rows)}", rows))


def done_text(progress: Mapping[str, LabelProgress]) -> str:
    """The share of a study's rounds that is done, in percent."""
    labels = progress.values()
    return share_text(sum(label.rounds_done for label in labels), sum(label.rounds_total for label in labels))


def share_text(done: int, total: int) -> str:
    """A share in percent, rounded down.

    Examples:
        >>> share_text(999, 1000), share_text(0, 0)
        ('99 %', '0 %')
    """
    return f"{100 * done // max(total, 1)} %"


def plain(shown: View) -> str:
    """The view as one line.

    Examples:
        >>> row = LabelView("a", (12, 64), (0, 24), (1400, 8800), diverged=1, best=0.91234)
        >>> plain(View("RUNNING", (row,), row.rounds, 812.0, 9.0))[7:]
        'a 12/64 search trials, 0/24 confirmation trials, 1 diverged, best 0.9123 | 812 rounds/s | 0:09 left'
        >>> plain(View("SUCCEEDED", (), (8800, 8800), passed_s=95.0, new_rounds=8800))
        'succeeded | 8,800 rounds in 1:35'
    """
    many = len(shown.rows) > PLAIN_LABELS
    parts = [shown.head]
    for row in [together(f"{len(shown.rows)} labels:", shown.rows)] if many else shown.rows:
        text = f"{row.label} {row.search[0]}/{row.search[1]} search trials"
        if row.confirmation[1]:
            text += f", {row.confirmation[0]}/{row.confirmation[1]} confirmation trials"
        for count, what in ((row.stopped, "stopped early"), (row.diverged, "diverged"), (row.failed, "failed")):
            if count:
                text += f", {count} {what}"
        if row.best is not None:
            text += f", best {row.best:.4g}"
        parts.append(text)
    return " | ".join([*parts, *shown.pace])


def _finished(counts: Mapping[TrialState, int]) -> int:
    return sum(count for state, count in counts.items() if state in TRIAL_FINISHED)


def _count(state: TrialState, progress: LabelProgress) -> int:
    return progress.search.get(state, 0) + progress.confirmation.get(state, 0)
