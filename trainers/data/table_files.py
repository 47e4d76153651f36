"""Formats of tables: each file of a side holds rows of the same columns, read into one Arrow table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trainers.data.arrow_columns import ArrowColumns, require_names, together
from trainers.data.damage import reading
from trainers.data.format_contract import Columns
from trainers.data.sides import SideColumns, SideFiles, title
from trainers.data.streamed_columns import Chunks, StreamedColumns

_LARGE = 32 * 2**20  # bytes of files of a side


class TableFiles(SideFiles):
    """The functions of a format whose files are tables.

    Args:
        endings: of the files' names.
        header: maps a file to the names of its columns.
        table: maps a file and the names of the columns to read to a `pyarrow.Table`.
        chunks: reads a column chunk by chunk; None reads all files whole, however large.
    """

    def __init__(
        self,
        endings: tuple[str, ...],
        header: Callable[[Path], Sequence[str]],
        table: Callable[[Path, Sequence[str]], Any],
        chunks: Chunks | None = None,
    ) -> None:
        rule = f"a file or a folder of files {', '.join(endings)}"
        super().__init__(lambda file: file.name.endswith(endings), rule)
        self._header, self._table, self._chunks = header, table, chunks

    def names(self, path: Path, key_path: str) -> Sequence[str]:
        """Names of the columns of the training examples."""
        return self._names(self.required(path, key_path)[""][0], path, key_path)

    def read(self, path: Path, column_names: Sequence[str], key_path: str) -> Columns:
        """The columns of a file or folder."""
        columns: dict[str, Columns] = {}
        for ending, side in self.required(path, key_path).items():
            plain = [name.removesuffix(ending) for name in column_names if name.endswith(ending)]
            names = self._names(side[0], path, key_path)
            if self._chunks is not None and sum(file.stat().st_size for file in side) >= _LARGE:
                columns[ending] = self._streamed(side, names, path, key_path, self._chunks)
            else:
                columns[ending] = self._whole(side, names, path, key_path, [name for name in names if name in plain])
        return SideColumns(columns)

    def _streamed(
        self, side: Sequence[Path], names: Sequence[str], path: Path, key_path: str, chunks: Chunks
    ) -> StreamedColumns:
        _arrow()  # sets pyarrow's allocator
        return StreamedColumns(side, names, chunks, lambda name: self._whole(side, names, path, key_path, [name]))

    def _whole(
        self, side: Sequence[Path], names: Sequence[str], path: Path, key_path: str, selected: Sequence[str]
    ) -> ArrowColumns:
        tables = []
        for file in side:
            with reading(title(file, path), key_path, _arrow().ArrowException):
                table = self._table(file, selected)
                table.validate(full=True)
                tables.append(table)
        with reading(path.name, key_path, _arrow().ArrowException):
            return ArrowColumns(together(tables), names)

    def _names(self, file: Path, path: Path, key_path: str) -> Sequence[str]:
        with reading(title(file, path), key_path, _arrow().ArrowException):
            return require_names(self._header(file))


def _arrow() -> Any:
    """Pyarrow with the system's allocator: its own takes 1 GiB at once of the memory that a service's check may use.

    tests/trainers/test_data_formats.py::test_a_small_table_takes_little_memory holds this.
    """
    import pyarrow as pa

    pa.set_memory_pool(pa.system_memory_pool())
    return pa
