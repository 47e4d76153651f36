"""Checkpoint files, on this machine's file system and on one of fsspec's others."""

import uuid
from pathlib import Path

import pytest

from service.driver import checkpoints


@pytest.fixture(params=["path", "file", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {
        "path": str(tmp_path / "a [b]"),
        "file": f"file://{tmp_path}/runs",
        "memory": f"memory://{uuid.uuid4().hex}",
    }[request.param]


def test_the_newest_two_are_kept_newest_first(folder: str) -> None:
    prefix = checkpoints.join(folder, "study", "pack.1")
    other = checkpoints.write(checkpoints.join(folder, "study", "pack.10"), (1, 1), 7, b"other")
    urls = [checkpoints.write(prefix, (1, 2), number, f"round {number}".encode()) for number in (5, 100, 20_000)]
    assert list(checkpoints.names(prefix, 20_000)) == [urls[2], urls[1]]
    assert [checkpoints.read(url) for url in checkpoints.names(prefix, 20_000)] == [b"round 20000", b"round 100"]
    assert list(checkpoints.names(prefix, 19_999)) == [urls[1]]  # nobody knows what was trained beyond
    assert checkpoints.read(other) == b"other"
    checkpoints.remove(prefix)
    assert list(checkpoints.names(prefix, 20_000)) == []
    assert checkpoints.read(other) == b"other"
    checkpoints.clear(checkpoints.join(folder, "study"), 1)
    assert list(checkpoints.names(checkpoints.join(folder, "study", "pack.10"), 20_000)) == []
    checkpoints.clear(checkpoints.join(folder, "study"), 1)


@pytest.mark.parametrize(("old", "new"), [((1, 9), (2, 1)), ((2, 9), (2, 10))], ids=["attempt", "pack"])
def test_a_worker_that_was_replaced_harms_no_newer_checkpoint(
    folder: str, old: tuple[int, int], new: tuple[int, int]
) -> None:
    """It was stopped while it wrote, and wakes up when its successor has trained for a while, or is ahead of it."""
    prefix = checkpoints.join(folder, "study", "pack.1")
    known = checkpoints.write(prefix, old, 90, b"both go on from here")
    assert list(checkpoints.names(prefix, 95)) == [known]
    first = checkpoints.write(prefix, new, 100, b"new 100")
    for number in (100, 110, 500):  # it wakes up
        checkpoints.write(prefix, old, number, b"old")
    assert next(checkpoints.names(prefix, 1000)) == first
    assert checkpoints.read(first) == b"new 100"
    second = checkpoints.write(prefix, new, 120, b"new 120")
    assert list(checkpoints.names(prefix, 1000)) == [second, first]
    checkpoints.write(prefix, old, 510, b"old")
    assert list(checkpoints.names(prefix, 1000))[:2] == [second, first]
    assert [checkpoints.read(url) for url in (second, first)] == [b"new 120", b"new 100"]


def test_an_older_driver_clears_nothing_of_a_newer_one(folder: str) -> None:
    study = checkpoints.join(folder, "study")
    prefix = checkpoints.join(study, "pack.1")
    checkpoints.write(prefix, (1, 1), 5, b"old")
    new = checkpoints.write(prefix, (2, 1), 5, b"new")
    checkpoints.clear(study, 1)
    assert list(checkpoints.names(prefix, 5)) == [new]


def test_a_checkpoint_is_replaced_whole(folder: str) -> None:
    prefix = checkpoints.join(folder, "pack")
    url = checkpoints.write(prefix, (1, 1), 3, b"x" * 1000)
    assert checkpoints.write(prefix, (1, 1), 3, b"y") == url
    assert checkpoints.read(url) == b"y"


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(OSError, match="file"):
        checkpoints.write(str(tmp_path / "file" / "pack"), (1, 1), 1, b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_half_written_files_are_not_seen(tmp_path: Path) -> None:
    url = checkpoints.write(str(tmp_path / "pack"), (1, 1), 1, b"x")
    (tmp_path / "pack.1.1.00000002.ckpt.77.part").write_bytes(b"half")
    (tmp_path / "pack.1.1.new.ckpt").write_bytes(b"no round")
    assert list(checkpoints.names(str(tmp_path / "pack"), 2)) == [url]


def test_what_dead_drivers_have_left_is_cleared_too(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    checkpoints.write(str(folder / "pack.1"), (1, 1), 8, b"whole")
    (folder / "pack.1.1.1.00000016.ckpt.4711.part").write_bytes(b"ha")
    checkpoints.clear(str(folder), 1)
    assert not folder.exists()
