"""Heartbeats and the reasons to stop."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from driftline.errors import NotFound, StaleDriver, Unavailable
from service.driver.lease import Watch
from tests.waiting import until


class Beats:
    """A client that answers heartbeats as it is told to."""

    def __init__(self, *answers: Any) -> None:
        self._answers: Iterator[Any] = iter(answers)
        self.count = 0

    def heartbeat(self, study_id: str, attempt: int) -> str:
        assert (study_id, attempt) == ("study", 3)
        self.count += 1
        answer = next(self._answers, "run")
        if isinstance(answer, Exception):
            raise answer
        return str(answer)


def watch(beats: Beats, stop: threading.Event | None = None, **options: Any) -> Watch:
    return Watch(beats, "study", 3, every_s=0.0, stop=stop or threading.Event(), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("pause", "pause"),
        ("cancel", "cancel"),
        (StaleDriver("attempt 3 was replaced"), "stale"),
        (NotFound("no study"), "failed"),
        (RuntimeError("odd"), "failed"),
    ],
)
def test_what_an_answer_means(answer: Any, why: str) -> None:
    with watch(Beats("run", answer)) as watched:
        until(lambda: bool(watched.why))
    assert watched.why == why


def test_a_service_that_is_away_stops_nothing() -> None:
    beats = Beats(Unavailable("away"), Unavailable("away"), "run")
    with watch(beats) as watched:
        until(lambda: beats.count >= 4)
    assert watched.why == ""


def test_a_driver_that_does_not_move_sends_no_heartbeats_until_it_moves_again() -> None:
    beats = Beats()
    looks: list[bool] = []

    class Seen(Watch):
        def _stuck(self) -> bool:
            looks.append(super()._stuck())
            return looks[-1]

    with Seen(beats, "study", 3, every_s=0.0, stop=threading.Event(), hang_s=0.01) as watched:  # type: ignore[arg-type]
        until(lambda: beats.count >= 2)  # it has not begun: Ray may take its time to start
        watched.move()
        until(lambda: looks[-1])
        count = beats.count
        until(lambda: sum(looks) >= 4)
        assert beats.count == count
        watched.hang_s = 1e9
        watched.move()
        until(lambda: beats.count > count)


def test_packs_are_asked_once_and_also_when_the_reason_came_first() -> None:
    asked: list[str] = []
    watched = watch(Beats())
    watched.ask("pause")
    watched.when_asked(lambda: asked.append("packs"))
    watched.ask("cancel", "its owner")
    watched.ask("pause", "lighter, and too late")
    assert asked == ["packs"]
    assert (watched.why, watched.reason) == ("cancel", "its owner")


def test_a_stop_gives_packs_their_time_and_a_cancel_does_not() -> None:
    stop = threading.Event()
    watched, hasty = watch(Beats(), stop, grace_s=60.0), watch(Beats(), stop, grace_s=0.05)
    for each in (watched, hasty):
        assert each.look() == ""
        assert not each.at_once()
    stop.set()
    assert watched.look() == hasty.look() == "pause"
    until(hasty.at_once)
    assert not watched.at_once()
    cancelled = watch(Beats())
    cancelled.ask("cancel")
    assert cancelled.at_once()
    broken = watch(Beats())
    broken.ask("lost", "Ray has ended", at_once=True)
    assert broken.at_once()


def test_a_flag_that_cannot_be_raised_is_survived() -> None:
    watched = watch(Beats(), grace_s=0.0)

    def fail() -> None:
        raise OSError("disk")

    watched.when_asked(fail)
    watched.ask("pause")
    until(watched.at_once)


def test_nothing_is_done_once_the_packs_have_ended() -> None:
    asked: list[str] = []
    watched = watch(Beats())
    watched.when_asked(lambda: asked.append("packs"))
    watched.leave()
    watched.ask("stale", "let go")
    assert asked == []
    assert watched.why == "stale"
