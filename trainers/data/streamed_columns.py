"""Columns of large files of tables, read chunk by chunk into a file instead of memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from trainers import disk_cache
from trainers.data.arrow_columns import ArrowColumns, array_of, is_numeric, is_text, texts_of
from trainers.data.damage import DAMAGE, reading
from trainers.data.tags import TagLists
from trainers.values import shown

Chunks = Callable[[Path, str], Iterator[Any]]
"""Maps a file and a column to its `pyarrow.Array`s, one after another."""


class StreamedColumns:
    """The columns of several files: numbers, and lists of them, never in memory as a whole.

    A column that has another type, differs between files or is invalid is read whole, which also reports the error.

    Args:
        files: in order.
        names: all columns.
        chunks: reads a column of a file.
        whole: reads a column whole.
    """

    def __init__(
        self, files: Sequence[Path], names: Sequence[str], chunks: Chunks, whole: Callable[[str], ArrowColumns]
    ) -> None:
        self.names = names
        self._files, self._chunks, self._whole = files, chunks, whole

    def array(self, name: str, key_path: str) -> NDArray[Any]:
        """A column."""
        import pyarrow as pa

        file = disk_cache.unnamed()
        if file is not None:
            with file:
                try:
                    streamed = self._streamed(name, file)
                except (*DAMAGE, pa.ArrowException):
                    streamed = None
            if streamed is not None:
                return streamed
        return self._whole(name).array(name, key_path)

    def lists(self, name: str, key_path: str, separator: str | None) -> TagLists | None:
        """A column of lists, or of text with a separator between its parts; None for other columns."""
        return self._whole(name).lists(name, key_path, separator)

    def dates(self, name: str, key_path: str) -> NDArray[np.int64] | None:
        """A column of dates or times, as whole numbers; None for other columns."""
        return self._whole(name).dates(name, key_path)

    def texts(self, name: str, key_path: str) -> Iterable[str | Sequence[str]] | None:
        """A column of strings, or of lists of them, chunk by chunk; None for other columns."""
        chunks = self._each(name, key_path)
        first = next(chunks, None)
        if first is None or not is_text(first.type):
            return None
        return texts_of(chain([first], chunks), f"{key_path}: column {shown(name)}", key_path)

    def _each(self, name: str, key_path: str) -> Iterator[Any]:
        import pyarrow as pa

        for path in self._files:
            with reading(path.name, key_path, pa.ArrowException):
                for chunk in self._chunks(path, name):
                    chunk.validate(full=True)
                    yield chunk

    def _streamed(self, name: str, file: IO[bytes]) -> NDArray[Any] | None:
        first: NDArray[Any] | None = None
        rows = 0
        for path in self._files:
            for chunk in self._chunks(path, name):
                if not is_numeric(chunk.type):
                    return None
                if not len(chunk):
                    continue
                chunk.validate(full=True)
                array = array_of(chunk)
                first = array[:1] if first is None else first
                if array.dtype != first.dtype or array.shape[1:] != first.shape[1:]:
                    return None
                file.write(np.ascontiguousarray(array).data)
                rows += len(array)
        if first is None or not first.size:
            return None
        file.flush()
        return np.asarray(np.memmap(file, first.dtype, "r", shape=(rows, *first.shape[1:])))
