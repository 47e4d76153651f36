"""Curve payloads: what goes in comes out, to the bit and to the type."""

import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.wire.curve_codec import (
    MOST_BLOCKS,
    SEGMENT_ROUNDS,
    Cell,
    add,
    arrays,
    contains,
    decode,
    encode,
    head,
    heads,
    join,
    join_arrays,
    sealed,
    upsert,
    without_head,
)

CELLS: st.SearchStrategy[Cell] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
)


@st.composite
def tables(draw: st.DrawFn) -> dict[str, list[Cell]]:
    rounds = draw(st.lists(st.integers(0, 2000), min_size=1, max_size=12, unique=True).map(sorted))
    kinds = st.sampled_from([CELLS, st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 2**40)])
    columns: dict[str, list[Cell]] = {"round": list(rounds)}
    for name in draw(st.lists(st.sampled_from(["train_loss", "test_accuracy", "bytes_up", "é"]), unique=True)):
        columns[name] = draw(st.lists(draw(kinds), min_size=len(rounds), max_size=len(rounds)))
    return columns


def bits(columns: dict[str, list[Cell]]) -> dict[str, list[Any]]:
    return {
        name: [struct.pack("<d", value) if isinstance(value, float) else (type(value), value) for value in values]
        for name, values in columns.items()
    }


@given(tables())
@settings(max_examples=200, deadline=None)
def test_decode_gives_back_what_was_encoded(columns: dict[str, list[Cell]]) -> None:
    blocks = encode(columns)
    assert [head(block).segment for block in blocks] == sorted(
        {int(number or 0) // SEGMENT_ROUNDS for number in columns["round"]}
    )
    assert sum(head(block).rounds for block in blocks) == len(columns["round"])
    assert bits(join(decode(block) for block in blocks)) == bits(columns)
    assert all(contains(columns, decode(block)) for block in blocks)
    some = join(decode(block, {"round", "train_loss"}) for block in blocks)
    assert bits(some) == {name: values for name, values in bits(columns).items() if name in ("round", "train_loss")}


def test_minus_zero_and_the_smallest_number_survive() -> None:
    columns: dict[str, list[Cell]] = {"round": [0, 1, 2], "train_loss": [-0.0, 5e-324, None]}
    (block,) = encode(columns)
    assert bits(decode(block)) == bits(columns)


def test_a_segment_of_smooth_curves_is_small() -> None:
    rounds = list(range(SEGMENT_ROUNDS))
    columns: dict[str, list[Cell]] = {"round": list(rounds)}
    columns |= {f"m{index}": [1 / (1 + number + index) for number in rounds] for index in range(10)}
    columns |= {"diverged": [False] * SEGMENT_ROUNDS, "client_lr": [0.1] * SEGMENT_ROUNDS}
    (block,) = encode(columns)
    assert len(block) < 11 * 8 * SEGMENT_ROUNDS


def test_a_segment_lacks_what_another_one_has() -> None:
    assert join([{"round": [0], "a": [1]}, {"round": [256], "b": [2.5]}]) == {
        "round": [0, 256],
        "a": [1, None],
        "b": [None, 2.5],
    }
    assert join([]) == {"round": []}


def test_contains_takes_none_and_absent_for_the_same() -> None:
    old: dict[str, list[Cell]] = {"round": [0, 1], "a": [1.0, None]}
    assert contains(old, {"round": [1]})
    assert contains(old, {"round": [0], "a": [1.0], "b": [None]})
    assert not contains(old, {"round": [0]})
    assert not contains(old, {"round": [2]})
    assert contains(old, {"round": []})


def test_a_payload_of_a_later_version_is_refused() -> None:
    (block,) = encode({"round": [0]})
    with pytest.raises(ValueError, match="must be of form 2, got 3; use a newer Driftline"):
        decode(b"\x03" + block[1:])
    with pytest.raises(ValueError, match="must be of form 2, got 3"):
        head(b"\x03" + block[1:])
    header = b'{"v":2,"rows":0,"columns":[]}'
    with pytest.raises(ValueError, match="must be of version 1, got 2"):
        decode(zlib.compress(struct.pack("<I", len(header)) + header))


@given(tables(), st.booleans())
@settings(max_examples=200, deadline=None)
def test_arrays_hold_the_numbers_that_decode_gives(columns: dict[str, list[Cell]], some: bool) -> None:
    names = set(list(columns)[::2]) if some else None
    blocks = encode(columns)
    lists = join(decode(block) for block in blocks)
    found = join_arrays([arrays(block, names and {"round", *names}) for block in blocks])
    assert set(found) == (set(columns) if names is None else {"round", *names})
    for name, values in found.items():
        assert values.tobytes() == np.array(lists[name], dtype=np.float64).tobytes()


def test_arrays_of_segments_that_lack_a_metric_and_of_numbers_beyond_all_floats() -> None:
    blocks = [*encode({"round": [0], "a": [10**400]}), *encode({"round": [256, 257], "b": [True, None]})]
    found = join_arrays([arrays(block) for block in blocks])
    nan = float("nan")
    np.testing.assert_array_equal(found["round"], [0.0, 256.0, 257.0])
    np.testing.assert_array_equal(found["a"], [nan, nan, nan])
    np.testing.assert_array_equal(found["b"], [nan, 1.0, nan])


# ---- what the store keeps of blocks that come one after another


@given(st.lists(st.integers(0, 40), unique=True).map(sorted), st.lists(st.integers(0, 40), unique=True).map(sorted))
def test_newer_rounds_replace_older_ones(old: list[int], new: list[int]) -> None:
    before: dict[str, list[Cell]] = {"round": list(old), "loss": [float(number) for number in old]}
    after: dict[str, list[Cell]] = {"round": list(new), "loss": [-float(number) for number in new]}
    after["extra"] = [1] * len(new)
    merged = upsert(before, after)
    assert merged["round"] == sorted({*old, *new})
    losses = dict(zip(merged["round"], merged["loss"], strict=True))
    assert losses == {number: float(number) for number in old} | {number: -float(number) for number in new}
    assert contains(merged, after)


@given(tables(), st.data())
@settings(max_examples=200, deadline=None)
def test_a_payload_holds_what_its_blocks_held_however_they_came(
    columns: dict[str, list[Cell]], data: st.DataObject
) -> None:
    columns["round"] = list(range(len(columns["round"])))
    count = len(columns["round"])
    again = data.draw(st.lists(st.tuples(st.integers(0, count), st.integers(0, count)), max_size=6))
    pieces = data.draw(st.permutations([*again, *((row, row + 1) for row in range(count))]))
    payload = without_head(encode(part(columns, 0, 1))[0]) if data.draw(st.booleans()) else b""
    for first, last in pieces:
        for block in encode(part(columns, first, last)):
            payload = add(payload, block)
            assert add(payload, block) is payload
    assert bits(decode(payload)) == bits(columns)
    for name, values in arrays(payload).items():
        assert values.tobytes() == arrays(encode(columns)[0])[name].tobytes()


def part(columns: dict[str, list[Cell]], first: int, last: int) -> dict[str, list[Cell]]:
    return {name: values[first:last] for name, values in columns.items()}


def whole(rounds: int) -> dict[str, list[Cell]]:
    return {"round": list(range(rounds)), "loss": [1 / (1 + number) for number in range(rounds)]}


def test_later_rounds_are_appended_as_they_came_until_there_are_many_blocks() -> None:
    payload = b""
    for number in range(MOST_BLOCKS):
        (block,) = encode(part(whole(256), number, number + 1))
        before, payload = payload, add(payload, block)
        assert payload == before + block
    assert len(heads(payload)) == MOST_BLOCKS
    assert sealed(payload) == encode(whole(MOST_BLOCKS))[0]
    assert sealed(sealed(payload)) == sealed(payload)
    payload = add(payload, encode(part(whole(256), MOST_BLOCKS, MOST_BLOCKS + 1))[0])
    assert payload == encode(whole(MOST_BLOCKS + 1))[0]


def test_a_full_segment_is_one_block() -> None:
    payload = encode(whole(255))[0]
    assert add(payload, encode(part(whole(256), 255, 256))[0]) == encode(whole(256))[0]


def test_a_payload_of_version_0_1_is_read_and_added_to() -> None:
    (block,) = encode(whole(20))
    old = without_head(block)
    assert block.endswith(old)
    assert old[:1] == b"\x78"
    assert decode(old) == whole(20)
    assert arrays(old)["loss"].tolist() == whole(20)["loss"]
    assert sealed(old) is old
    assert add(old, encode(part(whole(30), 5, 15))[0]) is old
    assert add(old, encode(part(whole(30), 20, 30))[0]) == encode(whole(30))[0]
    assert decode(add(old, encode(part(whole(30), 10, 30))[0])) == whole(30)
