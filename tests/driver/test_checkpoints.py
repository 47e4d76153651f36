"""Checkpoint files and the stop flag, on this machine's file system and on one of fsspec's others."""

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
    other = checkpoints.write(checkpoints.join(folder, "study", "pack.10"), 7, b"other")
    urls = [checkpoints.write(prefix, number, f"round {number}".encode()) for number in (5, 100, 20_000)]
    assert list(checkpoints.names(prefix)) == [urls[2], urls[1]]
    assert [checkpoints.read(url) for url in checkpoints.names(prefix)] == [b"round 20000", b"round 100"]
    assert checkpoints.read(other) == b"other"
    checkpoints.remove(prefix)
    assert list(checkpoints.names(prefix)) == []
    assert checkpoints.read(other) == b"other"
    checkpoints.clear(checkpoints.join(folder, "study"))
    assert list(checkpoints.names(checkpoints.join(folder, "study", "pack.10"))) == []
    checkpoints.clear(checkpoints.join(folder, "study"))


def test_a_checkpoint_is_replaced_whole(folder: str) -> None:
    prefix = checkpoints.join(folder, "pack")
    url = checkpoints.write(prefix, 3, b"x" * 1000)
    assert checkpoints.write(prefix, 3, b"y") == url
    assert checkpoints.read(url) == b"y"


def test_the_flag(folder: str) -> None:
    flag = checkpoints.join(folder, "study", "stop.1")
    assert not checkpoints.flagged(flag)
    checkpoints.raise_flag(flag)
    checkpoints.raise_flag(flag)
    assert checkpoints.flagged(flag)
    checkpoints.lower_flag(flag)
    checkpoints.lower_flag(flag)
    assert not checkpoints.flagged(flag)


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(OSError, match="file"):
        checkpoints.write(str(tmp_path / "file" / "pack"), 1, b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_half_written_files_are_not_seen(tmp_path: Path) -> None:
    url = checkpoints.write(str(tmp_path / "pack"), 1, b"x")
    (tmp_path / "pack.00000002.ckpt.77.part").write_bytes(b"half")
    (tmp_path / "pack.new.ckpt").write_bytes(b"no round")
    assert list(checkpoints.names(str(tmp_path / "pack"))) == [url]


def test_what_dead_drivers_have_left_is_cleared_too(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    checkpoints.write(str(folder / "pack.1"), 8, b"whole")
    (folder / "pack.1.00000016.ckpt.4711.part").write_bytes(b"ha")
    checkpoints.raise_flag(checkpoints.flag(str(folder), 1))
    checkpoints.clear(str(folder))
    assert not folder.exists()
