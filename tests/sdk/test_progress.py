"""The progress of a study in a terminal and elsewhere."""

import io
from typing import Any

import pytest

from driftline import Study
from driftline.sdk.progress import PLAIN_EVERY_S, RATE_AFTER_S, ProgressDisplay, Rate
from driftline.sdk.progress_view import LabelView, folded
from driftline.wire.records import LabelProgress, StudyRecord
from tests.wire.made_records import study_record


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 24 lines."""
    for name, value in {"TERM": "xterm", "COLUMNS": "100", "LINES": "24"}.items():
        monkeypatch.setenv(name, value)


def record(progress: dict[str, LabelProgress], **changes: Any) -> StudyRecord:
    study = Study(
        name="small",
        task="digits",
        methods=[{"name": "fedavg", "label": label} for label in progress],
        budget={"trials_per_method": 4, "rounds": 100, "seeds": 0},
    )
    return study_record(spec=study.to_json(), progress=progress, **changes)


def running(rounds: int) -> LabelProgress:
    return LabelProgress(search={"RUNNING": 2}, rounds_done=rounds, rounds_total=400)


FINISHED = LabelProgress(search={"COMPLETE": 3, "DIVERGED": 1}, rounds_done=310, rounds_total=310)
WAITING = LabelProgress(rounds_total=400)


def test_rounds_of_running_packs_move_the_bar_before_a_trial_has_ended() -> None:
    bars = []
    for rounds in (0, 100, 200):
        stream = Terminal()
        display = ProgressDisplay(stream, "test_loss")
        display.update(record({"fedavg": running(rounds)}), {})
        display.close()
        assert "0/4" in stream.getvalue()
        bars.append(stream.getvalue())
    assert len(set(bars)) == 3
    assert "25 %" in bars[1]
    assert "50 %" in bars[2]


def test_time_passes_in_a_terminal_before_anything_was_reported() -> None:
    clock, stream = Clock(), Terminal()
    display = ProgressDisplay(stream, "test_loss", clock)
    for text in ("0:00 passed", "0:07 passed"):
        display.update(record({"fedavg": WAITING}), {})
        assert text in stream.getvalue()
        clock.now += 7


@pytest.mark.parametrize(("ended", "active", "waiting"), [(0, 30, 0), (10, 15, 5), (30, 0, 0), (28, 1, 1), (1, 1, 28)])
@pytest.mark.parametrize("most", [4, 20, 30])
def test_folded_rows_fit_and_lose_no_trial(ended: int, active: int, waiting: int, most: int) -> None:
    rows = (
        *(LabelView(f"a{number}", (3, 4), (2, 2), (500, 500), diverged=1) for number in range(ended)),
        *(LabelView(f"b{number}", (1, 4), (0, 2), (100, 600), running=1) for number in range(active)),
        *(LabelView(f"c{number}", (0, 4), (0, 2), (0, 600)) for number in range(waiting)),
    )
    shown = folded(rows, most)
    assert len(shown) <= most
    if most == 30:
        assert shown == rows
        return
    *parts, total = shown
    assert total.rounds == (500 * ended + 100 * active, 500 * ended + 600 * (active + waiting))
    assert sum(row.search[0] for row in parts) == total.search[0] == 3 * ended + active
    assert sum(row.diverged for row in parts) == total.diverged == ended


def test_plain_lines_are_sparse_and_name_no_state_while_it_starts() -> None:
    clock, stream = Clock(), io.StringIO()
    display = ProgressDisplay(stream, "test_loss", clock)

    def lines() -> list[str]:
        return stream.getvalue().splitlines()

    for state in ("PENDING", "RUNNING"):
        display.update(record({"fedavg": WAITING}, state=state), {})
        clock.now += 1
    assert lines() == []
    display.update(record({"fedavg": running(20)}), {})
    assert lines() == ["5 % | fedavg 0/4 search trials"]
    display.update(record({"fedavg": running(40)}), {})
    assert len(lines()) == 1
    for step in range(360):
        clock.now += 20
        display.update(record({"fedavg": running(41 + step)}), {})
    assert 7200 / PLAIN_EVERY_S[1] <= len(lines()) <= 7200 / PLAIN_EVERY_S[1] + 40
    assert lines()[-1].endswith(" left")
    display.update(record({"fedavg": FINISHED}, state="SUCCEEDED"), {"fedavg": 0.5})
    assert lines()[-1] == "succeeded | fedavg 4/4 search trials, 1 diverged, best 0.5 | 310 rounds in 2:00:02"


def test_a_study_says_why_it_waits_and_one_that_had_finished_names_no_time() -> None:
    stream = io.StringIO()
    display = ProgressDisplay(stream, "test_loss", Clock())
    display.update(record({"fedavg": WAITING}, state="QUEUED", reason="no room"), {})
    display.update(record({"fedavg": running(20)}, reason="the driver was lost"), {})
    display.update(record({"fedavg": running(20)}, state="FAILED", reason="said by the error"), {})
    assert stream.getvalue().splitlines() == [
        "queued (no room) | fedavg 0/4 search trials",
        "5 % (the driver was lost) | fedavg 0/4 search trials",
        "failed | fedavg 0/4 search trials | 20 rounds in 0:00",
    ]
    stream = io.StringIO()
    ProgressDisplay(stream, "test_loss").update(record({"fedavg": FINISHED}, state="SUCCEEDED"), {})
    assert stream.getvalue() == "succeeded | fedavg 4/4 search trials, 1 diverged\n"


def test_the_rate_begins_with_the_first_progress_and_levels_slow_packs() -> None:
    clock = Clock()
    rate = Rate(clock)
    for _ in range(60):  # Ray starts
        assert rate.add(0) is None
        clock.now += 1
    done = 0
    for second in range(120):
        done += 30 if second % 60 < 30 else 10  # slow packs follow fast ones
        clock.now += 1
        found = rate.add(done)
        assert (found is None) == (second < RATE_AFTER_S - 2)
    assert found == pytest.approx(20, rel=0.02)


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_what_others_wrote_neither_ends_the_display_nor_moves_the_cursor(stream: type[io.StringIO]) -> None:
    out = stream()
    display = ProgressDisplay(out, "[/loss]\x1b[2J")
    reason = "[/red] :smile: \x1b]0;title\x07"
    display.update(record({"fedavg": running(20)}, state="PAUSED", reason=reason), {})
    display.say("\x9b2J [/x]")
    display.close()
    text = out.getvalue()
    assert "[/red] :smile: \\u001b]0;title\\u0007" in " ".join(text.split())
    assert "\\u009b2J [/x]" in text
    assert "\x1b[2J" not in text
