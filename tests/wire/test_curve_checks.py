"""Blocks of curves from drivers: those of `encode` pass, those that no worker sends are refused."""

import json
import math
import struct
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.errors import InvalidRequest
from driftline.wire.curve_codec import MOST_BYTES, MOST_COLUMNS, Cell, check_block, decode, encode, head
from driftline.wire.driver_messages import Report
from service.store import curve_segments
from service.store.curve_segments import add


@given(
    st.integers(1, 40),
    st.sampled_from([st.floats(allow_nan=False, allow_infinity=False), st.integers(), st.booleans(), st.none()]),
    st.data(),
)
def test_blocks_of_encode_pass(rows: int, cells: st.SearchStrategy[Cell], data: st.DataObject) -> None:
    mixed = data.draw(st.lists(st.one_of(st.none(), cells), min_size=rows, max_size=rows))
    for block in encode({"round": list(range(240, 240 + rows)), "metric": mixed}):
        check_block(block)


def forged(document: object, body: bytes, first: int = 0, last: int = 1, rounds: int = 2) -> bytes:
    """A block with this header and these columns."""
    text = json.dumps(document).encode()
    inside = struct.pack("<I", len(text)) + text + body
    packed = zlib.compress(inside)
    return struct.pack("<BIIHII", 2, first, last, rounds, len(inside), len(packed)) + packed


def heading(*entries: object, rows: object = 2, version: object = 1) -> dict[str, object]:
    return {"v": version, "rows": rows, "columns": [["round", "i", 16], *entries]}


ROUNDS = struct.pack("<qq", 0, 1)
FLOATS = struct.pack("<dd", 0.5, float("nan"))
WRAPPED = {"v": 1, "rows": 6, "columns": [["round", "i", 48]]}  # differences that wrap around are positive
VALID = forged(heading(["loss", "f", 16]), ROUNDS + FLOATS)


def test_a_valid_block_passes() -> None:
    check_block(VALID)
    assert decode(VALID) == {"round": [0, 1], "loss": [0.5, None]}


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (b"", "at least 19 bytes, got 0"),
        (VALID[:-1], "must have the .* bytes that its head announces"),
        (VALID + b"x", "must have the .* bytes that its head announces"),
        (forged(heading(), ROUNDS, rounds=0), "rounds of one segment of 256, got 0 rounds from 0 to 1"),
        (forged(heading(), ROUNDS, rounds=3), "got 3 rounds from 0 to 1"),
        (forged(heading(), ROUNDS, first=1, last=0), "got 2 rounds from 1 to 0"),
        (forged(heading(), ROUNDS, first=255, last=256), "rounds of one segment"),
        (struct.pack("<BIIHII", 2, 0, 1, 2, MOST_BYTES + 1, 0), "at most 8388608 bytes decompressed"),
        (struct.pack("<BIIHII", 2, 0, 1, 2, 50, 9) + b"x" * 9, "compressed by zlib"),
        (forged([], ROUNDS), "a header and columns"),
        (forged({"v": 1}, ROUNDS), "a header and columns"),
        (forged(heading(5), ROUNDS), "a header and columns"),
        (forged(heading(version=2), ROUNDS), "must be of version 1"),
        (forged(heading(rows=3), ROUNDS), "have the 2 rounds of its head"),
        (forged(heading(["round", "i", 16]), ROUNDS * 2), "different names"),
        (forged(heading([5, "i", 16]), ROUNDS * 2), "different names"),
        (forged(heading(["a", "i", 16.0]), ROUNDS * 2), "different names"),
        (forged(heading(["a", "j", True]), ROUNDS + b"1"), "different names"),
        (forged({"v": 1, "rows": 2, "columns": [["a", "i", 16]]}, ROUNDS), '"round" among them'),
        (forged(heading(*([f"m{i}", "j", 5] for i in range(MOST_COLUMNS))), ROUNDS), "at most 4096 columns"),
        (forged(heading(["", "f", 16]), ROUNDS + FLOATS), "1 to 200 printable"),
        (forged(heading(["a\0", "f", 16]), ROUNDS + FLOATS), "printable"),
        (forged(heading(["x" * 201, "f", 16]), ROUNDS + FLOATS), "1 to 200"),
        (forged(heading(["loss", "f", 8]), ROUNDS + FLOATS), 'column "loss" must have 2 values'),
        (forged(heading(["loss", "f", -16]), ROUNDS + FLOATS), 'column "loss" must have 2 values'),
        (forged(heading(["loss", "x", 16]), ROUNDS + FLOATS), 'column "loss" must have 2 values'),
        (forged(heading(["loss", "f", 16]), ROUNDS + struct.pack("<dd", 0, float("inf"))), "each finite"),
        (forged(heading(["a", "j", 7]), ROUNDS + b"[1,NaN]"), "each finite"),
        (forged(heading(["a", "j", 9]), ROUNDS + b"[1,1e999]"), "each finite"),
        (forged(heading(["a", "j", 7]), ROUNDS + b'[1,"x"]'), "each finite, a flag or null"),
        (forged(heading(["a", "j", 3]), ROUNDS + b"[1]"), "must have 2 values"),
        (forged(heading(["a", "j", 2]), ROUNDS + b"{}"), "must have 2 values"),
        (forged(heading(["a", "j", 5004]), ROUNDS + b"[0," + b"9" * 5000 + b"]"), "must have 2 values"),
        (forged(heading(["a", "j", 200_000]), ROUNDS + b"[" * 200_000), "must have 2 values"),
        (forged(heading(), struct.pack("<qq", 0, 0)), "rounds must be integers that increase"),
        (forged(heading(), struct.pack("<qq", 0, 2)), "from the first to the last of the head"),
        (forged({"v": 1, "rows": 2, "columns": [["round", "j", 5]]}, b"[0,1]"), "rounds must be integers"),
        (forged(WRAPPED, struct.pack("<6q", 0, 2**62, 2**63 - 1, -(2**63), -1, 5), 0, 5, 6), "rounds must be integers"),
        (forged(heading(), ROUNDS + b"more"), "must fill its body"),
    ],
)
def test_blocks_that_no_worker_sends_are_refused(block: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_block(block)


def test_a_bomb_is_not_inflated() -> None:
    """A head that says little, over a body of 64 MiB."""
    stream = zlib.compressobj(9)
    packed = b"".join([*(stream.compress(bytes(2**20)) for _ in range(64)), stream.flush()])
    block = struct.pack("<BIIHII", 2, 0, 1, 2, 1000, len(packed)) + packed
    tracemalloc.start()
    with pytest.raises(ValueError, match="the 1000 bytes that its head announces"):
        check_block(block)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2**20


def test_tiny_blocks_count_as_large_ones() -> None:
    (block,) = encode({"round": [0]})
    body = Report(attempt=1, pack="p", reports={str(number): [block] for number in range(5)}, rounds_done=0)
    body.check_blocks(5 * 1024)
    with pytest.raises(InvalidRequest, match="at most 5000 bytes decompressed"):
        body.check_blocks(5000)


@given(st.data())
def test_a_damaged_block_is_refused_in_one_line_or_can_be_read(data: st.DataObject) -> None:
    block = data.draw(st.sampled_from(BLOCKS))
    damaged = bytearray(block)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(damaged)))
        if data.draw(st.booleans()):
            damaged[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
        else:
            damaged[place : place + 1] = data.draw(st.binary(min_size=1, max_size=1))
    refused_or_read(bytes(damaged))


@given(st.data())
def test_a_block_with_a_damaged_body_is_refused_in_one_line_or_can_be_read(data: st.DataObject) -> None:
    """Damage below the compression, with a head that fits."""
    block = data.draw(st.sampled_from(BLOCKS))
    about, inside = head(block), bytearray(zlib.decompress(block[19:]))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(inside)))
        inside[place : place + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
    packed = zlib.compress(bytes(inside))
    refused_or_read(struct.pack("<BIIHII", 2, about.first, about.last, about.rounds, len(inside), len(packed)) + packed)


BLOCKS = [VALID, *encode({"round": [254, 256, 300], "loss": [0.5, None, -0.0], "diverged": [False, None, True]})]


def refused_or_read(block: bytes) -> None:
    refused: ValueError | None = None
    try:
        check_block(block)
    except ValueError as error:
        refused = error
    if refused is not None:
        assert (type(refused), len(str(refused).splitlines())) == (ValueError, 1)
        return
    columns, about = decode(block), head(block)
    rounds = columns["round"]
    assert rounds == sorted(set(rounds))
    assert (rounds[0], rounds[-1], len(rounds)) == (about.first, about.last, about.rounds)
    assert {len(values) for values in columns.values()} == {about.rounds}
    cells = [value for values in columns.values() for value in values]
    assert all(math.isfinite(value) for value in cells if isinstance(value, float))
    payload = add(add(b"", block), encode({"round": [about.segment * 256 + 255]})[0])
    assert len(curve_segments.decode(payload)["round"]) == curve_segments.rounds(payload)
    curve_segments.arrays(payload)
