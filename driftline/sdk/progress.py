"""Shows the progress of a study: a live table in a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, TextIO

from driftline.results.show.escaped_text import escaped, escaped_lines
from driftline.sdk.progress_view import View, folded, label_views, plain, together
from driftline.sdk.sparklines import Sparklines
from driftline.wire.durations import clock_text
from driftline.wire.records import STUDY_FINISHED, StudyRecord

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

PLAIN_EVERY_S = (10.0, 60.0)
"""Seconds between two plain lines while only counts change: at first, and from ten minutes on."""

RATE_WINDOW_S = 300.0
"""Rounds per second are measured over the last half of the time, and over this many seconds at least."""

RATE_AFTER_S = 5.0
"""Seconds of progress before a rate is shown: packs report every two seconds."""

BAR = 12
"""Columns of a bar."""

WIDE = 120
"""Least columns of a terminal that shows frontiers."""

_FRAME_LINES = 4
"""Lines of the terminal that are not rows: the heading, the foot, which may wrap, and the cursor's."""


class Rate:
    """Rounds per second over a long window: packs differ in speed, and few of them run at once.

    Args:
        clock: Returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()
        self._began = 0.0

    def add(self, rounds_done: int) -> float | None:
        """Adds the rounds done so far and returns the rate; None until there has been progress for `RATE_AFTER_S`."""
        now = self._clock()
        if not self._seen or self._seen[-1][1] == self._seen[0][1] == rounds_done:
            self._seen = deque([(now, rounds_done)])  # time before the first progress does not count: Ray is starting
            self._began = now
        elif self._seen[-1][1] != rounds_done:
            self._seen.append((now, rounds_done))
        window = max(RATE_WINDOW_S, (now - self._began) / 2)
        while len(self._seen) > 2 and now - self._seen[1][0] > window:
            self._seen.popleft()
        start, first = self._seen[0]
        if now - start < RATE_AFTER_S or rounds_done <= first:
            return None
        return (rounds_done - first) / (now - start)


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
        self._frontiers = Sparklines()
        self._began = clock()
        self._rounds: int | None = None  # reported before the first update
        self._last: tuple[float, str] = (self._began, "")
        self._state = ""

    @property
    def wide(self) -> bool:
        """Whether there is room for `sparklines`."""
        return self._stream.isatty() and self._console.width >= WIDE

    def draw(self, frontiers: Sparklines) -> None:
        """Shows these frontiers from the next update on."""
        self._frontiers = frontiers

    def update(self, record: StudyRecord, best: Mapping[str, float]) -> None:
        """Shows the study as it is now."""
        rows = label_views(record, best, self._frontiers.bars)
        done, total = together("", rows).rounds
        left = sum(max(row.rounds[1] - row.rounds[0], 0) for row in rows)
        if self._rounds is None:
            self._rounds = done
        rate = self._rate.add(done)
        shown = View(
            state=record.state,
            rows=rows,
            rounds=(done, total),
            rate=rate,
            left_s=left / rate if rate and left else None,
            passed_s=self._clock() - self._began,
            new_rounds=done - self._rounds,
            reason=record.reason,
        )
        if self._stream.isatty():
            self._update_live(shown)
        else:
            self._update_plain(shown)

    def say(self, text: str) -> None:
        """Prints one line above the live table, or a plain one."""
        text = escaped_lines(text)
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
        least, most = PLAIN_EVERY_S
        starting = shown.state in ("PENDING", "RUNNING") and not shown.new_rounds
        changed = shown.state != self._state and not starting
        due = changed or now - self._last[0] >= min(max(least, shown.passed_s / 10), most)
        if shown.rows and due and line != self._last[1]:
            print(line, file=self._stream, flush=True)
            self._last, self._state = (now, line), shown.state

    def _update_live(self, shown: View) -> None:
        if self._live is None:
            from rich.live import Live

            self._live = Live(console=self._console, auto_refresh=False, transient=False)
            self._live.start()
        if shown.state in STUDY_FINISHED:
            self._live.update(self._table(shown))  # `close` prints all of it, whatever the terminal's height
            return
        rows = folded(shown.rows, self._live.console.height - _FRAME_LINES)
        self._live.update(self._table(replace(shown, rows=rows)), refresh=True)

    def _table(self, shown: View) -> Table:
        return table(shown, self._metric, self._frontiers.heading)

    @cached_property
    def _console(self) -> Console:
        from rich.console import Console

        return Console(file=self._stream, markup=False, emoji=False)  # reasons and labels are not markup


def table(shown: View, metric: str, frontiers: str = "") -> Table:
    """The view as a rich table.

    Args:
        shown: The view.
        metric: Name of the quality.
        frontiers: Heading of the frontiers; "" without them.
    """
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    passed = [] if shown.state in STUDY_FINISHED else [f"{clock_text(shown.passed_s)} passed"]
    measuring = shown.state == "RUNNING" and shown.rate is None and shown.rounds[0] < shown.rounds[1]
    foot = ", ".join([shown.head, *passed, *(["time left after the first rounds"] if measuring else shown.pace)])
    grid = Table(box=None, pad_edge=False, caption=foot, caption_justify="left")
    grid.add_column("method")
    grid.add_column("")
    stopped, failed = any(row.stopped for row in shown.rows), any(row.failed for row in shown.rows)
    outcomes = [*(["stopped early"] if stopped else []), "diverged", *(["failed"] if failed else [])]
    for heading in ("search trials", "confirmation trials", *outcomes, f"best {escaped(metric)}"):
        grid.add_column(heading.replace(" ", "\n"), justify="right")  # narrow: labels need the room
    if frontiers:
        grid.add_column(frontiers, no_wrap=True)
    for row in shown.rows:
        grid.add_row(
            escaped(row.label),
            ProgressBar(total=max(row.rounds[1], 1), completed=row.rounds[0], width=BAR),
            f"{row.search[0]}/{row.search[1]}",
            f"{row.confirmation[0]}/{row.confirmation[1]}" if row.confirmation[1] else "-",
            *([str(row.stopped)] if stopped else []),
            str(row.diverged),
            *([str(row.failed)] if failed else []),
            "-" if row.best is None else f"{row.best:.4g}",
            *([row.bars] if frontiers else []),
        )
    return grid
