"""The recorded configuration nearest to a proposal."""

import math
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.parameters import Choice, Float, Int, Space
from service.replay.nearest import NearestRows
from service.samplers.random import Sampler

SPACE: Space = {
    "client_lr": Float(1e-3, 10.0, log=True, also=(0.0,)),
    "decay": Float(0.9, 0.999, log=True, complement=True),
    "window": Int(5, 50),
    "local_steps": Choice((1, 10, 2)),
    "rule": Choice(("a", "b", "c")),
}


def drawn(seed: int, count: int) -> list[dict[str, Any]]:
    sampler = Sampler(SPACE, (), seed)
    return [sampler.ask(number) for number in range(count)]


@given(st.integers(0, 1000), st.integers(1, 30), st.data())
def test_a_recorded_configuration_is_nearest_to_itself(seed: int, count: int, data: st.DataObject) -> None:
    rows = drawn(seed, count)
    index = data.draw(st.integers(0, count - 1))
    assert rows[NearestRows(SPACE, rows).nearest(rows[index], range(count))] == rows[index]


@given(st.integers(0, 1000), st.sets(st.integers(0, 19), min_size=1))
def test_only_untried_rows_are_chosen(seed: int, untried: set[int]) -> None:
    rows = drawn(seed, 21)
    assert NearestRows(SPACE, rows).nearest(rows[20], sorted(untried)) in untried


def test_ranges_are_compared_on_their_own_scale() -> None:
    space: Space = {"client_lr": Float(1e-3, 10.0, log=True, also=(0.0,))}
    rows = [{"client_lr": rate} for rate in (0.0, 0.01, 1.0)]
    rates = {0.0: 0, 0.001: 1, 0.09: 1, 0.11: 2, 10.0: 2}
    found = {rate: NearestRows(space, rows).nearest({"client_lr": rate}, [0, 1, 2]) for rate in rates}
    assert found == rates
    far = NearestRows(space, rows).nearest({"client_lr": 0.001}, [0, 2])
    assert far == 2, "an extra point is farther than any value of the range"


def test_complements_choices_and_ranks() -> None:
    decay: Space = {"decay": Float(0.9, 0.999, log=True, complement=True)}
    rows = NearestRows(decay, [{"decay": 0.9}, {"decay": 0.999}])
    middle = 1 - math.sqrt(0.1 * 0.001)
    assert [rows.nearest({"decay": middle + shift}, [0, 1]) for shift in (-1e-4, 1e-4)] == [0, 1]
    steps: Space = {"local_steps": Choice((1, 10, 2, 50)), "rule": Choice(("a", "b"))}
    ranked = NearestRows(steps, [{"local_steps": 1, "rule": "a"}, {"local_steps": 50, "rule": "a"}])
    assert ranked.nearest({"local_steps": 2, "rule": "a"}, [0, 1]) == 0
    assert ranked.nearest({"local_steps": 10, "rule": "b"}, [0, 1]) == 1


def test_of_equally_near_rows_the_first_is_chosen() -> None:
    rows = NearestRows({"window": Int(0, 10)}, [{"window": 4}, {"window": 6}])
    assert rows.nearest({"window": 5}, np.array([0, 1])) == 0
