"""JSON lines (.jsonl, .ndjson), also gzipped (.gz): an object a line, whose keys are the columns.

Values are numbers, true and false, strings, or nested lists of one length. The data may be a folder of files.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainers.data.arrow_columns import block_size
from trainers.data.gzipped import opened
from trainers.data.table_files import TableFiles

__all__ = ["FOLDERS", "files", "has_test", "names", "read", "recognises"]

FOLDERS = True


def _names(path: Path) -> Sequence[str]:
    with opened(path) as file:
        line = file.readline(block_size(path))
    first = json.loads(line.decode("utf-8-sig"))
    if not isinstance(first, dict) or not first:
        raise ValueError("must have an object in each line, got another value in the first")
    return list(first)


def _table(path: Path, names: Sequence[str]) -> Any:
    import pyarrow.json as arrow

    with opened(path) as file:
        table = arrow.read_json(file, arrow.ReadOptions(use_threads=False, block_size=block_size(path)))
    return table.select([name for name in names if name in table.column_names])


_FILES = TableFiles((".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz"), _names, _table)
recognises = _FILES.recognises
files = _FILES.files
has_test = _FILES.has_test
names = _FILES.names
read = _FILES.read
