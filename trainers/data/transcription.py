"""Writes text files of tables block by block as Arrow tables, to hold neither text nor values in memory.

The first block decides the types of the columns. If a later block does not fit, the types that fit all blocks are
found, and the file is read again with them, so that types depend on the values alone.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any

from trainers import disk_cache

Types = Mapping[str, Any]
"""Column -> `pyarrow.DataType`."""
Read = Callable[[int, Types | None], Iterator[Any]]
"""(size of a block in bytes, types or None for those of the first block) -> a `pyarrow.Schema`, then its batches."""
Find = Callable[[int], Types]
"""Size of a block in bytes -> the types that fit all blocks."""
Loosen = Callable[[Types, str], Types | None]
"""(types, error about a value that does not fit one) -> wider types; None if there are none."""

_FIRST, _LARGEST = 2**18, 2**20  # bytes to parse at once, in which a row must fit; Arrow reads 32 times as far ahead
_STRADDLES = "straddling"  # in Arrow's error about a row that does not fit
_OF_ANOTHER_TYPE = ("conversion error", "Failed to convert", "changed from")  # in Arrow's errors about a value
_SMALL = 2**20  # bytes of a table that is held in memory


def transcribed(read: Read, find: Find, loosen: Loosen = lambda types, error: None) -> Any:
    """A file as a `pyarrow.Table`, mapped from a file without a name if it is large and there is a cache with room.

    Args:
        read: reads the file.
        find: finds the types that fit the whole file.
        loosen: widens types that `find` found too narrow.

    Raises:
        pyarrow.ArrowException: the file is damaged.
        ValueError: a row is larger than 1 MiB.
    """
    import pyarrow as pa

    block, cached = _FIRST, True
    types: Types | None = None
    search = False
    while True:
        try:
            if search and types is None:
                types = find(block)
            return _written(read(block, types), cached)
        except _NoRoom:
            cached = False
        except pa.ArrowInvalid as error:
            if _STRADDLES in str(error):
                if block >= _LARGEST:
                    raise ValueError(
                        f"must have rows of at most {_LARGEST} bytes, got more: close open quotes"
                    ) from error
                block *= 4
                continue
            if not any(words in str(error) for words in _OF_ANOTHER_TYPE):
                raise
            wider = None if types is None else loosen(types, str(error))
            if search and wider is None:
                raise
            search, types = True, wider


class _NoRoom(Exception):
    """The disk of the cache is full."""


def _written(read: Iterator[Any], cached: bool) -> Any:
    """The table of a schema and its batches."""
    import pyarrow as pa

    schema = next(read)
    batches: list[Any] = []
    size = 0
    while size <= _SMALL and (batch := next(read, None)) is not None:
        batches.append(batch)
        size += batch.nbytes
    file = disk_cache.unnamed() if cached and size > _SMALL else None
    if file is None:
        return pa.Table.from_batches([*batches, *read], schema)
    try:
        with _room():
            writer = pa.ipc.new_stream(file, schema)
        for batch in chain(batches, read):
            with _room():
                writer.write_batch(batch)
        with _room():
            writer.close()
            file.flush()
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    finally:
        with suppress(OSError):  # a full disk may not take the last bytes
            file.close()
    return pa.ipc.open_stream(pa.py_buffer(content)).read_all()


def wider(one: Any, other: Any, ladders: Iterable[Sequence[Any]]) -> Any:
    """The type that holds the values of both types; None if there is none.

    Args:
        one: a `pyarrow.DataType`.
        other: a `pyarrow.DataType`.
        ladders: types of which each holds the values of those before.
    """
    import pyarrow as pa

    if one == other or other == pa.null():
        return one
    if one == pa.null():
        return other
    for ladder in ladders:
        if one in ladder and other in ladder:
            return max(one, other, key=ladder.index)
    return None


@contextmanager
def _room() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _NoRoom from error
