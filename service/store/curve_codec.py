"""Curve segments: 256 rounds of one trial as compressed columns.

A payload is zlib over: the length of a JSON header (4 bytes, little-endian), the header
``{"v": 1, "rows": n, "columns": [[name, kind, bytes], ...]}``, then the columns' bodies. Kinds: ``f`` float64 with NaN
for "not reported", ``i`` int64, ``j`` JSON (flags, and columns of mixed types). Decoding restores the same types and
bits.
"""

import json
import struct
import zlib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from driftline.errors import DriftlineError
from driftline.wire.curve_columns import SEGMENT_ROUNDS, Cell, merge, rows

Columns = dict[str, list[Cell]]
Arrays = dict[str, NDArray[np.float64]]
_VERSION = 1


def encode(columns: Mapping[str, Sequence[Cell]]) -> bytes:
    """Compress columns of equal length.

    Args:
        columns: name -> values, finite or None.

    Returns:
        The payload; `decode` gives back equal columns.
    """
    entries, bodies = [], []
    for name, values in columns.items():
        kind, body = _body(values)
        entries.append([name, kind, len(body)])
        bodies.append(body)
    count = len(next(iter(columns.values()))) if columns else 0
    header = json.dumps({"v": _VERSION, "rows": count, "columns": entries}, separators=(",", ":")).encode()
    return zlib.compress(b"".join([struct.pack("<I", len(header)), header, *bodies]), 4)


def decode(payload: bytes) -> Columns:
    """The columns given to `encode`.

    Raises:
        DriftlineError: This Driftline does not know the payload's version.
    """
    columns: Columns = {}
    for name, kind, body in _columns(payload):
        if kind == "f":
            numbers = np.frombuffer(body, "<f8")
            values = numbers.tolist()
            sparse = np.isnan(numbers).any()
            columns[name] = [None if value != value else value for value in values] if sparse else values
        elif kind == "i":
            columns[name] = np.frombuffer(body, "<i8").tolist()
        else:
            columns[name] = json.loads(body)
    return columns


def arrays(payload: bytes, names: Container[str] | None = None) -> Arrays:
    """Decode to float arrays: several times faster than `decode`, with an eighth of the memory.

    Args:
        payload: A payload from `encode`.
        names: Only these columns; all by default.

    Returns:
        Name -> (rounds,), NaN where nothing was reported, 1 and 0 for flags.

    Raises:
        DriftlineError: This Driftline does not know the payload's version.
    """
    found: Arrays = {}
    for name, kind, body in _columns(payload):
        if names is not None and name not in names:
            continue
        if kind == "f":
            found[name] = np.frombuffer(body, "<f8")
        elif kind == "i":
            found[name] = np.frombuffer(body, "<i8").astype(np.float64)
        else:
            found[name] = np.array([_number(value) for value in json.loads(body)], dtype=np.float64)
    return found


def _number(value: Cell) -> float:
    try:
        return float("nan") if value is None else float(value)
    except OverflowError:  # an integer beyond the range of floats counts as not reported
        return float("nan")


def _columns(payload: bytes) -> Iterator[tuple[str, str, bytes]]:
    """Name, kind and body of each column."""
    data = zlib.decompress(payload)
    (size,) = struct.unpack_from("<I", data)
    header = json.loads(data[4 : 4 + size])
    if header["v"] != _VERSION:
        raise DriftlineError(f"a stored curve must be of version {_VERSION}, got {header['v']}; use a newer Driftline")
    offset = 4 + size
    for name, kind, length in header["columns"]:
        yield name, kind, data[offset : offset + length]
        offset += length


def split(columns: Mapping[str, list[Cell]]) -> Iterator[tuple[int, Columns]]:
    """Yield (segment, its part of the columns) in ascending order; segment = round // 256."""
    numbers = [int(number or 0) for number in columns["round"]]
    start = 0
    while start < len(numbers):
        segment = numbers[start] // SEGMENT_ROUNDS
        end = start
        while end < len(numbers) and numbers[end] // SEGMENT_ROUNDS == segment:
            end += 1
        yield segment, {name: values[start:end] for name, values in columns.items()}
        start = end


def join(parts: Iterable[Mapping[str, list[Cell]]]) -> Columns:
    """Concatenate segments given in ascending order; None where a segment lacks another's metric.

    A single segment's lists are not copied.
    """
    parts = list(parts)
    if len(parts) == 1:
        return dict(parts[0])
    joined: Columns = {}
    length = 0
    for part in parts:
        count = len(part["round"])
        for name in part:
            joined.setdefault(name, [None] * length)
        for name, values in joined.items():
            values.extend(part[name] if name in part else [None] * count)
        length += count
    return joined or {"round": []}


def join_arrays(parts: Sequence[Arrays]) -> Arrays:
    """Concatenate segments given in ascending order; NaN where a segment lacks another's metric."""
    if len(parts) == 1:
        return parts[0]
    names = dict.fromkeys(name for part in parts for name in part)
    missing = [np.full(len(part["round"]), np.nan) for part in parts]
    return {
        name: np.concatenate([part.get(name, nothing) for part, nothing in zip(parts, missing, strict=True)])
        for name in names
    }


def upsert(old: Columns, new: Columns) -> Columns:
    """The columns of `old` with the rounds of `new` replaced or appended."""
    return join([old, new]) if _later(old, new) else merge(old, new)


def contains(old: Mapping[str, list[Cell]], new: Mapping[str, list[Cell]]) -> bool:
    """Whether every round of `new` is in `old` with the same values (None and absent are the same)."""
    if _later(old, new):
        return not new["round"]
    have = {row["round"]: _reported(row) for row in rows(old)}
    return all(have.get(row["round"]) == _reported(row) for row in rows(new))


def _later(old: Mapping[str, list[Cell]], new: Mapping[str, list[Cell]]) -> bool:
    """Whether all rounds of `new` come after those of `old`, as they do unless a report is repeated."""
    return not old["round"] or not new["round"] or int(new["round"][0] or 0) > int(old["round"][-1] or 0)


def _reported(row: Mapping[str, Cell]) -> dict[str, Cell]:
    return {name: value for name, value in row.items() if value is not None}


def _body(values: Sequence[Cell]) -> tuple[str, bytes]:
    kinds = set(map(type, values))
    if float in kinds and kinds <= {float, type(None)}:
        return "f", np.array([np.nan if value is None else value for value in values], dtype="<f8").tobytes()
    if kinds == {int}:
        try:
            return "i", np.array(values, dtype="<i8").tobytes()
        except OverflowError:  # above 64 bits: stored as JSON
            pass
    return "j", json.dumps(list(values), separators=(",", ":"), allow_nan=False).encode()
