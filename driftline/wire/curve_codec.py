"""Curves as compressed blocks: a worker encodes them once, the store appends them. Imports numpy and zlib, no pydantic.

A block holds rounds of one trial and one segment: segment s has rounds 256 s to 256 s + 255. It consists of a head
(`BlockHead`, 19 bytes) and a body. The body is zlib over: the length of a JSON header (4 bytes, little-endian), the
header ``{"v": 1, "rows": n, "columns": [[name, kind, bytes], ...]}``, then the columns' bodies. Kinds: ``f`` float64
with NaN for "not reported", ``i`` int64, ``j`` JSON (flags, and columns of mixed types). Decoding restores the same
types and bits.

The API checks blocks from drivers with `check_block`; all other readers trust them.
"""

from __future__ import annotations

import functools
import itertools
import json
import struct
import zlib
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainers import shown

Cell = bool | int | float | None
Columns = dict[str, list[Cell]]
Arrays = dict[str, NDArray[np.float64]]

SEGMENT_ROUNDS = 256
"""Rounds in one stored segment: segment s holds rounds 256 s to 256 s + 255."""

MOST_BYTES = 8 * 2**20
"""Largest decompressed body of a block: 256 rounds of 4096 columns."""

BLOCK = 2
"""Version of the block format."""

MOST_COLUMNS = 4096
"""Most columns of a block."""

MOST_CHARACTERS = 200
"""Longest name of a column."""

HEAD = struct.Struct("<BIIHII")
VERSION = 1
_LENGTH = struct.Struct("<I")
_ROUND_LIMIT = 2**32


class BlockHead(NamedTuple):
    """The head of a block.

    Attributes:
        form: `BLOCK`.
        first: First round.
        last: Last round.
        rounds: Number of rounds.
        size: Size of the decompressed body in bytes.
        length: Size of the compressed body in bytes.
    """

    form: int
    first: int
    last: int
    rounds: int
    size: int
    length: int

    @property
    def segment(self) -> int:
        """The segment of the rounds."""
        return self.first // SEGMENT_ROUNDS


def encode(columns: Mapping[str, Sequence[Cell]]) -> list[bytes]:
    """Compresses columns of equal length.

    Args:
        columns: Name -> values, finite or None; ``round`` increases.

    Returns:
        One block for every segment with some of the rounds, in ascending order; none if there are no rounds.

    Raises:
        ValueError: A round is 2**32 or larger.
    """
    numbers = [int(number or 0) for number in columns.get("round", ())]
    if numbers and numbers[-1] >= _ROUND_LIMIT:
        raise ValueError(f"rounds must be below {_ROUND_LIMIT}, got one with {numbers[-1].bit_length()} bits")
    blocks, start = [], 0
    while start < len(numbers):
        segment, end = numbers[start] // SEGMENT_ROUNDS, start + 1
        while end < len(numbers) and numbers[end] // SEGMENT_ROUNDS == segment:
            end += 1
        body = _body({name: values[start:end] for name, values in columns.items()}, end - start)
        packed = zlib.compress(body, 4)
        blocks.append(HEAD.pack(BLOCK, numbers[start], numbers[end - 1], end - start, len(body), len(packed)) + packed)
        start = end
    return blocks


def decode(block: bytes, names: Container[str] | None = None) -> Columns:
    """The columns of a block; with `names` only these columns, which should include ``round``."""
    return columns_of(inflated(block, head(block)), names)


def upsert(old: Columns, new: Mapping[str, list[Cell]]) -> Columns:
    """Appends the rounds of `new` to `old`, or replaces them there; None where one lacks a column of the other.

    Args:
        old: Changed in place.
        new: Columns with increasing rounds.

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


def head(block: bytes) -> BlockHead:
    """The head of a block.

    Raises:
        ValueError: Not exactly one block, or the head contradicts itself.
    """
    if len(block) < HEAD.size:
        raise ValueError(f"a block of a curve must have at least {HEAD.size} bytes, got {len(block)}")
    header = BlockHead._make(HEAD.unpack_from(block))
    if header.form != BLOCK:
        raise ValueError(f"a block of a curve must be of form {BLOCK}, got {header.form}")
    if len(block) != HEAD.size + header.length:
        raise ValueError(f"the body of a block must have the {header.length} bytes that its head announces")
    if not 0 < header.rounds <= header.last - header.first + 1 or header.segment != header.last // SEGMENT_ROUNDS:
        rounds = f"{header.rounds} rounds from {header.first} to {header.last}"
        raise ValueError(f"a block must hold rounds of one segment of {SEGMENT_ROUNDS}, got {rounds}")
    if header.size > MOST_BYTES:
        raise ValueError(f"the body of a block must have at most {MOST_BYTES} bytes decompressed, got {header.size}")
    return header


def inflated(block: bytes | memoryview, about: BlockHead) -> bytes:
    """The decompressed body of a block; never uses more memory than its head announces.

    Raises:
        ValueError: The body has another size, or is damaged.
    """
    stream = zlib.decompressobj()
    try:
        body = stream.decompress(block[HEAD.size :], about.size + 1)
    except zlib.error as error:
        raise ValueError(f"the body of a block must be compressed by zlib: {error}") from None
    if len(body) != about.size or not stream.eof or stream.unused_data:
        raise ValueError(f"the body of a block must have the {about.size} bytes that its head announces, decompressed")
    return body


def header(body: bytes) -> tuple[Any, int]:
    """The JSON header of a decompressed body, and where the columns begin."""
    (length,) = _LENGTH.unpack_from(body)
    start = _LENGTH.size + length
    return json.loads(body[_LENGTH.size : start]), start


@functools.lru_cache(maxsize=256)
def _layout(text: bytes) -> tuple[tuple[str, str, int, int], ...]:
    """Name, kind, start and end of each column, for a JSON header; the curves of a study share theirs.

    Raises:
        ValueError: A newer Driftline wrote it.
    """
    about = json.loads(text)
    if about["v"] != VERSION:
        raise ValueError(f"a stored curve must be of version {VERSION}, got {about['v']}; use a newer Driftline")
    names, kinds, lengths = zip(*about["columns"], strict=True)
    ends = list(itertools.accumulate(lengths, initial=_LENGTH.size + len(text)))
    return tuple(zip(names, kinds, ends, ends[1:], strict=False))


def columns_of(body: bytes, names: Container[str] | None = None) -> Columns:
    """The columns of a decompressed body; with `names` only these.

    Raises:
        ValueError: A newer Driftline wrote it.
    """
    columns: Columns = {}
    for name, kind, values in _entries(body, names):
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


def arrays_of(body: bytes, names: Container[str] | None = None) -> Arrays:
    """The columns of a decompressed body as float arrays: several times faster than `columns_of`, in 1/8 of the memory.

    Returns:
        Name -> (rounds,), NaN where nothing was reported, 1 and 0 for flags.

    Raises:
        ValueError: A newer Driftline wrote it.
    """
    arrays: Arrays = {}
    for name, kind, values in _entries(body, names):
        if kind == "f":
            arrays[name] = np.frombuffer(values, "<f8")
        elif kind == "i":
            arrays[name] = np.frombuffer(values, "<i8").astype(np.float64)
        else:
            arrays[name] = np.array([_number(cell) for cell in json.loads(values)], dtype=np.float64)
    return arrays


def check_block(block: bytes) -> None:
    """Check that `encode` could have made a block, with memory for one block.

    Raises:
        ValueError: `encode` could not; the message is one line.
    """
    about = head(block)
    body = inflated(block, about)
    try:
        document, start = header(body)
        version, rows, entries = document["v"], document["rows"], list(document["columns"])
        names = [name for name, kind, size in entries if (type(name), type(kind), type(size)) == (str, str, int)]
    except (struct.error, ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("the body of a block must be a header and columns") from None
    if version != VERSION or rows != about.rounds:
        raise ValueError(f"a block's body must be of version {VERSION} and have the {about.rounds} rounds of its head")
    if not len(set(names)) == len(entries) <= MOST_COLUMNS or "round" not in names:
        raise ValueError(f'a block must have at most {MOST_COLUMNS} columns of different names, "round" among them')
    for name, kind, size in entries:
        if not 0 < len(name) <= MOST_CHARACTERS or not name.isprintable():
            raise ValueError(f"a column's name must have 1 to {MOST_CHARACTERS} printable characters")
        values = body[start : start + max(size, 0)]
        start += len(values)
        if len(values) != size or not _valid(kind, values, about.rounds):
            raise ValueError(f"column {shown(name)} must have {about.rounds} values, each finite, a flag or null")
        if name == "round":
            numbers = np.frombuffer(values, "<i8") if kind == "i" else np.full(1, -1)
            if (numbers[0], numbers[-1]) != (about.first, about.last) or (numbers[1:] <= numbers[:-1]).any():
                raise ValueError("rounds must be integers that increase from the first to the last of the head")
    if start != len(body):
        raise ValueError("the columns of a block must fill its body")


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
        except OverflowError:  # above 64 bits: stored as JSON
            pass
    return "j", json.dumps(list(values), separators=(",", ":"), allow_nan=False).encode()


def _entries(body: bytes, names: Container[str] | None) -> Iterator[tuple[str, str, bytes]]:
    """Name, kind and body of each column."""
    (length,) = _LENGTH.unpack_from(body)
    for name, kind, start, end in _layout(body[_LENGTH.size : _LENGTH.size + length]):
        if names is None or name in names:
            yield name, kind, body[start:end]


def _number(value: Cell) -> float:
    try:
        return float("nan") if value is None else float(value)
    except OverflowError:  # an integer beyond the range of floats counts as not reported
        return float("nan")


def _valid(kind: str, values: bytes, rows: int) -> bool:
    """Whether the bytes of a column hold one valid value per row."""
    if kind in ("f", "i"):
        return len(values) == 8 * rows and not (kind == "f" and np.isinf(np.frombuffer(values, "<f8")).any())
    try:
        cells = json.loads(values) if kind == "j" else None
    except (ValueError, RecursionError):
        return False
    return (
        isinstance(cells, list)
        and len(cells) == rows
        and all(type(cell) in (bool, int, type(None)) or (type(cell) is float and np.isfinite(cell)) for cell in cells)
    )
