"""Comma-separated (.csv) and tab-separated (.tsv) values, also gzipped (.gz): columns by the names in the first row.

The values of a column are numbers, true and false, or strings; empty ones and NA are missing. A .csv file may also be
separated by semicolons or tabs, as spreadsheets of some countries write it. The data may be a folder of files.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

from trainers.data.gzipped import opened
from trainers.data.table_files import TableFiles
from trainers.data.transcription import Types, transcribed, wider
from trainers.values import shown

__all__ = ["FOLDERS", "files", "has_test", "names", "read", "recognises"]

FOLDERS = True
_TAB = "\t"
_SEPARATORS = ",;\t"
_HEADER = 2**20  # bytes


def _header(path: Path) -> tuple[Sequence[str], str]:
    """(names of the columns, separator)."""
    with opened(path) as file:
        line = file.readline(_HEADER).decode("utf-8-sig")
    if "\0" in line:
        raise ValueError("must be text, got bytes")
    if not line.strip():
        raise ValueError("must have a first row of names, got an empty one")
    tabs = path.name.removesuffix(".gz").endswith(".tsv")
    separator = _TAB if tabs else max(_SEPARATORS, key=line.count)
    names = [name.strip() for name in next(csv.reader([line], delimiter=separator))]
    if all(_is_number(name) for name in names):
        raise ValueError(f"must have the columns' names in its first row, got the numbers {shown(line.strip())}")
    return names, separator


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


class _Rows:
    """The text of a file with an empty line in place of its header, in pieces that never end between CR and LF.

    Arrow takes an LF at the beginning of a piece for part of the previous line's end, even in quotes.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._ahead = b"\n"
        file.readline(_HEADER)
        self.closed = False

    def read(self, size: int) -> bytes:
        """Up to `size` bytes, where `size` is at least 2."""
        piece = self._ahead + self._file.read(size - len(self._ahead))
        self._ahead = b""
        if len(piece) > 1 and piece.endswith(b"\r"):
            piece, self._ahead = piece[:-1], b"\r"
        return piece

    def close(self) -> None:
        """Leaves the file open."""


def _table(path: Path, names: Sequence[str]) -> Any:
    return transcribed(partial(_read, path, names), partial(_types, path, names), partial(_looser, path))


def _read(path: Path, names: Sequence[str], block: int, types: Types | None) -> Iterator[Any]:
    """The schema and the batches of a file."""
    import pyarrow.csv as arrow

    column_names, separator = _header(path)
    options = arrow.ReadOptions(use_threads=False, block_size=block, column_names=column_names, skip_rows=1)
    parsing = arrow.ParseOptions(delimiter=separator, newlines_in_values=True)
    with opened(path) as file, arrow.open_csv(_Rows(file), options, parsing, _conversion(names, types)) as reader:
        yield reader.schema
        yield from reader


def _conversion(names: Sequence[str], types: Types | None) -> Any:
    import pyarrow.csv as arrow

    return arrow.ConvertOptions(
        include_columns=list(names), column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False
    )


def _types(path: Path, names: Sequence[str], block: int) -> Types:
    """The types that fit all blocks. Each block is written anew: the reader gives its rows, but not its text."""
    import pyarrow as pa
    import pyarrow.csv as arrow

    types: dict[str, Any] = dict.fromkeys(names, pa.null())
    batches = _read(path, names, block, dict.fromkeys(names, pa.binary()))
    next(batches)
    for batch in batches:
        columns = {}
        for name, column in zip(names, batch.columns, strict=True):
            try:
                columns[name] = column.cast(pa.string())
            except pa.ArrowInvalid:  # not UTF-8
                types[name] = pa.binary()
        if not columns:
            break
        text = pa.BufferOutputStream()
        arrow.write_csv(pa.table(columns), text, arrow.WriteOptions(quoting_style="all_valid"))
        content = text.getvalue()
        options = arrow.ReadOptions(use_threads=False, block_size=content.size + 1)
        schema = arrow.read_csv(pa.BufferReader(content), options, convert_options=_conversion([*columns], None)).schema
        for name in columns:
            types[name] = _both(types[name], schema.field(name).type)
    return types


def _ladder() -> Sequence[Any]:
    """Arrow's types, in the order in which it tries them."""
    import pyarrow as pa

    times = [pa.timestamp(unit, zone) for unit in ("s", "ns") for zone in (None, "UTC")]
    return [pa.null(), pa.int64(), pa.bool_(), pa.date32(), pa.time32("s"), *times, pa.float64(), pa.string()]


def _both(one: Any, other: Any) -> Any:
    """The first of Arrow's types that may hold the values of both types."""
    import pyarrow as pa

    second, second_utc, nano, nano_utc = _ladder()[5:9]
    ladders = (
        (pa.int64(), pa.bool_()),  # 0 and 1 are booleans, too
        (pa.int64(), pa.float64()),
        (pa.date32(), second, nano),
        (second_utc, nano_utc),
    )
    both = wider(one, other, ladders)
    if both is None:
        return pa.binary() if pa.binary() in (one, other) else pa.string()
    return both


def _looser(path: Path, types: Types, error: str) -> Types | None:
    """The types, with the next type that Arrow would try for the column in an error; None if there is none."""
    import pyarrow as pa

    match = re.match(r"In CSV column #(\d+):", error)
    if match is None:
        return None
    name, ladder = _header(path)[0][int(match[1])], [*_ladder(), pa.binary()]
    if name not in types or types[name] == ladder[-1]:
        return None
    return {**types, name: ladder[ladder.index(types[name]) + 1]}


_FILES = TableFiles((".csv", ".tsv", ".csv.gz", ".tsv.gz"), lambda path: _header(path)[0], _table)
recognises = _FILES.recognises
files = _FILES.files
has_test = _FILES.has_test
names = _FILES.names
read = _FILES.read
