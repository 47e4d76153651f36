"""Text is read block by block: what a column holds does not depend on where a block ends."""

import errno
import io
from pathlib import Path
from typing import Any

import pytest

from trainers.data import growing_column, transcription
from trainers.data.data_source import formats
from trainers.errors import SpecError

MANY = 40  # rows, more than a block
COLUMNS: dict[str, tuple[str, str, str]] = {  # values of the first rows, and of the last; kind of the array
    "whole": ("7", "12", "i"),
    "fractions": ("7", "1.25", "f"),
    "fractions first": ("1.25", "7", "f"),
    "large": ("1", "9007199254740993.0", "f"),
    "text": ("1.50", "x", "U"),
    "booleans": ("0", "true", "b"),
    "spelled": ("true", "yes", "U"),
    "quoted": ('"a,""b"', "NA ", "U"),
    "long": ("a", "b" * 200, "U"),
    "no boolean": ("5", "true", "U"),
    "base 16": ("0x1F", "1.5", "U"),
    "quotes": ("5", '"1\r\n""2"', "U"),
}
TIMES = {"2024-05-01": "2024-05-01T10:00:00", "2024-05-01T10:00:00": "2024-05-01T10:00:00.5"}
TIMES["2024-05-01T10:00:00Z"] = "2024-05-01T10:00:00.25+00:00"
LINES: dict[str, tuple[str, str, str]] = {
    "whole": ("7", "12", "i"),
    "fractions": ("7", "1.25", "f"),
    "lists": ("[1, 2]", "[0.5, 2]", "f"),
    "strings": ('"2024-05-01 00:00:00"', '"x"', "U"),
    "long": ('"a"', f'"{"b" * 200}"', "U"),
}


def column(file: Path, block: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(transcription, "_FIRST", block)
    name = "csv" if file.suffix == ".csv" else "jsonl"
    return formats()[name].read(file, ["a"], "task.path").array("a", "task.inputs")


def written(folder: Path, first: str, last: str, lines: bool) -> Path:
    values = [first] * MANY + [last]
    file = folder / ("own.jsonl" if lines else "own.csv")
    rows = [f'{{"a": {value}, "b": 1}}' for value in values] if lines else ["a,b", *(f"{one},1" for one in values)]
    file.write_text("\n".join(rows) + "\n")
    return file


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("case", [*(("csv", name) for name in COLUMNS), *(("jsonl", name) for name in LINES)])
def test_a_column_does_not_depend_on_blocks(
    case: tuple[str, str], large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        monkeypatch.setattr(transcription, "_SMALL", 0)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    lines = case[0] == "jsonl"
    first, last, kind = (LINES if lines else COLUMNS)[case[1]]
    file = written(tmp_path, first, last, lines)
    whole, cut = (column(file, block, monkeypatch) for block in (2**20, 64))
    assert whole.dtype == cut.dtype
    assert whole.dtype.kind == kind
    assert whole.tolist() == cut.tolist()
    assert len(whole) == MANY + 1


@pytest.mark.parametrize("first", TIMES)
def test_dates_and_times_are_those_of_the_finest(first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, orders = written(tmp_path, first, TIMES[first], lines=False), []
    for block in (2**20, 64):
        monkeypatch.setattr(transcription, "_FIRST", block)
        columns: Any = formats()["csv"].read(file, ["a"], "task.path")
        orders.append(columns.dates("a", "task.order").tolist())
    assert orders[0] == orders[1]
    assert orders[0][0] < orders[0][-1]


@pytest.mark.parametrize(
    ("lines", "first", "last", "message"),
    [
        (False, "5", "true,1", "Expected 2 columns, got 3"),
        (True, "5", '"x"', r"changed from number to string in row 0 after row 40"),
        (True, "5", "null", r"must have a value in every row, got none in 1 of 41 rows, first in row 40"),
        (False, "5", "", r"must have a value in every row, got none in 1 of 41 rows, first in row 40"),
        (True, "5", "[", r"JSON parse error: .* after row 4"),
    ],
)
def test_an_error_names_the_row(
    lines: bool, first: str, last: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path, first, last, lines)
    with pytest.raises(SpecError, match=message):
        column(file, 64, monkeypatch)


def test_a_row_of_csv_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, "a", "b" * 600, lines=False)
    monkeypatch.setattr(transcription, "_LARGEST", 256)
    with pytest.raises(SpecError, match=r"own\.csv: must have rows of at most 256 bytes, got more: close open quotes$"):
        column(file, 64, monkeypatch)


def test_no_end_of_line_in_quotes_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "own.csv"
    value = "one\r\n" * 3
    file.write_bytes(b"a,b\r\n" + "".join(f'"{value}",1\r\n' for _ in range(MANY)).encode())
    for block in range(64, 96):
        assert set(column(file, block, monkeypatch).tolist()) == {value}


def test_a_header_may_be_longer_than_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "own.csv"
    file.write_text(f"a,{'b' * 300}\n1,2\n")
    assert column(file, 64, monkeypatch).tolist() == [1]


def test_other_encodings_are_named_wherever_they_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, "a", "b", lines=False)
    file.write_bytes(file.read_bytes() + b"\xe9,1\n")
    with pytest.raises(SpecError, match=r"must hold text in UTF-8, got other bytes: save the file as UTF-8$"):
        column(file, 64, monkeypatch)


@pytest.mark.parametrize("lines", [False, True])
def test_a_full_disk_leaves_the_table_in_memory(lines: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcription, "_SMALL", 0)
    with Path("/dev/full").open("w+b") as full:
        monkeypatch.setattr(transcription.disk_cache, "unnamed", lambda: full)
        assert column(written(tmp_path, "7", "12", lines), 64, monkeypatch).tolist() == [7] * MANY + [12]


def test_a_full_disk_leaves_a_growing_column_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.FileIO):
        def write(self, content: Any) -> int:
            if self.tell() + len(content) > 100:
                raise OSError(errno.ENOSPC, "no room")
            return super().write(content)

    monkeypatch.setattr(growing_column, "_SMALL", 10)
    monkeypatch.setattr(growing_column.disk_cache, "unnamed", lambda: Full(tmp_path / "file", "w+"))
    whole = growing_column.GrowingColumn()
    for row in range(30):
        whole.extend([row])
    assert whole.array().tolist() == list(range(30))
