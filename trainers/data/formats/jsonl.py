"""JSON lines (.jsonl, .ndjson), also gzipped (.gz): an object a line, whose keys are the columns.

Values are numbers, true and false, strings, or nested lists of one length. The data may be a folder of files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from trainers.data.gzipped import opened
from trainers.data.table_files import TableFiles
from trainers.data.transcription import Types, transcribed, wider

__all__ = ["FOLDERS", "files", "has_test", "names", "read", "recognises"]

FOLDERS = True
_MOST_OF_A_ROW = 2**24  # bytes


def _names(path: Path) -> Sequence[str]:
    with opened(path) as file:
        line = file.readline(_MOST_OF_A_ROW)
    first = json.loads(line.decode("utf-8-sig"))
    if not isinstance(first, dict) or not first:
        raise ValueError("must have an object in each line, got another value in the first")
    return list(first)


def _table(path: Path, names: Sequence[str]) -> Any:
    return transcribed(partial(_read, path, names), partial(_types, path, names))


def _read(path: Path, names: Sequence[str], block: int, types: Types | None) -> Iterator[Any]:
    """The schema and the batches of a file."""
    for first, lines in _blocks(path, block):
        table = _parsed(first, lines, types)
        if types is None:
            types = {name: table.schema.field(name).type for name in names if name in table.column_names}
        table = table.select(list(types))
        if not first:
            yield table.schema
        yield from table.to_batches()


def _types(path: Path, names: Sequence[str], block: int) -> Types:
    """The types that fit all blocks."""
    types: dict[str, Any] = {}
    for first, lines in _blocks(path, block):
        schema = _parsed(first, lines, None).schema
        for name in names:
            if name in schema.names:
                kind = schema.field(name).type
                types[name] = _both(types[name], kind) if name in types else kind
    return types


def _blocks(path: Path, size: int) -> Iterator[tuple[int, bytes]]:
    """(number of lines before, whole lines), about `size` bytes at a time."""
    with opened(path) as file:
        first = 0
        while lines := file.read(size):
            lines += file.readline(_MOST_OF_A_ROW)
            yield first, lines
            first += lines.count(b"\n")


def _parsed(first: int, lines: bytes, types: Types | None) -> Any:
    import pyarrow as pa
    import pyarrow.json as arrow

    schema = None if types is None else pa.schema(list(types.items()))
    parsing = arrow.ParseOptions(
        explicit_schema=schema, unexpected_field_behavior="infer" if types is None else "ignore"
    )
    options = arrow.ReadOptions(use_threads=False, block_size=len(lines) + 1)
    try:
        return arrow.read_json(pa.BufferReader(lines), options, parsing)
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid(f"{error} after row {first}" if first else str(error)) from error


def _both(one: Any, other: Any) -> Any:
    """The type that holds the values of both; `one` if there is none, so that a later error names the value."""
    import pyarrow as pa

    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(_both(one.value_type, other.value_type))
    both = wider(one, other, ((pa.int64(), pa.float64()), (pa.timestamp("s"), pa.string())))
    return one if both is None else both


_FILES = TableFiles((".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz"), _names, _table)
recognises = _FILES.recognises
files = _FILES.files
has_test = _FILES.has_test
names = _FILES.names
read = _FILES.read
