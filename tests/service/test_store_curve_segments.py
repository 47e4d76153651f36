"""Payloads of stored segments: they hold what their blocks held, however the blocks came."""

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.wire.curve_codec import HEAD, Cell, encode
from service.store.curve_segments import (
    MOST_BLOCKS,
    add,
    arrays,
    contains,
    decode,
    heads,
    join,
    join_arrays,
    rounds,
    sealed,
)
from tests.wire.curve_tables import bits, tables

Columns = dict[str, list[Cell]]


def part(columns: Columns, first: int, last: int) -> Columns:
    return {name: values[first:last] for name, values in columns.items()}


def whole(count: int) -> Columns:
    return {"round": list(range(count)), "loss": [1 / (1 + number) for number in range(count)]}


def bare(block: bytes) -> bytes:
    """A block's body: a payload without a head."""
    return block[HEAD.size :]


@given(tables(), st.data())
def test_a_payload_holds_what_its_blocks_held_however_they_came(columns: Columns, data: st.DataObject) -> None:
    columns["round"] = list(range(len(columns["round"])))
    count = len(columns["round"])
    again = data.draw(st.lists(st.tuples(st.integers(0, count), st.integers(0, count)), max_size=6))
    pieces = data.draw(st.permutations([*again, *((row, row + 1) for row in range(count))]))
    payload = bare(encode(part(columns, 0, 1))[0]) if data.draw(st.booleans()) else b""
    for first, last in pieces:
        for block in encode(part(columns, first, last)):
            payload = add(payload, block)
            assert add(payload, block) is payload
        if data.draw(st.booleans()):
            payload = sealed(payload) if payload else payload
    assert rounds(payload) == count
    assert bits(decode(payload)) == bits(columns)
    assert contains(decode(payload), columns)
    for name, values in arrays(payload).items():
        assert values.tobytes() == arrays(encode(columns)[0])[name].tobytes()


def test_later_rounds_are_appended_as_they_came_until_there_are_many_blocks() -> None:
    payload = b""
    for number in range(MOST_BLOCKS):
        (block,) = encode(part(whole(256), number, number + 1))
        before, payload = payload, add(payload, block)
        assert payload == before + block
    assert len(heads(payload)) == MOST_BLOCKS
    assert sealed(payload) == bare(encode(whole(MOST_BLOCKS))[0])
    assert sealed(sealed(payload)) == sealed(payload)
    payload = add(payload, encode(part(whole(256), MOST_BLOCKS, MOST_BLOCKS + 1))[0])
    assert payload == encode(whole(MOST_BLOCKS + 1))[0]


def test_full_segments_have_no_head() -> None:
    full = add(encode(whole(255))[0], encode(part(whole(256), 255, 256))[0])
    assert (heads(full), decode(full)) == ([], whole(256))
    assert add(b"", encode(whole(256))[0]) == full
    assert sealed(full) is full


def test_a_segment_lacks_what_another_one_has() -> None:
    assert join([{"round": [0], "a": [1]}, {"round": [256], "b": [2.5]}]) == {
        "round": [0, 256],
        "a": [1, None],
        "b": [None, 2.5],
    }
    assert join([]) == {"round": []}


def test_arrays_of_segments_that_lack_a_metric() -> None:
    blocks = [*encode({"round": [0], "a": [1.5]}), *encode({"round": [256, 257], "b": [True, None]})]
    found = join_arrays([arrays(block) for block in blocks])
    nan = float("nan")
    np.testing.assert_array_equal(found["round"], [0.0, 256.0, 257.0])
    np.testing.assert_array_equal(found["a"], [1.5, nan, nan])
    np.testing.assert_array_equal(found["b"], [nan, 1.0, nan])


def test_contains_treats_none_and_absent_alike() -> None:
    old: Columns = {"round": [0, 1], "a": [1.0, None]}
    assert contains(old, {"round": [1]})
    assert contains(old, {"round": [0], "a": [1.0], "b": [None]})
    assert not contains(old, {"round": [0]})
    assert not contains(old, {"round": [2]})
    assert contains(old, {"round": []})


def test_a_payload_of_a_later_version_is_refused() -> None:
    (block,) = encode({"round": [0]})
    with pytest.raises(ValueError, match="must be of form 2, got 3; use a newer Driftline"):
        decode(b"\x03" + block[1:])
    header = b'{"v":2,"rows":0,"columns":[]}'
    with pytest.raises(ValueError, match="must be of version 1, got 2"):
        decode(zlib.compress(struct.pack("<I", len(header)) + header))
