"""Columns of an Arrow table as arrays: numbers, strings, lists of one length, and images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers import disk_cache
from trainers.data.damage import DAMAGE, OtherBytes
from trainers.data.image_files import decoded
from trainers.data.tags import TagLists
from trainers.errors import SpecError
from trainers.values import shown

LONGEST = 256
"""Most characters of strings of different lengths: each takes as much memory as the longest."""

_SHORT = 32  # bits of days, and of times in seconds
_ROWS = 2**14  # of texts as Python objects at once


class ArrowColumns:
    """The columns of an Arrow table.

    Args:
        table: a `pyarrow.Table` with the columns that are needed.
        names: all columns of the data, for errors that name them.
    """

    def __init__(self, table: Any, names: Sequence[str]) -> None:
        self.table, self.names = table, names

    def array(self, name: str, key_path: str) -> NDArray[Any]:
        """A column."""
        try:
            array = _array(self.table.column(name))
        except DAMAGE as error:
            raise SpecError(f"{key_path}: column {shown(name)} {error}", key_path) from error
        array.setflags(write=False)
        return array

    def lists(self, name: str, key_path: str, separator: str | None) -> TagLists | None:
        """A column of lists, or of text with a separator between its parts; None for other columns."""
        try:
            return _tag_lists(self.table.column(name), separator)
        except DAMAGE as error:
            raise SpecError(f"{key_path}: column {shown(name)} {error}", key_path) from error

    def dates(self, name: str, key_path: str) -> NDArray[np.int64] | None:
        """A column of dates or times, as whole numbers of its own unit; None for other columns."""
        import pyarrow as pa

        column = self.table.column(name)
        if not pa.types.is_temporal(column.type):
            return None
        try:
            _require_values(column)
            whole = column.cast(pa.int32() if column.type.bit_width == _SHORT else pa.int64())
        except (*DAMAGE, pa.ArrowException) as error:
            raise SpecError(f"{key_path}: column {shown(name)} {error}", key_path) from error
        return np.asarray(whole.to_numpy(), np.int64)

    def texts(self, name: str, key_path: str) -> Iterable[str | Sequence[str]] | None:
        """A column of strings, or of lists of them; None for other columns."""
        column = self.table.column(name)
        return texts_of(column.chunks, f"{key_path}: column {shown(name)}", key_path) if is_text(column.type) else None


def array_of(chunk: Any) -> NDArray[Any]:
    """A `pyarrow.Array` as an array.

    Raises:
        ValueError: it has missing values, or lists of different lengths.
    """
    import pyarrow as pa

    return _array(pa.chunked_array([chunk]))


def texts_of(chunks: Iterable[Any], what: str, key_path: str) -> Iterator[str | Sequence[str]]:
    """The texts of `pyarrow.Array`s for whose type `is_text` holds.

    Args:
        chunks: the arrays.
        what: the column, for errors.
        key_path: dotted path of the setting that names it, for errors.

    Raises:
        SpecError: a row has no text.
    """
    row = 0
    for chunk in chunks:
        for start in range(0, len(chunk), _ROWS):
            for text in chunk.slice(start, _ROWS).to_pylist():
                if not isinstance(text, str) and not (
                    isinstance(text, list) and all(isinstance(word, str) for word in text)
                ):
                    got = "none" if text is None else shown(text)
                    raise SpecError(f"{what} must have a text in every row, got {got} in row {row}", key_path)
                yield text
                row += 1


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is strings, or lists of strings."""
    import pyarrow as pa

    return _is_string(kind.value_type if pa.types.is_dictionary(kind) or _is_list(kind) else kind)


def is_numeric(kind: Any) -> bool:
    """Whether an Arrow type is numbers or booleans, or lists of them."""
    import pyarrow as pa

    while _is_list(kind):
        kind = kind.value_type
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def together(tables: Sequence[Any]) -> Any:
    """Concatenates tables; whole numbers become floats where another table has floats.

    Args:
        tables: at least one `pyarrow.Table`, with the same columns.
    """
    import pyarrow as pa

    return tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="permissive")


def require_names(names: Sequence[str]) -> Sequence[str]:
    """The names of columns, checked to be different and not empty.

    Raises:
        ValueError: a name is empty or occurs twice.
    """
    for number, name in enumerate(names):
        if not name.strip():
            raise ValueError(f"must have a name for each column in its first row, got none for column {number + 1}")
        if name in names[:number]:
            raise ValueError(f"must have different names of columns, got {shown(name)} twice")
    return names


def _array(column: Any) -> NDArray[Any]:
    """A column as an array; the error is a rule, "must ..."."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    _require_values(column)
    if pa.types.is_dictionary(kind):
        return _array(column.cast(kind.value_type))
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _filled(column, np.dtype(kind.to_pandas_dtype()), lambda piece: piece.to_numpy(zero_copy_only=False))
    if pa.types.is_decimal(kind):
        return np.asarray(column.cast(pa.float64()).to_numpy())
    if _is_string(kind):
        return _strings(column)
    if _is_list(kind):
        return _lists(column)
    if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        images = pc.struct_field(column, "bytes")
        if images.null_count:
            raise ValueError("must hold the bytes of images, got paths to other files")
        return decoded([(f"row {row}", image) for row, image in enumerate(images.to_pylist())])
    if pa.types.is_temporal(kind):
        raise ValueError(
            f"must hold numbers or strings, got dates ({kind}): leave it out, or store a number such as the days since "
            "a first day"
        )
    if pa.types.is_binary(kind):
        raise OtherBytes
    raise ValueError(f"must hold numbers, strings, lists of them or images, got {kind}")


def _require_values(column: Any) -> None:
    """Raises a ValueError with the rule if a column is empty or a row has no value."""
    if not len(column):
        raise ValueError("must hold examples, got none")
    _refuse_missing(column, "fill them in, or leave out these rows or this column")


def _refuse_missing(column: Any, advice: str) -> None:
    import pyarrow.compute as pc

    if column.null_count:
        row = pc.index(pc.is_null(column), True).as_py()
        raise ValueError(
            f"must have a value in every row, got none in {column.null_count} of {len(column)} rows, first in row "
            f"{row}: {advice}"
        )


def _strings(column: Any) -> NDArray[Any]:
    import pyarrow.compute as pc

    lengths = pc.min_max(pc.utf8_length(column)).as_py()
    if lengths["max"] is not None and lengths["min"] < lengths["max"] > LONGEST:
        raise ValueError(
            f"must hold strings of one length, or of at most {LONGEST} characters, got one of {lengths['max']}"
        )
    return _filled(column, np.dtype(("U", max(1, lengths["max"]))), lambda piece: piece.to_pylist())


def _filled(column: Any, dtype: np.dtype[Any], values: Callable[[Any], Any]) -> NDArray[Any]:
    """(rows,) the values of a column, converted piece by piece."""
    if column.num_chunks == 1 and dtype.kind in "iuf":
        return np.asarray(values(column.chunk(0)))  # a view of Arrow's memory
    result = disk_cache.array((len(column),), dtype)
    row = 0
    for chunk in column.chunks:
        for start in range(0, len(chunk), _ROWS):
            piece = chunk.slice(start, _ROWS)
            result[row : row + len(piece)] = values(piece)
            row += len(piece)
    return result


def _lists(column: Any) -> NDArray[Any]:
    import pyarrow.compute as pc

    lengths = pc.list_value_length(column)
    shortest, longest = pc.min_max(lengths).as_py().values()
    if shortest != longest:
        row = pc.index(pc.not_equal(lengths, lengths[0]), True).as_py()
        raise ValueError(
            f"must have lists of one length, got {lengths[0].as_py()} values in row 0 and {lengths[row].as_py()} in "
            f"row {row}"
        )
    values = _array(pc.list_flatten(column))
    return values.reshape(len(column), longest or 0, *values.shape[1:])


def _tag_lists(column: Any, separator: str | None) -> TagLists | None:
    """The tags of a column; the error is a rule, "must ..."."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        return _tag_lists(column.cast(column.type.value_type), separator)
    text = _is_string(column.type)
    if not _is_list(column.type) and not (text and separator is not None):
        return None
    _refuse_missing(column, 'write an empty list, or "" in quotes, for no tags')
    if text:
        return TagLists.of_texts(np.array(column.to_pylist(), np.object_), separator or "")
    counts = np.asarray(pc.list_value_length(column).to_numpy(), np.int64)
    flat = pc.list_flatten(column)
    if not len(flat):
        return TagLists(np.zeros(0, np.str_), counts)
    values = _array(flat)
    if values.ndim != 1 or values.dtype.kind not in "Uiu":
        raise ValueError(f"must have lists of strings or of whole numbers, got {column.type}")
    return TagLists(values, counts)


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_string(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
