"""Comma-separated (.csv) and tab-separated (.tsv) values, also gzipped (.gz): columns by the names in the first row.

The values of a column are numbers, true and false, or strings; empty ones and NA are missing. A .csv file may also be
separated by semicolons or tabs, as spreadsheets of some countries write it. The data may be a folder of files.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainers.data.arrow_columns import block_size
from trainers.data.gzipped import opened
from trainers.data.table_files import TableFiles
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
    import pyarrow.csv as arrow

    known, separator = _header(path)
    conversion = arrow.ConvertOptions(
        include_columns=list(names), strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    options = arrow.ReadOptions(use_threads=False, block_size=block_size(path), column_names=known, skip_rows=1)
    with opened(path) as file:
        return arrow.read_csv(
            file, options, arrow.ParseOptions(delimiter=separator, newlines_in_values=True), conversion
        )


_FILES = TableFiles((".csv", ".tsv", ".csv.gz", ".tsv.gz"), lambda path: _header(path)[0], _table)
recognises = _FILES.recognises
files = _FILES.files
has_test = _FILES.has_test
names = _FILES.names
read = _FILES.read
