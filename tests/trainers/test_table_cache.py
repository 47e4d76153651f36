"""Large tables are converted once: the next start maps them, damaged entries are made again, results stay the same."""

import itertools
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainers import disk_cache, own_files
from trainers.data import archive, table_cache
from trainers.errors import SpecError
from trainers.problem import Problem
from trainers.tasks import data

GENERATOR = np.random.default_rng(0)
EXAMPLES = 300
ARRAYS = {
    "x": GENERATOR.standard_normal((EXAMPLES, 3)),
    "y": np.array(["no", "yes", "maybe"])[GENERATOR.integers(0, 3, EXAMPLES)],
    "client": np.sort(GENERATOR.integers(0, 9, EXAMPLES)),
    "mixed": GENERATOR.permutation(np.arange(EXAMPLES) % 9),
    "words": np.array(["a|b", "", "c", "b|a|c"])[np.arange(EXAMPLES) % 4],
    "text": np.array(["a b", "", "c a d", "b"])[np.arange(EXAMPLES) % 4],
    "item": np.array(["a", "b", "c", "d"])[GENERATOR.integers(0, 4, EXAMPLES)],
    "order": GENERATOR.permutation(EXAMPLES),
    "x_test": GENERATOR.standard_normal((50, 3)),
    "y_test": np.array(["no", "yes"] * 25),
    "columns": np.asfortranarray(GENERATOR.standard_normal((EXAMPLES, 3))),
}
SEPARATE = {"test": {"inputs": "x_test", "targets": "y_test"}}
DOCUMENTS: dict[str, dict[str, Any]] = {
    "as_they_are": SEPARATE,
    "mixed": {"client": "mixed", **SEPARATE},
    "fraction": {"test_fraction": 0.3, "central": {"fraction": 0.2}},
    "scaled": {"scale": "standardise", **SEPARATE},
    "by_column": {"inputs": "columns", **SEPARATE},
    "several": {"inputs": ["x", "columns"], "test": {"clients": 0.3}},
    "iid": {"partition": "iid", "clients": 7},
    "tags": {"targets": "words", "separator": "|", "model": "logistic"},
    "sentences": {"inputs": "text", "kind": "tokens", "words": 3, "context": 2, "model": "lstm"},
    "bags": {"inputs": "text", "words": 3},
    "histories": {"inputs": "item", "kind": "pairs", "context": 2, "client": "mixed", "model": "dual_encoder"},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache; every file is large."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(table_cache, "_KEPT", 0)
    monkeypatch.setattr(table_cache, "_ROWS", 16)
    monkeypatch.setattr(disk_cache, "_LARGE", 0)
    monkeypatch.setattr(archive, "_LARGE", 0)
    monkeypatch.setattr(disk_cache, "_SETTLED_S", -1e9)
    monkeypatch.chdir(tmp_path)
    np.savez("own.npz", **ARRAYS)
    table_cache._load.cache_clear()
    return tmp_path / "cache" / "driftline" / "data"


def built(dtype: str = "float64", **document: Any) -> Problem:
    """The problem, as a new process builds it."""
    table_cache._load.cache_clear()
    return data.build(data.parse({"name": "data", "path": "own.npz", **document}, "task"), dtype)


def mapped(array: Any) -> bool:
    while array is not None and not isinstance(array, np.memmap):
        array = getattr(array, "base", None)
    return array is not None


def entries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir())


@pytest.mark.parametrize(("name", "dtype"), [*zip(DOCUMENTS, itertools.cycle(["float32", "float64"]), strict=False)])
def test_a_kept_table_is_the_same_and_read_once(
    name: str, dtype: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(disk_cache.VARIABLE, "0")
    plain = built(dtype, **DOCUMENTS[name])
    assert not folder.exists()
    monkeypatch.delenv(disk_cache.VARIABLE)
    first = built(dtype, **DOCUMENTS[name])

    def unreadable(*_: Any) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr(table_cache, "read", unreadable)
    monkeypatch.setattr(disk_cache, "_digest", unreadable)
    second = built(dtype, **DOCUMENTS[name])
    for problem in (first, second):
        for side in ("train", "test", "central"):
            one, other = getattr(plain, side), getattr(problem, side)
            assert (one is None) == (other is None)
            for array in ("inputs", "targets", "offsets", "sizes") if one is not None else ():
                np.testing.assert_array_equal(getattr(one, array), getattr(other, array))
                assert getattr(one, array).dtype == getattr(other, array).dtype
    assert mapped(second.train.inputs)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("sentences", {"words": 2}),
        ("sentences", {"context": 3}),
        ("bags", {"words": 2}),
        ("histories", {"context": 1}),
        ("histories", {"order": "order"}),
    ],
)
def test_every_key_of_sequences_names_another_table(
    name: str, change: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = DOCUMENTS[name]
    kept = [built(**document), built(**{**document, **change})]
    monkeypatch.setenv(disk_cache.VARIABLE, "0")
    plain = built(**{**document, **change})
    np.testing.assert_array_equal(kept[1].train.inputs, plain.train.inputs)
    np.testing.assert_array_equal(kept[1].train.targets, plain.train.targets)
    assert not np.array_equal(kept[0].train.inputs, plain.train.inputs)


def test_another_file_and_other_columns_are_other_entries(folder: Path) -> None:
    built(**SEPARATE)
    count = len(entries(folder))
    os.utime("own.npz", ns=(1, 1))  # the same content
    built(**SEPARATE)
    assert len(entries(folder)) == count + 1, "of the checksum alone"
    built(client="mixed", **SEPARATE)
    np.savez("own.npz", **{**ARRAYS, "x": ARRAYS["x"] + 1})
    assert built(**SEPARATE).train.inputs[0, 0] == ARRAYS["x"][0, 0] + 1


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-8])


def overwrite(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-3] ^= 255
    file.write_bytes(content)


@pytest.mark.parametrize("damage", [cut, overwrite, Path.unlink])
def test_a_damaged_entry_is_made_again(damage: Callable[[Path], None], folder: Path) -> None:
    plain = np.array(built(**SEPARATE).train.inputs)
    for entry in entries(folder):
        for file in list(entry.iterdir()):
            whole = file.read_bytes()
            damage(file)
            np.testing.assert_array_equal(built(**SEPARATE).train.inputs, plain)
            assert file.read_bytes() == whole


def test_a_large_entry_is_checked_in_blocks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_cache, "_WHOLE", 1000)
    monkeypatch.setattr(disk_cache, "_BLOCK", 16)
    made = []

    def make(path: Path) -> None:
        made.append(path)
        (path / "numbers").write_bytes(bytes(100_000))

    for damaged in (False, True):
        assert disk_cache.entry("a", make, lambda path: (path / "numbers").stat().st_size) == 100_000
        if not damaged:
            (folder / "a" / "numbers").write_bytes(bytes(50_000) + b"1" * 50_000)
    assert len(made) == 2


def test_invalid_data_leave_nothing(folder: Path) -> None:
    np.savez("own.npz", **{**ARRAYS, "x": np.full((EXAMPLES, 3), np.nan)})
    for _ in range(2):
        with pytest.raises(SpecError, match="must be finite"):
            built(**SEPARATE)
    assert [entry for entry in entries(folder) if (entry / "table.json").exists()] == []
    assert not list(folder.glob("*.part"))


def test_what_a_killed_process_left_is_removed(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in ("mine.abc.part", "other.abc.part"):
        (folder / name).mkdir()
        (folder / name / "half.npy").write_bytes(b"1")
    assert disk_cache.entry("mine", lambda path: (path / "a").touch() or None, lambda path: (path / "a").exists())
    assert not list(folder.glob("*.part"))


def test_two_processes_make_an_entry_once(folder: Path) -> None:
    """Threads stand for processes: a lock belongs to an open file, not to a process."""
    made: list[int] = []

    def make(path: Path) -> None:
        made.append(1)
        time.sleep(0.05)
        (path / "a").write_text("whole")

    with ThreadPoolExecutor(8) as threads:
        entered = threads.map(lambda _: disk_cache.entry("a", make, lambda path: (path / "a").read_text()), range(8))
    assert list(entered) == ["whole"] * 8
    assert len(made) == 1


def test_the_least_recently_used_go_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def use(name: str) -> None:
        assert disk_cache.entry(name, lambda path: (path / "a").write_bytes(bytes(1000)) and None, lambda path: True)
        os.utime(folder / name, (clock[name], clock[name]))

    clock = {"a": 1, "b": 2, "c": 3}
    monkeypatch.setenv(disk_cache.VARIABLE, str(2500 / 2**30))
    use("a")
    use("b")
    clock["a"] = 4
    use("a")
    use("c")
    assert [entry.name for entry in entries(folder)] == ["a", "c"]
    assert not (folder / "b.lock").exists()


def test_what_another_process_makes_again_is_not_removed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second process removes an entry between the two steps with which the first locks it, and a third makes it."""
    lock = folder / "a.lock"
    (folder / "a").mkdir(parents=True)
    opened = own_files.append

    def and_then(path: Path) -> int:
        descriptor = opened(path)
        monkeypatch.setattr(own_files, "append", opened)
        assert disk_cache._remove_if_free(folder / "a", lock)
        assert disk_cache.entry("a", lambda path: (path / "a").touch() or None, lambda path: True)
        return descriptor

    monkeypatch.setattr(own_files, "append", and_then)
    assert not disk_cache._remove_if_free(folder / "a", lock)
    assert (folder / "a" / "a").exists()
    assert lock.exists()


@pytest.mark.parametrize("where", ["file", "none", "full"])
def test_without_a_cache_tables_are_read_into_memory(
    where: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if where == "file":
        (tmp_path / "cache").write_text("")
    elif where == "none":
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setattr(Path, "expanduser", lambda _: (_ for _ in ()).throw(RuntimeError("no home")))
    else:
        monkeypatch.setattr(table_cache, "_save", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    assert not mapped(built(**SEPARATE).train.inputs)
    assert not list(folder.glob("*.part")) if where == "full" else not folder.exists()
