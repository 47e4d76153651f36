"""Stored segments of curves: payloads of blocks (`driftline.wire.curve_codec`), to which reports append.

The payload of a segment that grows is its blocks in the order of their rounds. Full segments, and those of trials that
their driver has finished or handed back, are one body without a head, which is faster to read; it begins with zlib's
first byte (`ZLIB`).
"""

import struct
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from zlib_ng import zlib_ng

from driftline.wire.curve_codec import (
    BLOCK,
    HEAD,
    SEGMENT_ROUNDS,
    Arrays,
    BlockHead,
    Cell,
    Columns,
    arrays_of,
    columns_of,
    encode,
    head,
    header,
    inflated,
    upsert,
)

MOST_BLOCKS = 16
"""Most blocks of a payload: one more, and all are encoded again as one, because readers pay for every block."""

_ZLIB_ERROR: Any = zlib_ng.error  # a class, whatever its type stubs say
DAMAGE: tuple[type[Exception], ...] = (ArithmeticError, LookupError, TypeError, ValueError, struct.error, _ZLIB_ERROR)
"""Errors from reading a payload whose bytes have changed."""

ZLIB = b"\x78"
"""First byte of a payload without a head."""


def add(payload: bytes, block: bytes) -> bytes:
    """The payload with one more block: appended if all its rounds are later than the stored ones, otherwise merged.

    Args:
        payload: The stored payload; b"" if there is none.
        block: Rounds of the same segment; they replace stored ones.

    Returns:
        `payload` itself if all rounds of the block are stored already with the same values.
    """
    stored, new = heads(payload), head(block)
    later = bool(stored) and new.first > stored[-1].last
    full = new.last % SEGMENT_ROUNDS == SEGMENT_ROUNDS - 1
    if later and len(stored) < MOST_BLOCKS and not full:
        return payload + block
    if payload:
        old, fresh = decode(payload), columns_of(inflated(block, new))
        if not later and contains(old, fresh):
            return payload
        (block,) = encode(upsert(old, fresh))
    return block[HEAD.size :] if full else block


def sealed(payload: bytes) -> bytes:
    """The payload as one body without a head: faster to read."""
    return payload if payload[:1] == ZLIB else encode(decode(payload))[0][HEAD.size :]


def rounds(payload: bytes) -> int:
    """Number of rounds in a payload."""
    if payload[:1] == ZLIB:
        return sum(int(header(body)[0]["rows"]) for body in _bodies(payload))
    return sum(about.rounds for about in heads(payload))


def contains(old: Mapping[str, list[Cell]], new: Mapping[str, list[Cell]]) -> bool:
    """Whether every round of `new` is in `old` with the same values (None and absent are the same)."""
    merged = upsert({name: list(values) for name, values in old.items()}, new)
    none: list[Cell] = [None] * len(merged["round"])
    return all(values == old.get(name, none) for name, values in merged.items())


def heads(payload: bytes) -> list[BlockHead]:
    """The heads of a payload's blocks; empty for a body without a head.

    Raises:
        ValueError: A newer Driftline wrote it.
    """
    blocks: list[BlockHead] = []
    start = 0
    while start < len(payload) and payload[:1] != ZLIB:
        blocks.append(BlockHead._make(HEAD.unpack_from(payload, start)))
        if blocks[-1].form != BLOCK:
            raise ValueError(f"a stored block must be of form {BLOCK}, got {blocks[-1].form}; use a newer Driftline")
        start += HEAD.size + blocks[-1].length
    return blocks


def decode(payload: bytes, names: Container[str] | None = None) -> Columns:
    """The columns of a payload; with `names` only these, which must include ``round``.

    Raises:
        ValueError: A newer Driftline wrote it.
    """
    return join(columns_of(body, names) for body in _bodies(payload))


def arrays(payload: bytes, names: Container[str] | None = None) -> Arrays:
    """Like `decode`, as float arrays: several times faster, with an eighth of the memory.

    Returns:
        Name -> (rounds,), NaN where nothing was reported, 1 and 0 for flags.

    Raises:
        ValueError: A newer Driftline wrote it.
    """
    return join_arrays([arrays_of(body, names) for body in _bodies(payload)])


def join(parts: Iterable[Mapping[str, list[Cell]]]) -> Columns:
    """Concatenate blocks or segments given in ascending order; None where one lacks another's metric."""
    joined: Columns = {"round": []}
    for part in parts:
        upsert(joined, part)
    return joined


def join_arrays(parts: Sequence[Arrays]) -> Arrays:
    """Concatenate blocks or segments given in ascending order; NaN where one lacks another's metric."""
    if len(parts) == 1:
        return parts[0]
    names = dict.fromkeys(name for part in parts for name in part)
    missing = [np.full(len(part["round"]), np.nan) for part in parts]
    return {
        name: np.concatenate([part.get(name, nothing) for part, nothing in zip(parts, missing, strict=True)])
        for name in names
    }


def _bodies(payload: bytes) -> Iterator[bytes]:
    """The decompressed bodies of a payload's blocks."""
    view, start = memoryview(payload), 0
    if payload[:1] == ZLIB:
        yield zlib_ng.decompress(payload)
    for about in heads(payload):
        end = start + HEAD.size + about.length
        yield inflated(view[start:end], about)
        start = end
