"""Shows the progress of a study: a live table in a terminal, a plain line every few seconds elsewhere."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from driftline.wire.records import TRIAL_FINISHED, LabelProgress, StudyRecord, TrialState

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

PLAIN_EVERY_S = 10.0
"""Seconds between two plain lines while only counts change."""

RATE_WINDOW_S = 30.0
"""Rounds per second are measured over this many seconds."""


RATE_AFTER_S = 5.0
"""Seconds of progress before a rate is shown: packs report every two seconds."""


@dataclass(frozen=True)
class LabelView:
    """One row of the view.

    Attributes:
        label: The entry.
        search: Finished and planned search trials.
        confirmation: Finished and planned confirmation trials.
        diverged: Diverged trials so far.
        best: Best quality so far, in the metric's own sign; None before the first.
    """

    label: str
    search: tuple[int, int]
    confirmation: tuple[int, int]
    diverged: int
    best: float | None


@dataclass(frozen=True)
class View:
    """Everything shown at one moment.

    Attributes:
        state: The study's state.
        rows: One row per label, in the study's order.
        rate: Rounds per second, summed over trials; None until known.
        left_s: Seconds left at this rate; None until known, and at the end.
        took_s: Seconds from its start to its end; None until it has finished.
    """

    state: str
    rows: tuple[LabelView, ...]
    rate: float | None
    left_s: float | None
    took_s: float | None = None

    @property
    def pace(self) -> list[str]:
        """How fast it runs and how long it will, or how long it took; empty while neither is known."""
        if self.took_s is not None:
            return [f"took {clock_text(self.took_s)}"]
        if self.rate is None or self.left_s is None:
            return []
        return [f"{self.rate:.0f} rounds/s", f"{clock_text(self.left_s)} left"]


class Rate:
    """Rounds per second over a trailing window.

    Args:
        clock: Returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()

    def add(self, rounds_done: int) -> float | None:
        """Adds the rounds done so far and returns the rate; None until there has been progress for `RATE_AFTER_S`."""
        now = self._clock()
        if self._seen and self._seen[-1][1] == self._seen[0][1] == rounds_done:
            self._seen.clear()  # time before the first progress does not count: Ray is starting
        self._seen.append((now, rounds_done))
        while len(self._seen) > 2 and now - self._seen[1][0] > RATE_WINDOW_S:
            self._seen.popleft()
        start, first = self._seen[0]
        if now - start < RATE_AFTER_S or rounds_done <= first:
            return None
        return (rounds_done - first) / (now - start)


def view(record: StudyRecord, best: Mapping[str, float], rate: float | None) -> View:
    """The view of a study.

    Args:
        record: The study.
        best: Best quality by label, in the metric's own sign.
        rate: Rounds per second; None if unknown.
    """
    budget = record.study.budget
    rows = tuple(
        LabelView(
            label=label,
            search=(_finished(progress.search), budget.trials_per_method),
            confirmation=(
                _finished(progress.confirmation),
                max(budget.confirmation_trials, sum(progress.confirmation.values())),
            ),
            diverged=progress.search.get("DIVERGED", 0) + progress.confirmation.get("DIVERGED", 0),
            best=best.get(label),
        )
        for label, progress in record.progress.items()
    )
    left = sum(max(progress.rounds_total - progress.rounds_done, 0) for progress in record.progress.values())
    took = None
    if record.finished_at is not None and record.started_at is not None:
        took = (record.finished_at - record.started_at).total_seconds()
    return View(record.state, rows, rate, left / rate if rate and left else None, took)


def rounds_done(progress: Mapping[str, LabelProgress]) -> int:
    """Rounds reported so far, summed over the trials of all labels."""
    return sum(label.rounds_done for label in progress.values())


def plain(shown: View) -> str:
    """The view as one line.

    Examples:
        >>> row = LabelView("fedavg", (12, 64), (0, 24), 1, 0.91234)
        >>> plain(View("RUNNING", (row,), 812.0, 95.0))
        'running | fedavg 12/64 trials, 0/24 confirmed, 1 diverged, best 0.9123 | 812 rounds/s | 1:35 left'
        >>> plain(View("SUCCEEDED", (row,), None, None, took_s=95.0))
        'succeeded | fedavg 12/64 trials, 0/24 confirmed, 1 diverged, best 0.9123 | took 1:35'
    """
    parts = [shown.state.lower()]
    for row in shown.rows:
        text = f"{row.label} {row.search[0]}/{row.search[1]} trials"
        if row.confirmation[1]:
            text += f", {row.confirmation[0]}/{row.confirmation[1]} confirmed"
        if row.diverged:
            text += f", {row.diverged} diverged"
        if row.best is not None:
            text += f", best {row.best:.4g}"
        parts.append(text)
    return " | ".join([*parts, *shown.pace])


def clock_text(seconds: float) -> str:
    """Minutes and seconds, from one hour on with hours.

    Examples:
        >>> clock_text(95), clock_text(4000)
        ('1:35', '1:06:40')
    """
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class ProgressDisplay:
    """Shows a study's progress until it is closed.

    Args:
        stream: Output; a terminal gets a live table, anything else plain lines.
        metric: Name of the quality, for the heading.
        clock: Returns monotonic seconds.
    """

    def __init__(self, stream: TextIO, metric: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._metric = metric
        self._clock = clock
        self._rate = Rate(clock)
        self._live: Live | None = None
        self._last: tuple[float, str] = (float("-inf"), "")
        self._state = ""

    def update(self, record: StudyRecord, best: Mapping[str, float]) -> None:
        """Shows the study as it is now."""
        shown = view(record, best, self._rate.add(rounds_done(record.progress)))
        if self._stream.isatty():
            self._update_live(shown)
        else:
            self._update_plain(shown)

    def say(self, text: str) -> None:
        """Prints one line above the live table, or a plain one."""
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """Stops updating; the last view stays visible."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _update_plain(self, shown: View) -> None:
        line, now = plain(shown), self._clock()
        due = now - self._last[0] >= PLAIN_EVERY_S or shown.state != self._state
        if shown.rows and due and line != self._last[1]:
            print(line, file=self._stream, flush=True)
            self._last, self._state = (now, line), shown.state

    def _update_live(self, shown: View) -> None:
        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(file=self._stream), auto_refresh=False, transient=False)
            self._live.start()
        self._live.update(table(shown, self._metric), refresh=True)


def table(shown: View, metric: str) -> Table:
    """The view as a rich table."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    foot = ", ".join([shown.state.lower(), *shown.pace])
    grid = Table(box=None, pad_edge=False, caption=foot, caption_justify="left")
    grid.add_column("method")
    grid.add_column("")
    for heading in ("trials", "repeats", "diverged", f"best {metric}"):
        grid.add_column(heading, justify="right")
    for row in shown.rows:
        done, total = row.search[0] + row.confirmation[0], max(row.search[1] + row.confirmation[1], 1)
        grid.add_row(
            row.label,
            ProgressBar(total=total, completed=done, width=24),
            f"{row.search[0]}/{row.search[1]}",
            f"{row.confirmation[0]}/{row.confirmation[1]}" if row.confirmation[1] else "-",
            str(row.diverged),
            "-" if row.best is None else f"{row.best:.4g}",
        )
    return grid


def _finished(counts: Mapping[TrialState, int]) -> int:
    return sum(count for state, count in counts.items() if state in TRIAL_FINISHED)
