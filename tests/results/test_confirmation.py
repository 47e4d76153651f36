"""Which configurations are confirmed: the greedy choice, against its definition written out."""

import numpy as np
from hypothesis import given

from driftline.results.confirmation import MOST_COSTS, decision_costs, greedy, to_confirm
from driftline.results.runs import Runs
from driftline.results.scale import Axis

from .made_runs import runs, several
from .samples import curve

AXIS = Axis(rising=True)


def area(chosen: list[Runs], last: float) -> float:
    """What some configurations dominate together up to the last cost, cost by cost."""
    costs = np.arange(1, last + 1)
    best = [max([0.0, *(q for one in chosen for c, q in zip(one.cost[0], one.quality[0], strict=True) if c <= cost)])
            for cost in costs]  # fmt: skip
    return float(np.dot(best[:-1], np.diff(np.log10(costs))))


@given(several(seeds=1))
def test_each_choice_adds_the_most_area(found: list[Runs]) -> None:
    last = max(one.cost[0, -1] for one in found) + 1
    held = [
        runs(one.configuration, [[*one.quality[0], one.quality[0, -1]]], [*one.cost[0], last]) for one in found
    ]  # all configurations end at the same cost
    chosen = greedy(held, len(held), AXIS)
    assert sorted(chosen) == list(range(len(held)))
    front: list[Runs] = []
    for place, number in enumerate(chosen):
        left = [one for one in held if one.configuration not in chosen[:place]]
        gains = [area([*front, one], last) - area(front, last) for one in left]
        if max(gains) < 1e-12 and area(front, last) > 0:
            front = []
            gains = [area([one], last) for one in left]
        gain = gains[[one.configuration for one in left].index(number)]
        assert gain > max(gains) - 1e-9
        front.append(held[number])


def test_when_nothing_is_gained_it_begins_again_on_the_rest() -> None:
    best, second, third = (runs(number, [[value] * 3]) for number, value in enumerate((3.0, 2.0, 1.0)))
    fast = runs(3, [[4.0, 0.0, 0.0]])
    assert greedy([best, second, third], 3, AXIS) == [0, 1, 2]
    assert greedy([third, second, best], 2, AXIS) == [0, 1]
    assert greedy([best, second, third, fast], 3, AXIS) == [3, 0, 1]


def test_ties_go_to_the_lower_number() -> None:
    assert greedy([runs(number, [[1.0, 2.0]]) for number in (4, 5, 6)], 2, AXIS) == [4, 5]


def test_every_label_confirms_the_same_number() -> None:
    good = curve([0.1, 0.5, 0.9], number=2)
    lost, failed = curve([0.1], number=0, state="DIVERGED"), curve([0.1], number=1, state="FAILED")
    frozen = curve([0.1, 0.1, 0.1], number=3)
    assert to_confirm([lost, failed, good, frozen], "test_accuracy", "rounds", 4) == [2, 3, 0, 1]
    assert to_confirm([failed, lost], "test_accuracy", "rounds", 1) == [0]
    assert to_confirm([], "test_accuracy", "rounds", 3) == []


def test_with_one_cost_the_quality_decides() -> None:
    found = [curve([2.3, loss], metric="test_loss", rounds=[0, 100], number=n) for n, loss in enumerate((2, 0.1, 1, 3))]
    assert to_confirm(found, "test_loss", "rounds", 4) == [1, 2, 0, 3]


def test_trials_without_a_finite_evaluation_are_confirmed_after_all_others() -> None:
    silent = [curve([0.1, np.nan], number=number) for number in (0, 1)]
    lost = curve([0.1], number=2, state="DIVERGED")
    assert to_confirm([*silent, lost, curve([0.1, 0.5], number=3)], "test_accuracy", "rounds", 4) == [3, 0, 1, 2]


def test_losses_are_judged_on_the_logarithm() -> None:
    """Linearly the first gains most; on the logarithm the slow one that ends at 1e-4 does."""
    fast = curve([1.0, 0.1, 0.1, 0.1, 0.1], metric="test_loss", number=0)
    slow = curve([1.0, 0.5, 1e-4, 1e-4, 1e-4], metric="test_loss", number=1)
    assert to_confirm([fast, slow], "test_loss", "rounds", 1) == [1]


def test_very_many_costs_are_thinned_evenly_on_the_logarithm() -> None:
    few = decision_costs([np.arange(1.0, 50.0), np.arange(1.0, 80.0)])
    assert few.tolist() == np.arange(1.0, 80.0).tolist()
    many = decision_costs([np.linspace(1.0, 1000.0, 50_000), np.linspace(2.0, 900.0, 50_000)])
    assert len(many) <= MOST_COSTS
    assert (many[0], many[-1]) == (1.0, 1000.0)
    late = many[many > 10]
    assert np.diff(np.log10(late)).max() < 2.1 * 3 / MOST_COSTS
