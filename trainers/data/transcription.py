"""Text files of tables, written block by block as Arrow tables: neither their text nor their values are in memory.

The types of the columns are those of the first block. If a later block does not fit, those of all blocks are found
first, and the file is read again, so that they depend on the values alone.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from trainers import disk_cache

Types = Mapping[str, Any]
"""Column -> `pyarrow.DataType`."""
Read = Callable[[int, Types | None], Iterator[Any]]
"""Maps bytes to parse at once, and types (None: those of the first block), to a `pyarrow.Schema` and its batches."""
Found = Callable[[int], Iterable[Types]]
"""Maps bytes to parse at once to the types of each block."""

_FIRST, _LARGEST = 2**18, 2**20  # bytes to parse at once, in which a row must fit; Arrow reads 32 times as far ahead
_STRADDLES = "straddling"  # in the error about a row that does not
_OF_ANOTHER_TYPE = ("conversion error", "Failed to convert", "changed from")  # in those about a value
_SMALL = 2**20  # bytes of a file whose table is held in memory


def transcribed(path: Path, read: Read, found: Found, join: Callable[[Any, Any], Any]) -> Any:
    """A file as a `pyarrow.Table`, mapped from a file without a name if it is large and there is a cache.

    Args:
        path: of the file.
        read: reads it.
        found: finds its types.
        join: maps two types of a column in different blocks to one for both.

    Raises:
        pyarrow.ArrowException: the file is damaged.
        ValueError: a row is larger than 1 MiB.
    """
    import pyarrow as pa

    block, search = _FIRST, False
    types: dict[str, Any] = {}
    while True:
        try:
            if search and not types:
                types = _together(found(block), join)
            return _written(path, read(block, types or None))
        except pa.ArrowInvalid as error:
            if _STRADDLES in str(error):
                if block >= _LARGEST:
                    raise ValueError(
                        f"must have rows of at most {_LARGEST} bytes, got more: close open quotes"
                    ) from error
                block *= 4
            elif not search and any(words in str(error) for words in _OF_ANOTHER_TYPE):
                search = True
            else:
                raise


def _together(blocks: Iterable[Types], join: Callable[[Any, Any], Any]) -> dict[str, Any]:
    types: dict[str, Any] = {}
    for own in blocks:
        for name, kind in own.items():
            types[name] = join(types[name], kind) if name in types else kind
    return types


def _written(path: Path, read: Iterator[Any]) -> Any:
    """The table of a schema and its batches."""
    import pyarrow as pa

    schema = next(read)
    file = disk_cache.unnamed() if path.stat().st_size > _SMALL else None
    if file is None:
        return pa.Table.from_batches(list(read), schema)
    with file:
        with pa.ipc.new_stream(file, schema) as writer:
            for batch in read:
                writer.write_batch(batch)
        file.flush()
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return pa.ipc.open_stream(pa.py_buffer(content)).read_all()
