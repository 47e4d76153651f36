"""Blocks of curves that a driver sends: what `encode` makes passes, what no worker sends is refused."""

import json
import struct
import tracemalloc
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.wire.curve_codec import MOST_BYTES, Cell, decode, encode
from service.api.curve_checks import MOST_COLUMNS, check_block


@given(
    st.integers(1, 40),
    st.sampled_from([st.floats(allow_nan=False, allow_infinity=False), st.integers(), st.booleans(), st.none()]),
    st.data(),
)
@settings(max_examples=100, deadline=None)
def test_what_encode_makes_passes(rows: int, cells: st.SearchStrategy[Cell], data: st.DataObject) -> None:
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
SOUND = forged(heading(["loss", "f", 16]), ROUNDS + FLOATS)


def test_a_sound_block_passes() -> None:
    check_block(SOUND)
    assert decode(SOUND) == {"round": [0, 1], "loss": [0.5, None]}


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (b"", "at least 19 bytes, got 0"),
        (SOUND[:18], "at least 19 bytes"),
        (SOUND[:-1], "must have the .* bytes of its head"),
        (SOUND + b"x", "must have the .* bytes of its head"),
        (SOUND + SOUND, "must have the .* bytes of its head"),
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
        (forged(heading(rows=3), ROUNDS), "with the 2 rounds of its head"),
        (forged(heading(["round", "i", 16]), ROUNDS * 2), "different names"),
        (forged(heading([5, "i", 16]), ROUNDS * 2), "different names"),
        (forged(heading(["a", "i", 16.0]), ROUNDS * 2), "different names"),
        (forged(heading(["a", "j", True]), ROUNDS + b"1"), "different names"),
        (forged({"v": 1, "rows": 2, "columns": [["a", "i", 16]]}, ROUNDS), '"round" among them'),
        (forged(heading(*([f"m{i}", "j", 5] for i in range(MOST_COLUMNS))), ROUNDS), "at most 4096 columns"),
        (forged(heading(["", "f", 16]), ROUNDS + FLOATS), "1 to 200 printable"),
        (forged(heading(["a\0", "f", 16]), ROUNDS + FLOATS), "printable"),
        (forged(heading(["\ud800", "f", 16]), ROUNDS + FLOATS), "printable"),
        (forged(heading(["x" * 201, "f", 16]), ROUNDS + FLOATS), "1 to 200"),
        (forged(heading(["loss", "f", 8]), ROUNDS + FLOATS), "column loss must have 2 values"),
        (forged(heading(["loss", "f", 24]), ROUNDS + FLOATS), "column loss must have 2 values"),
        (forged(heading(["loss", "f", -16]), ROUNDS + FLOATS), "column loss must have 2 values"),
        (forged(heading(["loss", "x", 16]), ROUNDS + FLOATS), "column loss must have 2 values"),
        (forged(heading(["loss", "f", 16]), ROUNDS + struct.pack("<dd", 0, float("inf"))), "each finite"),
        (forged(heading(["a", "j", 7]), ROUNDS + b"[1,NaN]"), "each finite"),
        (forged(heading(["a", "j", 9]), ROUNDS + b"[1,1e999]"), "each finite"),
        (forged(heading(["a", "j", 7]), ROUNDS + b'[1,"x"]'), "each finite, a flag or null"),
        (forged(heading(["a", "j", 6]), ROUNDS + b"[1,[]]"), "each finite, a flag or null"),
        (forged(heading(["a", "j", 3]), ROUNDS + b"[1]"), "must have 2 values"),
        (forged(heading(["a", "j", 2]), ROUNDS + b"{}"), "must have 2 values"),
        (forged(heading(["a", "j", 5004]), ROUNDS + b"[0," + b"9" * 5000 + b"]"), "must have 2 values"),
        (forged(heading(["a", "j", 200_000]), ROUNDS + b"[" * 200_000), "must have 2 values"),
        (forged(heading(), struct.pack("<qq", 0, 0)), "rounds must be whole numbers that increase"),
        (forged(heading(), struct.pack("<qq", 0, 2)), "from the head's first to its last"),
        (forged({"v": 1, "rows": 2, "columns": [["round", "j", 5]]}, b"[0,1]"), "rounds must be whole numbers"),
        (forged(heading(), ROUNDS + b"more"), "must fill its body"),
    ],
)
def test_what_no_worker_sends_is_refused(block: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_block(block)


def test_a_bomb_is_not_inflated() -> None:
    """A head that says little, over a body of 64 MiB."""
    stream = zlib.compressobj(9)
    packed = b"".join([*(stream.compress(bytes(2**20)) for _ in range(64)), stream.flush()])
    block = struct.pack("<BIIHII", 2, 0, 1, 2, 1000, len(packed)) + packed
    tracemalloc.start()
    with pytest.raises(ValueError, match="the 1000 bytes of its head decompressed"):
        check_block(block)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2**20


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_a_damaged_block_is_refused_or_can_be_read(data: st.DataObject) -> None:
    damaged = bytearray(SOUND)
    damaged[data.draw(st.integers(0, len(SOUND) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        check_block(bytes(damaged))
    except ValueError:
        return
    assert len(decode(bytes(damaged))["round"]) == 2
