"""Values close to a given one (`search_spaces.neighbours`), and places within ranges."""

from typing import Any

import numpy as np
import pytest

from search_spaces.neighbours import near
from search_spaces.parameters import Choice, Float, Int, Parameter

PARAMETERS: list[tuple[Parameter, Any]] = [
    (Float(-1.0, 3.0), 0.5),
    (Float(1e-3, 10.0, log=True, also=(0.0,)), 0.1),
    (Float(1e-3, 10.0, log=True, also=(0.0,)), 0.0),
    (Float(0.0, 0.99, log=True, complement=True), 0.9),
    (Int(1, 64, log=True), 8),
    (Int(5, 50), 20),
    (Choice((1, 4, 2, 8)), 4),
    (Choice(("a", True, None)), True),
    (Choice((3,)), 3),
]
NAMES = ["float", "log", "extra", "complement", "int-log", "int", "numbers", "categories", "fixed"]


@pytest.mark.parametrize(("parameter", "value"), PARAMETERS, ids=NAMES)
def test_neighbours_lie_in_the_space_and_differ_unless_it_is_fixed(parameter: Parameter, value: Any) -> None:
    drawn = [near(parameter, value, np.random.default_rng(seed)) for seed in range(200)]
    assert all(parameter.contains(each) for each in drawn)
    assert any(each != value for each in drawn) == (len(parameter.ends()) > 1)


def test_neighbours_in_a_range_are_close_on_its_scale() -> None:
    parameter = Float(1e-3, 10.0, log=True)
    moves = [np.log10(near(parameter, 0.1, np.random.default_rng(seed)) / 0.1) for seed in range(500)]
    assert np.std(moves) == pytest.approx(0.4, rel=0.15)


def test_neighbours_of_a_number_to_choose_are_the_next_ones() -> None:
    drawn = {near(Choice((1, 4, 2, 8)), 4, np.random.default_rng(seed)) for seed in range(100)}
    assert drawn == {2, 4, 8}


@pytest.mark.parametrize("parameter", [each for each, _ in PARAMETERS if not isinstance(each, Choice)][:5])
@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_place_is_the_inverse_of_at(parameter: Float | Int, share: float) -> None:
    value = parameter.at(share)
    assert parameter.at(parameter.place(value)) == pytest.approx(value)
    if isinstance(parameter, Float):
        assert parameter.place(value) == pytest.approx(share)
