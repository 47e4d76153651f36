"""Float, Int and Choice: exact values, properties, and what they refuse."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.parameters import ALSO_PROBABILITY, Choice, Float, Int, fixed, from_json, is_fixed
from trainers.errors import SpecError

UNITS = st.floats(0, 1, exclude_max=True)


@st.composite
def floats(draw):
    complement = draw(st.booleans())
    log = complement or draw(st.booleans())
    if complement:
        low, high = sorted(draw(st.tuples(st.floats(0, 0.9999), st.floats(0, 0.9999))))
    elif log:
        low, high = sorted(draw(st.tuples(st.floats(1e-12, 1e6), st.floats(1e-12, 1e6))))
    else:
        low, high = sorted(draw(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))))
    high = max(high, low + 1e-6 * max(abs(low), 1.0 if log else 1e-3))
    also = draw(st.sampled_from([(), (-1e7,), (2e7, 3e7)]))
    return Float(low, high, log=log, also=also, complement=complement, points=draw(st.integers(1, 9)))


@st.composite
def ints(draw):
    log = draw(st.booleans())
    low, size = draw(st.integers(1 if log else -50, 50)), draw(st.integers(1, 1000))
    return Int(low, low + size, log=log, also=draw(st.sampled_from([(), (-99,)])), points=draw(st.integers(1, 9)))


CHOICES = st.lists(st.one_of(st.integers(-5, 5), st.sampled_from(["once", None, True, [1.0, 0.5]])), min_size=1).map(
    lambda options: Choice(tuple(option for index, option in enumerate(options) if option not in options[:index]))
)
PARAMETERS = st.one_of(floats(), ints(), CHOICES)


@given(PARAMETERS, UNITS)
def test_every_quantile_lies_inside(parameter, u):
    assert parameter.contains(parameter.from_unit(u))


@given(PARAMETERS)
def test_grid_and_ends_lie_inside_and_hold_nothing_twice(parameter):
    for values in (parameter.grid(), parameter.grid(7), parameter.ends()):
        assert all(parameter.contains(value) for value in values)
        assert len(Choice(tuple(values)).options) == len(values)


@given(PARAMETERS)
def test_json_form_round_trips(parameter):
    assert from_json(parameter.to_json()) == parameter


@given(st.one_of(floats(), ints()), UNITS, UNITS)
def test_quantiles_of_the_range_rise(parameter, u, v):
    u, v = (ALSO_PROBABILITY + (1 - ALSO_PROBABILITY) * x for x in sorted((u, v)))
    assert parameter.from_unit(u) <= parameter.from_unit(v)


def test_log_quantiles_are_exact():
    parameter = Float(1e-3, 10, log=True)
    assert [parameter.from_unit(u) for u in (0, 0.25, 0.5, 0.75)] == pytest.approx([1e-3, 1e-2, 1e-1, 1], rel=1e-12)


def test_complement_quantiles_are_log_uniform_in_one_minus_x():
    momentum = Float(0, 0.99, log=True, complement=True)
    assert [momentum.from_unit(u) for u in (0, 0.5, 0.75)] == pytest.approx([0, 0.9, 1 - 10**-1.5], rel=1e-12)
    assert momentum.grid(3) == (0.0, 0.9, 0.99)


def test_extra_points_share_one_eighth():
    parameter = Float(1, 2, also=(0, 5))
    assert [parameter.from_unit(u) for u in (0, 0.0624, 0.0625, 0.1249, 0.125)] == [0, 0, 5, 5, 1]


def test_sample_frequencies():
    generator = np.random.default_rng(0)
    drawn = [Float(1e-3, 10, log=True, also=(0,)).sample(generator) for _ in range(4000)]
    assert sum(value == 0 for value in drawn) / 4000 == pytest.approx(1 / 8, abs=0.02)
    assert sum(0 < value < 0.1 for value in drawn) / 4000 == pytest.approx(7 / 16, abs=0.03)


def test_log_int_gives_small_numbers_their_share():
    drawn = [Int(1, 64, log=True).from_unit((index + 0.5) / 1000) for index in range(1000)]
    assert (drawn[0], drawn[-1]) == (1, 64)
    assert sum(value <= 8 for value in drawn) / 1000 == pytest.approx(
        math.log(8.5 / 0.5) / math.log(64.5 / 0.5), abs=0.002
    )


def test_grids_are_exact():
    assert Float(1e-3, 10, log=True, points=9).grid() == pytest.approx([10 ** (e / 2) for e in range(-6, 3)], rel=1e-11)
    assert Float(0.1, 0.9).grid(1) == (0.5,)
    assert Int(5, 50).grid(4) == (5, 20, 35, 50)
    assert Int(1, 3).grid(9) == (1, 2, 3)


@pytest.mark.parametrize(
    ("parameter", "inside", "outside"),
    [
        (Float(1e-3, 10, log=True, also=(0,)), [1e-3, 10, 0, 1], [-1, 11, 1e-4, True, "1", None, math.nan]),
        (Int(5, 50), [5, 50, 7.0], [4, 51, 7.5, True, "7", math.inf]),
        (Choice((1, "once", None, [1, 2])), [1, 1.0, "once", None, [1.0, 2.0]], [True, 2, "twice", [1], [2, 1]]),
        (Choice((True, False)), [True, False], [1, 0]),
    ],
)
def test_contains(parameter, inside, outside):
    assert all(parameter.contains(value) for value in inside)
    assert not any(parameter.contains(value) for value in outside)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"float": [1, 1]}, "low must be below high, got float=[1.0, 1.0]"),
        ({"float": [0.1, 0.10000000000000002], "log": True}, "low and high must differ by more than rounding"),
        ({"float": [0.1, 0.10000000000000002]}, "low and high must differ by more than rounding"),
        ({"float": [0, 1e-16], "log": True, "complement": True}, "low and high must differ by more than rounding"),
        ({"int": [2**62, 2**62 + 1]}, "low and high must differ by more than rounding"),
        ({"float": [1e-320, 1], "log": True}, "low and high must be at most 300 powers of ten apart"),
        ({"float": [-1.7e308, 1.7e308]}, "high - low must be finite"),
        ({"float": [0, 1], "log": True}, "a log scale needs low above 0"),
        ({"int": [0, 9], "log": True}, "a log scale needs low at least 1"),
        ({"float": [0, 1], "also": [0.5]}, "also must lie outside [0, 1]"),
        ({"float": [1, 2], "also": [0, 0]}, "also must hold no value twice"),
        ({"float": [0, 1], "log": True, "complement": True}, "complement needs 0 <= low and high < 1"),
        ({"float": [0, 0.5], "complement": True}, "add log: true"),
        ({"float": [0, 1], "points": 0}, "points must be at least 1, got points=0"),
        ({"float": [0, "x"]}, "high must be a number"),
        ({"float": [0, math.inf]}, "high must be finite"),
        ({"float": [1, 2, 3]}, "float must be a list of low and high"),
        ({"float": 3}, "must be a list, got 3"),
        ({"int": [1, 2.5]}, "high must be a whole number"),
        ({"int": [1, 2], "complement": True}, 'unknown key "complement"'),
        ({"float": [1, 2], "log": "yes"}, 'must be true or false, got log="yes"'),
        ({"float": [1, 2], "lgo": True}, "did you mean log?"),
        ({"choise": [1]}, "did you mean choice?"),
        ({"float": [1, 2], "int": [1, 2]}, "must be a value, {float: [low, high]}"),
        ({}, "must be a value, {float: [low, high]}"),
        ({"choice": []}, "choice must hold at least one value"),
        ({"choice": [1, 1.0]}, "choice must hold no value twice"),
        ([1, 2], "write {choice: [1, 2]}"),
    ],
)
def test_bad_forms_say_what_must_hold(form, message):
    with pytest.raises(SpecError) as error:
        from_json(form, "client_lr")
    assert message in str(error.value)
    assert error.value.path.startswith("client_lr")


def test_text_numbers_and_scalars():
    assert from_json({"float": ["1e-3", "1E1"], "also": ["0"]}) == Float(0.001, 10, also=(0,))
    assert from_json("1e-3") == fixed(0.001)
    assert from_json("10") == fixed(10)
    assert type(from_json("10").options[0]) is int
    assert from_json("reference") == fixed("reference")
    assert from_json(None).to_json() is None
    assert is_fixed(from_json(True))
    assert Choice(([1, 0],)).to_json() == {"choice": [[1, 0]]}
