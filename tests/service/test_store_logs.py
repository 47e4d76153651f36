"""Drivers' logs in the store; every test runs on SQLite and on PostgreSQL."""

import pytest
from pydantic import ValidationError

from driftline.errors import NotFound, StaleDriver
from driftline.wire.logs import LINE_CHARACTERS, NewLine, NewLines
from service.store.store import Store
from service.store.stored_logs import LAST_WORDS_S

from .conftest import Clock
from .store_setup import make


def batch(first: int, count: int, attempt: int = 1) -> NewLines:
    lines = [NewLine(at=1e9 + number, level="info", text=f"line {number}") for number in range(first, first + count)]
    return NewLines(attempt=attempt, lines=lines)


def texts(store: Store, study: str, after: int = 0, limit: int | None = None) -> list[str]:
    return [line.text for line in store.logs.read(study, after=after, limit=limit)]


def test_lines_come_back_in_their_order_and_in_pages(store: Store) -> None:
    study, other = make(store), make(store)
    assert store.logs.write(study, batch(0, 3)) == 3
    store.logs.write(other, batch(100, 1))
    store.logs.write(study, batch(3, 2, attempt=2))
    lines = store.logs.read(study)
    assert [(line.text, line.attempt) for line in lines] == [(f"line {n}", 1 if n < 3 else 2) for n in range(5)]
    assert lines[0].at.timestamp() == 1e9
    assert texts(store, study, after=lines[1].id, limit=2) == ["line 2", "line 3"]
    assert texts(store, study, after=lines[-1].id) == []
    for ask in (lambda: store.logs.read("no"), lambda: store.logs.write("no", batch(0, 1))):
        with pytest.raises(NotFound):
            ask()


def test_the_newest_lines_come_newest_first(store: Store) -> None:
    study, other = make(store), make(store)
    store.logs.write(study, batch(0, 5))
    store.logs.write(other, batch(100, 1))
    newest = store.logs.newest(study, limit=2)
    assert [line.text for line in newest] == ["line 4", "line 3"]
    assert newest == store.logs.read(study)[:2:-1]
    assert [line.text for line in store.logs.newest(study, before=newest[-1].id, limit=9)] == [
        "line 2", "line 1", "line 0",
    ]  # fmt: skip
    with pytest.raises(NotFound):
        store.logs.newest("no", limit=1)


def test_a_batch_sent_again_is_stored_once(store: Store) -> None:
    study = make(store)
    assert [store.logs.write(study, batch(0, 2)) for _ in range(3)] == [2, 0, 0]
    assert [store.logs.write(study, batch(2, 2)) for _ in range(2)] == [2, 0]
    assert store.logs.write(study, NewLines(attempt=1, lines=[])) == 0
    assert texts(store, study) == [f"line {number}" for number in range(4)]


def test_the_oldest_lines_are_dropped_with_a_note(store: Store) -> None:
    study = make(store)
    store.logs.lines_kept = 50
    for start in range(0, 1100, 100):
        store.logs.write(study, batch(start, 100))
    found = store.logs.read(study)
    assert found[0].level == "note"
    assert found[0].text == "1050 older lines were dropped: a study keeps its newest 50"
    assert [line.text for line in found[1:]] == [f"line {number}" for number in range(1050, 1100)]
    assert [line.id for line in found] == list(range(found[0].id, found[0].id + 51))
    assert texts(store, study, after=found[0].id, limit=1) == ["line 1050"]  # the note is not told twice
    store.logs.write(study, batch(1100, 1))
    assert len(texts(store, study)) == 1 + 51


def test_any_text_is_kept_and_long_ones_are_cut(store: Store) -> None:
    study = make(store)
    given = ["\u00e9 \U0001f600 %s \\ '", "a\x00b", "half \ud800 a character", "x" * 10_000]
    store.logs.write(study, NewLines(attempt=0, lines=[NewLine(at=0, text=text) for text in given]))
    first, second, third, long = texts(store, study)
    assert (first, second, third) == (given[0], "a\ufffdb", "half ? a character")
    assert len(long) == LINE_CHARACTERS
    assert long.endswith("x ...")


def test_the_log_of_a_finished_study_is_closed_after_its_last_words(store: Store, clock: Clock) -> None:
    study = make(store)
    for _ in range(2):
        store.leases.acquire(study, "elsewhere/1")
    store.leases.release(study, 2, "FAILED", "no")
    clock.now += LAST_WORDS_S
    store.logs.write(study, NewLines(attempt=2, lines=[NewLine(at=1.0, text="last words")]))
    for attempt in (0, 1):
        with pytest.raises(StaleDriver, match=f"no more lines of attempt {attempt}"):
            store.logs.write(study, NewLines(attempt=attempt, lines=[NewLine(at=1.0, text="late")]))
    clock.now += 1
    with pytest.raises(StaleDriver, match="is FAILED: its log takes no more lines of attempt 2"):
        store.logs.write(study, NewLines(attempt=2, lines=[NewLine(at=1.0, text="late")]))
    assert texts(store, study) == ["last words"]


@pytest.mark.parametrize("at", [-1.0, float("nan"), float("inf"), 1e300, True])
def test_times_that_cannot_be(at: float) -> None:
    with pytest.raises(ValidationError):
        NewLine(at=at, text="x")
