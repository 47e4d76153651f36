"""Parquet files (.parquet), or a folder of them, as `train-00000-of-00002.parquet` on the Hugging Face hub.

Columns are numbers, strings, lists of one length, or images as the library datasets stores them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from trainers.data.table_files import TableFiles

__all__ = ["FOLDERS", "files", "has_test", "names", "read", "recognises"]

FOLDERS = True


def _names(path: Path) -> Sequence[str]:
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        return list(file.schema_arrow.names)


def _table(path: Path, names: Sequence[str]) -> Any:
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        return file.read(list(names), use_threads=False)


def _chunks(path: Path, name: str) -> Iterator[Any]:
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        for batch in file.iter_batches(columns=[name], use_threads=False):
            yield batch.column(name)


_FILES = TableFiles((".parquet",), _names, _table, _chunks)
recognises = _FILES.recognises
files = _FILES.files
has_test = _FILES.has_test
names = _FILES.names
read = _FILES.read
