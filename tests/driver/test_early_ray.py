"""A Ray that is started before the study is known to be valid; a stand-in, the real one is in tests/embedded."""

import contextlib
import gc
import importlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from driftline.errors import Unavailable
from service.driver.ray import early_ray
from service.driver.ray.early_ray import EarlyRay
from tests.waiting import until


@pytest.fixture(autouse=True)
def collection() -> Iterator[None]:
    """Restores how often this process collects."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()
    gc.enable()


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, threading.Thread]]:
    """What happened to the stand-in, in which thread."""
    seen: list[tuple[str, threading.Thread]] = []

    @contextlib.contextmanager
    def private(*_: Any) -> Iterator[Path]:
        seen.append(("start", threading.current_thread()))
        yield Path("folder")
        seen.append(("end", threading.current_thread()))

    monkeypatch.setattr(early_ray, "private", private)
    monkeypatch.setattr(importlib, "import_module", lambda name: None)
    return seen


def test_one_thread_starts_and_ends_it_and_lives_until_then(threads: list[tuple[str, threading.Thread]]) -> None:
    started = EarlyRay()
    with started.taken() as folder:
        assert folder == Path("folder")
        ((what, thread),) = threads
        assert what == "start"
        assert thread.is_alive(), "Ray's processes are killed when the thread that started them ends"
    assert threads == [("start", thread), ("end", thread)]
    assert thread is not threading.current_thread()
    started.close()
    with pytest.raises(RuntimeError, match="has ended"), started.taken():
        pass


def test_it_has_the_processor_alone_until_ray_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    @contextlib.contextmanager
    def private(progress: Callable[[str], None], num_cpus: int | None) -> Iterator[Path]:
        time.sleep(0.2)
        seen.append("imported")
        progress("starting Ray ...")
        until(lambda: "goes on" in seen)
        yield Path("folder")

    monkeypatch.setattr(early_ray, "private", private)
    monkeypatch.setattr(importlib, "import_module", lambda name: None)
    early = EarlyRay()
    seen.append("goes on")
    with early.taken():
        assert seen == ["imported", "goes on"]


def test_one_that_nobody_takes_ends_with_the_program(threads: list[tuple[str, threading.Thread]]) -> None:
    early = EarlyRay()
    until(early._ready.is_set)
    early.close()
    assert [what for what, _ in threads] == ["start", "end"]


def test_an_error_is_raised_where_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def private(*_: Any) -> Iterator[Path]:
        raise Unavailable("no Ray today")
        yield

    monkeypatch.setattr(early_ray, "private", private)
    with pytest.raises(Unavailable, match="no Ray today"), EarlyRay().taken():
        pass


@pytest.mark.parametrize("error", [None, Unavailable("no Ray today")])
def test_nothing_is_collected_while_it_starts(error: Unavailable | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program imports its modules meanwhile: looking at what they make takes a tenth of their processor time."""
    collects: list[bool] = []

    @contextlib.contextmanager
    def private(*_: Any) -> Iterator[Path]:
        collects.append(gc.isenabled())
        if error is not None:
            raise error
        yield Path("folder")

    monkeypatch.setattr(early_ray, "private", private)
    monkeypatch.setattr(importlib, "import_module", lambda name: collects.append(gc.isenabled()))
    early = EarlyRay()
    until(early._ready.is_set)
    assert gc.isenabled()
    early.close()
    assert set(collects) == {False}
