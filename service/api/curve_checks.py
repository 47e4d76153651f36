"""Checks the curves in drivers' reports, once: a driver may send anything, and all readers trust what is stored."""

import json
import struct

import numpy as np

from driftline.errors import InvalidRequest, InvalidSpec
from driftline.study.validation import dotted
from driftline.wire.curve_codec import VERSION, head, header, inflated
from driftline.wire.driver_messages import Report
from trainers import shown

MOST_COLUMNS = 4096
"""Most columns of a block."""

MOST_CHARACTERS = 200
"""Longest name of a column."""

_LEAST_BYTES = 1024
"""Every block counts as at least this large: checking one takes time even if it is tiny."""


def check_report(report: Report, most: int) -> None:
    """Refuse blocks that no worker sends, and blocks of more than `most` bytes in total after decompression.

    Raises:
        InvalidSpec: A block is invalid.
        InvalidRequest: The blocks are too large.
    """
    size = sum(max(head(block).size, _LEAST_BYTES) for blocks in report.reports.values() for block in blocks)
    if size > most:
        raise InvalidRequest("reports", f"must have at most {most} bytes decompressed (body_bytes), got {size}")
    for trial, blocks in report.reports.items():
        for number, block in enumerate(blocks):
            try:
                check_block(block)
            except ValueError as error:
                raise InvalidSpec(dotted(["reports", trial, number]), str(error)) from None


def check_block(block: bytes) -> None:
    """Check that `curve_codec.encode` could have made a block, with memory for one block.

    Raises:
        ValueError: It could not; the message is one line.
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
