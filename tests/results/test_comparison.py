"""Verdicts and refusals."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.errors import NotFound
from driftline.results.comparison import compare
from driftline.results.curves import TrialCurve
from driftline.results.document import frontier_document

from .samples import Chosen, curve

ENDS = st.lists(st.floats(0.3, 1.0), min_size=1, max_size=4)


def repeated(label: str, ends: list[float], *, gradients: int = 10, first: int = 1) -> list[TrialCurve]:
    return [
        curve(
            [0.0, end, end],
            label=label,
            phase="confirmation",
            number=n,
            seed=first + n,
            configuration=0,
            gradients=gradients,
        )
        for n, end in enumerate(ends)
    ]


def compared(*trials: list[TrialCurve], cost: str = "rounds") -> dict[str, object]:
    return compare(frontier_document("s", [one for part in trials for one in part], Chosen(cost=cost), 2), "a", "b")


def test_a_verdict() -> None:
    found = compared(repeated("a", [0.9, 0.95, 1.0]), repeated("b", [0.5, 0.55, 0.6]))
    assert found["verdict"] == "a"
    assert found["reasons"] == []
    assert str(found["why"]).startswith("a is better than b: its hypervolume is ")
    assert found["ranges"] == [{"from": 1.0, "to": 2.0, "better": "a"}]


def test_overlapping_bands_have_no_verdict() -> None:
    a = [
        curve([0.0, end, end], label="a", phase="confirmation", number=n, seed=n, configuration=0)
        for n, end in enumerate([0.8, 0.9, 1.0])
    ]
    b = [
        curve([0.0, end, end], label="b", phase="confirmation", number=n, seed=n, configuration=0)
        for n, end in enumerate([0.7, 0.85, 0.9])
    ]
    found = compared(a, b)
    assert found["verdict"] is None
    assert found["reasons"] == ["the bands of the hypervolume overlap: a 0.800 to 1.000 and b 0.700 to 0.900"]
    assert found["ranges"] == [{"from": 1.0, "to": 2.0, "better": None}]
    assert [row["difference"] for row in found["seeds"]] == pytest.approx([0.1, 0.05, 0.1])  # type: ignore[attr-defined]


def test_unequal_budgets_have_no_verdict() -> None:
    more = [*repeated("a", [0.9, 0.95, 1.0]), curve([0.0, 0.5, 0.9], label="a", number=7)]
    found = compared(more, repeated("b", [0.5, 0.55, 0.6]))
    assert found["verdict"] is None
    assert found["reasons"] == [
        "budgets differ: a had 4 trials, b had 3",
        "budgets differ: a had 8 rounds granted, b had 6",
    ]
    dear = compared(
        repeated("a", [0.9, 0.95, 1.0], gradients=11), repeated("b", [0.5, 0.55, 0.6]), cost="client_gradients"
    )
    assert dear["verdict"] is None
    assert dear["reasons"][0] == "budgets differ: a had 66 client_gradients granted, b had 60"  # type: ignore[index]
    near = compared(
        repeated("a", [0.9, 0.95, 1.0], gradients=101),
        repeated("b", [0.5, 0.55, 0.6], gradients=100),
        cost="client_gradients",
    )
    assert not [reason for reason in near["reasons"] if "budgets" in reason]  # type: ignore[attr-defined]


def test_a_diverged_trial_counts_with_the_rounds_it_was_granted() -> None:
    lost = curve([0.0, 99.0], label="b", number=7, state="DIVERGED")
    whole = curve([0.0, 0.1, 0.2], label="a", number=7)
    found = compared([*repeated("a", [0.9, 0.95, 1.0]), whole], [*repeated("b", [0.5, 0.55, 0.6]), lost])
    assert found["ledger"] == {"a": {"trials": 4, "cost": 8.0}, "b": {"trials": 4, "cost": 8.0}}
    assert found["verdict"] == "a"


def test_few_seeds_seconds_and_oneself_have_no_verdict() -> None:
    two = compared(repeated("a", [0.9, 1.0]), repeated("b", [0.5, 0.6]))
    assert "a verdict needs at least 3 seeds that both have run, there are 2" in two["reasons"]  # type: ignore[operator]
    apart = compared(repeated("a", [0.9, 0.95, 1.0]), repeated("b", [0.5, 0.55, 0.6], first=10))
    assert "a verdict needs at least 3 seeds that both have run, there are 0" in apart["reasons"]  # type: ignore[operator]
    assert apart["difference"] is None
    timed = [
        [
            curve(
                [0.0, end, end],
                label=label,
                phase="confirmation",
                number=n,
                seed=n,
                configuration=0,
                wall_seconds=[0, 1, 2],
            )
            for n in range(3)
        ]
        for label, end in (("a", 1.0), ("b", 0.6))
    ]
    assert "seconds depend on the machine" in str(compared(*timed, cost="seconds")["why"])
    result = frontier_document("s", repeated("a", [0.9, 0.95, 1.0]), Chosen(), 2)
    assert compare(result, "a", "a")["verdict"] is None


def test_unknown_labels_are_named() -> None:
    result = frontier_document("s", repeated("fedavg", [0.9]), Chosen(), 2)
    with pytest.raises(NotFound, match=r'no label "fedavgg" in this study \(have: fedavg\); did you mean "fedavg"'):
        compare(result, "fedavg", "fedavgg")


def test_the_winner_need_not_win_everywhere() -> None:
    a = [
        curve([0.0, 0.8, 0.8, 0.8], label="a", phase="confirmation", number=n, seed=n, configuration=0)
        for n in range(3)
    ]
    b = [
        curve([0.0, 0.2, 0.2, 1.0], label="b", phase="confirmation", number=n, seed=n, configuration=0)
        for n in range(3)
    ]
    found = compare(frontier_document("s", a + b, Chosen(), 10), "a", "b")
    assert found["verdict"] == "a"
    assert str(found["why"]).endswith("Not everywhere: from 3 to 10 rounds b is better.")


@settings(max_examples=60)
@given(ENDS, ENDS)
def test_comparison_is_antisymmetric(left: list[float], right: list[float]) -> None:
    result = frontier_document("s", repeated("a", left) + repeated("b", right), Chosen(), 2)
    there, back = compare(result, "a", "b"), compare(result, "b", "a")
    assert there["verdict"] == back["verdict"]
    assert [(r["from"], r["to"], r["better"]) for r in there["ranges"]] == [
        (r["from"], r["to"], r["better"]) for r in back["ranges"]
    ]
    assert [row["difference"] for row in there["seeds"]] == [-row["difference"] for row in back["seeds"]]
    assert there["difference"]["low"] == -back["difference"]["high"]
