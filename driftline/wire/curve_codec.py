"""Curves as compressed blocks: a worker encodes them once, the store appends them. Imports numpy and zlib, no pydantic.

A block holds reported rounds of one trial, all of one segment: segment s has rounds 256 s to 256 s + 255. It is a head
(`Head`, 19 bytes) and a body. The body is zlib over: the length of a JSON header (4 bytes, little-endian), the header
``{"v": 1, "rows": n, "columns": [[name, kind, bytes], ...]}``, then the columns' bodies. Kinds: ``f`` float64 with NaN
for "not reported", ``i`` int64, ``j`` JSON (flags, and columns of several types). `decode` returns the same types and
bits as `encode` was given.

The payload of a stored segment is its blocks in the order of their rounds. Driftline 0.1 stored one body without a
head; such a payload begins with zlib's first byte (`ZLIB`), and becomes a block when a report adds to it.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Cell = bool | int | float | None
Columns = dict[str, list[Cell]]
Arrays = dict[str, NDArray[np.float64]]

SEGMENT_ROUNDS = 256
"""Rounds in one stored segment: segment s holds rounds 256 s to 256 s + 255."""

MOST_BLOCKS = 16
"""Blocks of a payload; with one more, and when the segment is full, they are encoded again as one."""

MOST_BYTES = 8 * 2**20
"""Decompressed size of a block's body: 256 rounds of 4096 columns."""

ZLIB = b"\x78"
"""The first byte of a payload without a head."""

_HEAD = struct.Struct("<BIIHII")
_LENGTH = struct.Struct("<I")
_FORM = 2
VERSION = 1


class Head(NamedTuple):
    """What a block says of itself before its body.

    Attributes:
        form: 2.
        first: First round.
        last: Last round.
        rounds: Number of rounds.
        size: Bytes of the body, decompressed.
        length: Bytes of the body in the block.
    """

    form: int
    first: int
    last: int
    rounds: int
    size: int
    length: int

    @property
    def segment(self) -> int:
        """The segment that the rounds are of."""
        return self.first // SEGMENT_ROUNDS


# ---- writing


def encode(columns: Mapping[str, Sequence[Cell]]) -> list[bytes]:
    """Compresses columns of equal length.

    Args:
        columns: Name -> values, finite or None; ``round`` increases.

    Returns:
        One block for every segment that has some of the rounds, in rising order; none for no rounds.
    """
    numbers = [int(number or 0) for number in columns.get("round", ())]
    blocks, start = [], 0
    while start < len(numbers):
        segment, end = numbers[start] // SEGMENT_ROUNDS, start + 1
        while end < len(numbers) and numbers[end] // SEGMENT_ROUNDS == segment:
            end += 1
        body = _body({name: values[start:end] for name, values in columns.items()}, end - start)
        packed = zlib.compress(body, 4)
        blocks.append(_HEAD.pack(_FORM, numbers[start], numbers[end - 1], end - start, len(body), len(packed)) + packed)
        start = end
    return blocks


def add(payload: bytes, block: bytes) -> bytes:
    """A segment's payload with one more block: appended when its rounds come later than all stored ones, else merged.

    Args:
        payload: What is stored; b"" is nothing.
        block: Rounds of the same segment; they replace stored ones.

    Returns:
        `payload` itself when all rounds of the block are stored already with the same values.
    """
    known, new = heads(payload), head(block)
    if not payload:
        return block
    later = bool(known) and new.first > known[-1].last
    full = new.last % SEGMENT_ROUNDS == SEGMENT_ROUNDS - 1
    if later and len(known) < MOST_BLOCKS and not full:
        return payload + block
    old, fresh = decode(payload), decode(block)
    if not later and contains(old, fresh):
        return payload
    return encode(upsert(old, fresh))[0]


def sealed(payload: bytes) -> bytes:
    """A segment's payload as one block: what `encode` makes of all its rounds. Readers then have one body to decode."""
    return payload if len(heads(payload)) <= 1 else encode(decode(payload))[0]


def without_head(payload: bytes) -> bytes:
    """A segment's payload as Driftline 0.1 stored it, and can read it."""
    return encode(decode(payload))[0][_HEAD.size :]


def upsert(old: Columns, new: Mapping[str, list[Cell]]) -> Columns:
    """Columns with the rounds of `new` behind those of `old`, or in their place; None where one lacks the other's name.

    Args:
        old: Changed in place.
        new: Rounds that increase.

    Examples:
        >>> upsert({"round": [0, 1], "loss": [3.0, 2.0]}, {"round": [1, 2], "loss": [2.5, 1.0]})
        {'round': [0, 1, 2], 'loss': [3.0, 2.5, 1.0]}
        >>> upsert({"round": [0], "loss": [3.0]}, {"round": [1], "norm": [7]})
        {'round': [0, 1], 'loss': [3.0, None], 'norm': [None, 7]}
    """
    before, added = len(old.get("round", ())), len(new["round"])
    for name in new:
        old.setdefault(name, [None] * before)
    rounds: list[Any] = old["round"]
    overlap = bool(before and added) and new["round"][0] <= rounds[-1]
    for name, values in old.items():
        values.extend(new.get(name) or [None] * added)
    if overlap:
        rows = {number: row for row, number in enumerate(rounds)}  # the last row of a round counts
        order = [rows[number] for number in sorted(rows)]
        for name, values in old.items():
            old[name] = [values[row] for row in order]
    return old


def contains(old: Mapping[str, list[Cell]], new: Mapping[str, list[Cell]]) -> bool:
    """Whether every round of `new` is in `old` with the same values (None and absent are the same)."""
    merged = upsert({name: list(values) for name, values in old.items()}, new)
    none: list[Cell] = [None] * len(merged["round"])
    return all(values == old.get(name, none) for name, values in merged.items())


# ---- reading


def head(block: bytes) -> Head:
    """The head of a block.

    Raises:
        ValueError: This is not one block, or its head contradicts itself.
    """
    if len(block) < _HEAD.size:
        raise ValueError(f"a block of a curve must have at least {_HEAD.size} bytes, got {len(block)}")
    found = Head._make(_HEAD.unpack_from(block))
    if found.form != _FORM:
        raise ValueError(f"a block of a curve must be of form {_FORM}, got {found.form}")
    if len(block) != _HEAD.size + found.length:
        raise ValueError(f"the body of a block must have the {found.length} bytes of its head")
    if not 0 < found.rounds <= found.last - found.first + 1 or found.segment != found.last // SEGMENT_ROUNDS:
        rounds = f"{found.rounds} rounds from {found.first} to {found.last}"
        raise ValueError(f"a block must hold rounds of one segment of {SEGMENT_ROUNDS}, got {rounds}")
    if found.size > MOST_BYTES:
        raise ValueError(f"the body of a block must have at most {MOST_BYTES} bytes decompressed, got {found.size}")
    return found


def heads(payload: bytes) -> list[Head]:
    """The heads of a stored payload's blocks; none of a payload of 0.1.

    Raises:
        ValueError: A newer Driftline wrote it.
    """
    found: list[Head] = []
    start = 0
    while start < len(payload) and payload[:1] != ZLIB:
        found.append(Head._make(_HEAD.unpack_from(payload, start)))
        if found[-1].form != _FORM:
            raise ValueError(f"a stored block must be of form {_FORM}, got {found[-1].form}; use a newer Driftline")
        start += _HEAD.size + found[-1].length
    return found


def inflated(block: bytes | memoryview, about: Head) -> bytes:
    """The decompressed body of a block, in no more memory than its head says.

    Raises:
        ValueError: It has another size, or is damaged.
    """
    stream = zlib.decompressobj()
    try:
        body = stream.decompress(block[_HEAD.size :], about.size + 1)
    except zlib.error as error:
        raise ValueError(f"the body of a block must be compressed by zlib: {error}") from None
    if len(body) != about.size or not stream.eof or stream.unused_data:
        raise ValueError(f"the body of a block must have the {about.size} bytes of its head decompressed")
    return body


def header(body: bytes) -> tuple[Any, int]:
    """The JSON header of a decompressed body, and where the columns begin."""
    (length,) = _LENGTH.unpack_from(body)
    start = _LENGTH.size + length
    return json.loads(body[_LENGTH.size : start]), start


def decode(payload: bytes, names: Container[str] | None = None) -> Columns:
    """The columns of a block, or of all blocks of a stored payload.

    Args:
        payload: What `encode` or `add` made.
        names: Only these columns, ``round`` among them; all by default.

    Raises:
        ValueError: A newer Driftline wrote it.
    """
    return join(_decoded(body, names) for body in _bodies(payload))


def arrays(payload: bytes, names: Container[str] | None = None) -> Arrays:
    """The same as numbers to compute with: several times as fast, and an eighth of the memory.

    Args:
        payload: What `encode` or `add` made.
        names: Only these columns, ``round`` among them; all by default.

    Returns:
        Name -> (rounds,), NaN where nothing was reported, 1 and 0 for flags.

    Raises:
        ValueError: A newer Driftline wrote it.
    """
    return join_arrays([_numbers(body, names) for body in _bodies(payload)])


def join(parts: Iterable[Mapping[str, list[Cell]]]) -> Columns:
    """Columns of blocks or segments in rising order, put together; None where one lacks another's metric."""
    joined: Columns = {"round": []}
    for part in parts:
        upsert(joined, part)
    return joined


def join_arrays(parts: Sequence[Arrays]) -> Arrays:
    """Arrays of blocks or segments in rising order, put together; NaN where one lacks another's metric."""
    if len(parts) == 1:
        return parts[0]
    names = dict.fromkeys(name for part in parts for name in part)
    missing = [np.full(len(part["round"]), np.nan) for part in parts]
    return {
        name: np.concatenate([part.get(name, nothing) for part, nothing in zip(parts, missing, strict=True)])
        for name in names
    }


# ---- bodies


def _body(columns: Mapping[str, Sequence[Cell]], rows: int) -> bytes:
    entries, bodies = [], []
    for name, values in columns.items():
        kind, body = _column(values)
        entries.append([name, kind, len(body)])
        bodies.append(body)
    text = json.dumps({"v": VERSION, "rows": rows, "columns": entries}, separators=(",", ":")).encode()
    return b"".join([_LENGTH.pack(len(text)), text, *bodies])


def _column(values: Sequence[Cell]) -> tuple[str, bytes]:
    """Kind and body of a column."""
    kinds = set(map(type, values))
    if float in kinds and kinds <= {float, type(None)}:
        return "f", np.array([np.nan if value is None else value for value in values], dtype="<f8").tobytes()
    if kinds == {int}:
        try:
            return "i", np.array(values, dtype="<i8").tobytes()
        except OverflowError:  # above 64 bits: as text
            pass
    return "j", json.dumps(list(values), separators=(",", ":"), allow_nan=False).encode()


def _bodies(payload: bytes) -> Iterator[bytes]:
    """The decompressed bodies of a payload's blocks."""
    view, start = memoryview(payload), 0
    if payload[:1] == ZLIB:
        yield zlib.decompress(payload)
    for about in heads(payload):
        end = start + _HEAD.size + about.length
        yield inflated(view[start:end], about)
        start = end


def _columns(body: bytes) -> Iterator[tuple[str, str, bytes]]:
    """Name, kind and body of each column."""
    about, start = header(body)
    if about["v"] != VERSION:
        raise ValueError(f"a stored curve must be of version {VERSION}, got {about['v']}; use a newer Driftline")
    for name, kind, length in about["columns"]:
        yield name, kind, body[start : start + length]
        start += length


def _decoded(body: bytes, names: Container[str] | None) -> Columns:
    columns: Columns = {}
    for name, kind, values in _columns(body):
        if names is not None and name not in names:
            continue
        if kind == "f":
            numbers = np.frombuffer(values, "<f8")
            cells: list[Any] = numbers.tolist()
            sparse = np.isnan(numbers).any()
            columns[name] = [None if cell != cell else cell for cell in cells] if sparse else cells
        elif kind == "i":
            columns[name] = np.frombuffer(values, "<i8").tolist()
        else:
            columns[name] = json.loads(values)
    return columns


def _numbers(body: bytes, names: Container[str] | None) -> Arrays:
    found: Arrays = {}
    for name, kind, values in _columns(body):
        if names is not None and name not in names:
            continue
        if kind == "f":
            found[name] = np.frombuffer(values, "<f8")
        elif kind == "i":
            found[name] = np.frombuffer(values, "<i8").astype(np.float64)
        else:
            found[name] = np.array([_number(cell) for cell in json.loads(values)], dtype=np.float64)
    return found


def _number(value: Cell) -> float:
    try:
        return float("nan") if value is None else float(value)
    except OverflowError:  # a whole number beyond all floats is as good as infinite: no measurement
        return float("nan")
