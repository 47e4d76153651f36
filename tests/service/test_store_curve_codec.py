"""Curve payloads: what goes in comes out, to the bit and to the type."""

import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.errors import DriftlineError
from driftline.wire.curve_columns import Cell
from service.store.curve_codec import SEGMENT_ROUNDS, arrays, contains, decode, encode, join, join_arrays, split

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
    assert bits(decode(encode(columns))) == bits(columns)


@given(tables())
@settings(max_examples=100, deadline=None)
def test_split_and_join_are_inverse(columns: dict[str, list[Cell]]) -> None:
    parts = list(split(columns))
    assert [segment for segment, _ in parts] == sorted(
        {int(number or 0) // SEGMENT_ROUNDS for number in columns["round"]}
    )
    assert bits(join(part for _, part in parts)) == bits(columns)
    assert all(contains(columns, part) for _, part in parts)


def test_minus_zero_and_the_smallest_number_survive() -> None:
    columns: dict[str, list[Cell]] = {"round": [0, 1, 2], "train_loss": [-0.0, 5e-324, None]}
    assert bits(decode(encode(columns))) == bits(columns)


def test_a_segment_of_smooth_curves_is_small() -> None:
    rounds = list(range(SEGMENT_ROUNDS))
    columns: dict[str, list[Cell]] = {"round": list(rounds)}
    columns |= {f"m{index}": [1 / (1 + number + index) for number in rounds] for index in range(10)}
    columns |= {"diverged": [False] * SEGMENT_ROUNDS, "client_lr": [0.1] * SEGMENT_ROUNDS}
    assert len(encode(columns)) < 11 * 8 * SEGMENT_ROUNDS


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
    header = b'{"v":2,"rows":0,"columns":[]}'
    with pytest.raises(DriftlineError, match="must be of version 1, got 2"):
        decode(zlib.compress(struct.pack("<I", len(header)) + header))


@given(tables(), st.booleans())
@settings(max_examples=200, deadline=None)
def test_arrays_hold_the_numbers_that_decode_gives(columns: dict[str, list[Cell]], some: bool) -> None:
    names = set(list(columns)[::2]) if some else None
    parts = [encode(part) for _, part in split(columns)]
    lists = join(decode(part) for part in parts)
    found = join_arrays([arrays(part, names and {"round", *names}) for part in parts])
    assert set(found) == (set(columns) if names is None else {"round", *names})
    for name, values in found.items():
        assert values.tobytes() == np.array(lists[name], dtype=np.float64).tobytes()


def test_arrays_of_segments_that_lack_a_metric_and_of_numbers_beyond_all_floats() -> None:
    parts = [arrays(encode({"round": [0], "a": [10**400]})), arrays(encode({"round": [256, 257], "b": [True, None]}))]
    found = join_arrays(parts)
    nan = float("nan")
    np.testing.assert_array_equal(found["round"], [0.0, 256.0, 257.0])
    np.testing.assert_array_equal(found["a"], [nan, nan, nan])
    np.testing.assert_array_equal(found["b"], [nan, 1.0, nan])
