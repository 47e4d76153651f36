"""Blocks of curves: decoding restores what was encoded, to the bit and to the type."""

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.wire.curve_codec import (
    HEAD,
    SEGMENT_ROUNDS,
    Cell,
    arrays_of,
    columns_of,
    decode,
    encode,
    head,
    inflated,
    upsert,
)
from tests.wire.curve_tables import bits, tables


@given(tables())
def test_decode_restores_what_was_encoded(columns: dict[str, list[Cell]]) -> None:
    blocks = encode(columns)
    assert [head(block).segment for block in blocks] == sorted(
        {int(number or 0) // SEGMENT_ROUNDS for number in columns["round"]}
    )
    assert sum(head(block).rounds for block in blocks) == len(columns["round"])
    whole: dict[str, list[Cell]] = {}
    some: dict[str, list[Cell]] = {}
    for block in blocks:
        upsert(whole, decode(block))
        upsert(some, decode(block, {"round", "train_loss"}))
    assert bits(whole) == bits(columns)
    assert bits(some) == {name: values for name, values in bits(columns).items() if name in ("round", "train_loss")}


def test_a_segment_of_smooth_curves_is_small() -> None:
    rounds = list(range(SEGMENT_ROUNDS))
    columns: dict[str, list[Cell]] = {"round": list(rounds)}
    columns |= {f"m{index}": [1 / (1 + number + index) for number in rounds] for index in range(10)}
    columns |= {"diverged": [False] * SEGMENT_ROUNDS, "client_lr": [0.1] * SEGMENT_ROUNDS}
    (block,) = encode(columns)
    assert len(block) < 11 * 8 * SEGMENT_ROUNDS


@given(tables(), st.booleans())
def test_arrays_hold_the_numbers_of_the_columns(columns: dict[str, list[Cell]], some: bool) -> None:
    names = {"round", *list(columns)[::2]} if some else None
    for block in encode(columns):
        body = inflated(block, head(block))
        lists: dict[str, Any] = columns_of(body, names)
        found = arrays_of(body, names)
        assert set(found) == set(lists) == (set(columns) if names is None else names)
        for name, values in found.items():
            assert values.tobytes() == np.array(lists[name], dtype=np.float64).tobytes()


def test_an_integer_beyond_all_floats_counts_as_not_reported() -> None:
    (block,) = encode({"round": [0, 1, 2], "a": [10**400, True, None]})
    body = inflated(block, head(block))
    np.testing.assert_array_equal(arrays_of(body)["a"], [float("nan"), 1.0, float("nan")])


def test_rounds_that_no_head_can_hold_are_refused() -> None:
    assert head(encode({"round": [2**32 - 1]})[0]).last == 2**32 - 1
    for last in (2**32, 10**400):
        with pytest.raises(ValueError, match="rounds must be below 4294967296"):
            encode({"round": [0, last]})


def test_a_block_of_a_later_form_is_refused() -> None:
    (block,) = encode({"round": [0]})
    with pytest.raises(ValueError, match="must be of form 2, got 3"):
        head(b"\x03" + block[1:])


@given(st.lists(st.integers(0, 40), unique=True).map(sorted), st.lists(st.integers(0, 40), unique=True).map(sorted))
def test_newer_rounds_replace_older_ones(old: list[int], new: list[int]) -> None:
    before: dict[str, list[Cell]] = {"round": list(old), "loss": [float(number) for number in old]}
    after: dict[str, list[Cell]] = {"round": list(new), "loss": [-float(number) for number in new]}
    after["extra"] = [1] * len(new)
    merged = upsert(before, after)
    assert merged["round"] == sorted({*old, *new})
    losses = dict(zip(merged["round"], merged["loss"], strict=True))
    assert losses == {number: float(number) for number in old} | {number: -float(number) for number in new}


@given(st.binary(max_size=400), st.booleans())
def test_bytes_that_are_no_block_are_refused_in_one_line(noise: bytes, headed: bool) -> None:
    block = HEAD.pack(2, 0, 1, 2, 100, len(noise)) + noise if headed else noise
    with pytest.raises(ValueError, match="block") as refused:
        inflated(block, head(block))
    assert "\n" not in str(refused.value)
    assert not isinstance(refused.value, struct.error)
