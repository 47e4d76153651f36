"""Locks on files, and the folders of processes that have died."""

import tempfile
from pathlib import Path

import pytest

from service.file_locks import LOCK, acquire, own_folder


def test_a_lock_is_held_until_its_file_is_closed(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    with file.open("w") as first, file.open("r+") as second:
        assert acquire(first)
        assert not acquire(second)
        assert not acquire(second, shared=True)
    with file.open("r+") as first, file.open("r+") as second, file.open("r+") as third:
        assert acquire(first, shared=True)
        assert acquire(second, shared=True)
        assert not acquire(third)


def test_folders_of_the_dead_are_removed_and_others_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead, living, without_lock = (tmp_path / f"mine-{name * 8}" for name in "abc")
    for folder in (dead, living, without_lock):
        folder.mkdir()
    (dead / LOCK).touch()
    with (living / LOCK).open("w") as lock:
        assert acquire(lock)
        folder, held = own_folder("mine-", 1000)
        with held:
            assert folder.parent == tmp_path
            assert folder.stat().st_mode & 0o777 == 0o700
            assert sorted(tmp_path.iterdir()) == sorted([living, without_lock, folder])
            again, other = own_folder("mine-", 1000)
            with other:
                assert folder.exists()
                assert again != folder
