"""Comma-separated (.csv) and tab-separated (.tsv) values, also gzipped (.gz): columns by the names in the first row.

The values of a column are numbers, true and false, or strings; empty ones and NA are missing. A .csv file may also be
separated by semicolons or tabs, as spreadsheets of some countries write it. The data may be a folder of files.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from trainers.data.gzipped import opened
from trainers.data.table_files import TableFiles
from trainers.data.transcription import Types, transcribed
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


def _table(path: Path, names: Sequence[str]) -> Any:
    return transcribed(path, partial(_read, path, names), partial(_found, path, names), _both)


def _read(path: Path, names: Sequence[str], block: int, types: Types | None) -> Iterator[Any]:
    """The schema and the batches of a file."""
    import pyarrow.csv as arrow

    known, separator = _header(path)
    options = arrow.ReadOptions(use_threads=False, block_size=block, column_names=known, skip_rows=1)
    parsing = arrow.ParseOptions(delimiter=separator, newlines_in_values=True)
    with opened(path) as file, arrow.open_csv(file, options, parsing, _conversion(names, types)) as reader:
        yield reader.schema
        yield from reader


def _conversion(names: Sequence[str], types: Types | None) -> Any:
    import pyarrow.csv as arrow

    return arrow.ConvertOptions(
        include_columns=list(names), column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False
    )


def _found(path: Path, names: Sequence[str], block: int) -> Iterator[Types]:
    """The types of each block, written anew: the reader tells a block's rows, but not its text."""
    import pyarrow as pa
    import pyarrow.csv as arrow

    batches = _read(path, names, block, dict.fromkeys(names, pa.string()))
    next(batches)
    for batch in batches:
        text = pa.BufferOutputStream()
        arrow.write_csv(batch, text, arrow.WriteOptions(quoting_style="all_valid"))
        content = text.getvalue()
        options = arrow.ReadOptions(use_threads=False, block_size=content.size + 1)
        table = arrow.read_csv(pa.BufferReader(content), options, convert_options=_conversion(names, None))
        yield dict(zip(table.column_names, table.schema.types, strict=True))


def _both(one: Any, other: Any) -> Any:
    """The first of Arrow's types, in the order in which it tries them, that takes the values of two."""
    import pyarrow as pa

    ladders = (
        (pa.int64(), pa.bool_()),  # 0 and 1 are booleans, too
        (pa.int64(), pa.float64()),
        (pa.date32(), pa.timestamp("s"), pa.timestamp("ns")),
    )
    if pa.null() in (one, other):
        return other if one == pa.null() else one
    for ladder in ladders:
        if one in ladder and other in ladder:
            return max(one, other, key=ladder.index)
    return one if one == other else pa.string()


_FILES = TableFiles((".csv", ".tsv", ".csv.gz", ".tsv.gz"), lambda path: _header(path)[0], _table)
recognises = _FILES.recognises
files = _FILES.files
has_test = _FILES.has_test
names = _FILES.names
read = _FILES.read
