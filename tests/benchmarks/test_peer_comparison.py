"""The parts of the comparison with other projects that need none of them."""

import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks.peer_processes import SCRIPTS, PeerError, asked
from benchmarks.peer_products import Cost
from benchmarks.peer_rounds import apart, interval
from benchmarks.processor_time import descendants, seconds, tree_seconds

ADDER = f"""
import os, sys
sys.path.insert(0, {str(SCRIPTS)!r})
from answering import answer

class Adder:
    def __init__(self, start):
        print("a library talks")
        self.sum = start

    def add(self, number):
        self.sum += number
        return self.sum

    def die(self):
        print("last words", flush=True)
        os._exit(3)

answer(Adder)
"""


@pytest.mark.parametrize(("count", "low", "high"), [(2, 0, 1), (5, 0, 4), (6, 0, 5), (8, 0, 7), (9, 1, 7), (12, 2, 9)])
def test_interval_holds_the_median_with_95_percent(count: int, low: int, high: int) -> None:
    # The ranks of any table of the sign test's interval.
    assert interval(list(range(count))[::-1]) == ((count - 1) / 2, low, high)


def test_models_apart_relative_to_the_way_of_the_first() -> None:
    first = [np.zeros((2, 2), np.float32), np.zeros(1, np.float32)]
    one = [np.ones((2, 2), np.float32), np.zeros(1, np.float32)]
    other = [np.ones((2, 2), np.float32), np.ones(1, np.float32)]
    assert apart(first, one, one) == 0
    assert apart(first, one, other) == pytest.approx(1 / 2)


def test_cost_of_studies_of_other_sizes() -> None:
    cost = Cost.between((8, 20.0), (24, 36.0))
    assert cost == Cost(start=12.0, trial=1.0)
    assert cost.of(128) == 140


def test_a_peer_answers_although_its_libraries_print(tmp_path: Path) -> None:
    script = tmp_path / "adder.py"
    script.write_text(ADDER)
    with asked(Path(sys.executable), script) as (ask, process):
        assert ask("begin", 40) is None
        assert ask("add", 1) == 41
        assert ask("add", 1) == 42
        assert process in descendants(os.getpid())
        with pytest.raises(PeerError, match=r"adder\.py ended:\n(?s:.*)last words"):
            ask("die")


def test_processor_time_is_that_of_the_process() -> None:
    before = time.process_time()
    here = seconds(os.getpid())
    assert before <= here <= time.process_time()
    assert tree_seconds(os.getpid()) >= here
