"""One sentence for one cost."""

from dataclasses import replace

import numpy as np
import pytest

from driftline.results.curves import TrialCurve
from driftline.results.document import frontier_document
from driftline.results.headline import ranges_text
from driftline.results.show.advice import Wins, advice, offers, wins
from driftline.results.show.axes import band_text
from driftline.results.show.page import frontier_html
from driftline.results.show.recommendation_rows import recommendation_rows
from driftline.results.show.text_table import table

from .samples import Chosen, confirmed
from .test_show import data


def searched(label: str, ends: list[list[float]]) -> list[TrialCurve]:
    """A search for each row of ends, with a configuration that reaches them on its seeds; the first half of the way in
    round 1."""
    found = []
    for search, row in enumerate(ends):
        trials = confirmed([[0.0, end / 2, end, end] for end in (row[0], *row)], label=label, configuration=search)
        found += [replace(trial, search=search, seed=trial.seed + 10 * search) for trial in trials]
    return found


def test_one_search_is_counted_in_seeds_and_decides_nothing() -> None:
    trials = [*searched("a", [[0.8, 0.8, 0.6]]), *searched("b", [[0.7, 0.6, 0.7]])]
    result = frontier_document("s", trials, Chosen(), 3)
    assert wins(result, "a", "b", [0.5, 1.0, 3.0]) == [Wins(2, 3, 1, 1)] * 3
    assert wins(result, "b", "a", [2.0]) == [Wins(1, 3, 0, 1)]
    assert advice(result, 2) == (
        "For up to 2 rounds: a, configuration 0, stopped at round 2; expect test_accuracy 0.7333 (0.6-0.8). Better "
        "than b in 2 of 3 seeds of one search. One search does not decide which method is better (needs 6)."
    )
    assert advice(result, 2, ["b"]).startswith("For up to 2 rounds: b, configuration 0, stopped at round 2; expect ")
    assert advice(result, 0.5) == "Nothing to recommend for up to 0.5 rounds."
    assert [label for label, _ in offers(result, 1)] == ["a", "b"]


def test_several_searches_are_counted_as_well_and_six_decide() -> None:
    a, b = [[0.8, 0.7], [0.5, 0.6], [0.9, 0.5]] * 2, [[0.7, 0.6], [0.6, 0.8], [0.6, 0.6]] * 2
    result = frontier_document("s", [*searched("a", a), *searched("b", b)], Chosen(), 3)
    assert wins(result, "a", "b", [3.0]) == [Wins(6, 12, 4, 6)]
    assert advice(result, 3).endswith(" Better than b in 6 of 12 seeds and 4 of 6 searches.")
    three = frontier_document("s", [*searched("a", a[:3]), *searched("b", b[:3])], Chosen(), 3)
    assert advice(three, 3).endswith(" 3 searches do not decide which method is better (needs 6).")
    assert "mean of a run's 2 seeds, corrected" in band_text(result)
    assert "a: recommendations, confirmation, 6 searches, 2 seeds each\n" in table(result)


def test_seeds_and_searches_in_which_both_found_the_same_are_counted_as_equal() -> None:
    a, b = [[0.8, 0.7], [0.6, 0.6], [0.5, 0.6]] * 2, [[0.8, 0.6], [0.6, 0.6], [0.5, 0.6]] * 2
    result = frontier_document("s", [*searched("a", a), *searched("b", b)], Chosen(), 3)
    assert wins(result, "a", "b", [3.0]) == [Wins(2, 12, 2, 6, 10, 4)]
    assert advice(result, 3).endswith(" Better than b in 2 of 12 seeds and 2 of 6 searches, equal in 10 and 4.")
    one = frontier_document("s", [*searched("a", a[:1]), *searched("b", b[:1])], Chosen(), 3)
    assert "Better than b in 1 of 2 seeds of one search, equal in 1. One search" in advice(one, 3)


def test_the_page_counts_the_same() -> None:
    noise = np.random.default_rng(4)
    trials = []
    for label in ("a", "b"):
        for number in range(4):
            values = [np.append(0.1, np.sort(noise.uniform(0.1, 0.8, 20))) for _ in range(4)]
            made = confirmed(values, label=label, configuration=number)
            trials += [replace(trial, search=number // 2, seed=trial.seed + 10 * (number // 2)) for trial in made]
    result = frontier_document("s", trials, Chosen(), 20)
    counted = data(frontier_html(result, trials))["readings"][0]["wins"]["0,1"]
    assert counted["of"] == [6, 2]
    for cost in range(1, 21):
        row = [row for row in counted["rows"] if row[0] <= cost][-1]
        (one,), (other,) = wins(result, "a", "b", [cost]), wins(result, "b", "a", [cost])
        assert row[1:] == [one.seeds, other.seeds, one.searches, other.searches]
    assert len({tuple(row[1:]) for row in counted["rows"]}) > 1


@pytest.mark.parametrize(
    ("cost", "costs", "ends"),
    [
        ("bytes", [392_400.0, 500_000.0, 1_234_567.0], ["499.9k", "1.234M"]),
        ("bytes", [392_400.0, 392_412.0, 392_414.0], ["392.4k", "392.413k"]),
        ("time", [0.12918, 0.12923, 0.5], ["0.1292", "0.4999"]),
        ("rounds", [3.0, 3.5, 20.0], ["3", "19"]),
    ],
)
def test_the_end_of_a_row_is_short_and_before_the_next(cost: str, costs: list[float], ends: list[str]) -> None:
    last = {"bytes": costs[-1], "time": 12.0, "rounds": 200.0}[cost]
    rows = [
        {"cost": at, "configuration": number, "round": 1, "quality": 0.5, "low": 0.5, "high": 0.5}
        for number, at in enumerate(costs)
    ]
    result = {
        "definitions": {"parameters": {"cost": cost}},
        "scale": {"last": max(last, costs[-1])},
        "methods": {"a": {"recommendations": rows, "configurations": []}},
    }
    found = recommendation_rows(result, "a")
    for row, start, following in zip(found, costs, [*costs[1:], np.inf], strict=True):
        assert start <= row.end < following
    assert [row.end_text for row in found][:2] == ends[:2]


def test_ranges_are_whole_where_costs_are_counted() -> None:
    rows = [
        {"from": 1.0, "to": 2.13, "better": None},
        {"from": 2.13, "to": 2.9, "better": "a"},
        {"from": 2.9, "to": 200.0, "better": "b"},
    ]
    assert ranges_text(rows, "rounds") == [("1 to 2", None), ("3 to 200", "b")]
    assert ranges_text(rows, "time") == [("1 to 2.13", None), ("2.13 to 2.9", "a"), ("2.9 to 200", "b")]
