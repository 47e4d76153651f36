"""Statements of the papers on outcomes that agree, disagree and decide nothing."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from driftline.results.curves import TrialCurve
from driftline.results.document import frontier_document
from driftline.results.statements import Judgement, judged, overall
from driftline.results.study_result import StudyResult
from driftline.study.papers import Statement, preset

from .samples import Chosen, confirmed

RECORDED = json.loads((Path(__file__).parent / "recorded_statements.json").read_text(encoding="utf-8"))
HIGH = [0.90, 0.91, 0.89, 0.92, 0.90, 0.88]
LOW = [0.80, 0.82, 0.79, 0.80, 0.81, 0.78]
NEAR = [0.90, 0.905, 0.895, 0.92, 0.90, 0.885]
MIXED = [0.95, 0.7, 0.97, 0.75, 0.99, 0.8]


def result(curves: Sequence[TrialCurve], *, last: int = 3, **reading: Any) -> StudyResult:
    chosen = Chosen(**reading)
    return StudyResult(frontier_document("s", curves, chosen, last), tuple(curves), chosen)


def said(of: StudyResult, **statement: Any) -> Judgement:
    return judged([Statement(**statement)], lambda quality, cost: of)[0]


def ending(**ends: Sequence[float]) -> StudyResult:
    """Labels with one configuration, whose seeds end at these accuracies; first they are at the same one."""
    rows = {label: [[0.1, 0.3, end, end] for end in (1.0, *values)] for label, values in ends.items()}
    return result([one for label, values in rows.items() for one in confirmed(values, label=label)])


@pytest.mark.parametrize(
    ("a", "b", "outcome"),
    [(HIGH, LOW, "agrees"), (LOW, HIGH, "disagrees"), (HIGH, MIXED, "undecided"), (HIGH[:5], LOW[:5], "undecided")],
)
@pytest.mark.parametrize("at", [None, 1])
def test_ahead(a: list[float], b: list[float], outcome: str, at: float | None) -> None:
    found = said(ending(a=a, b=b), ahead=["a", "b"], at=at)
    assert found.outcome == outcome
    assert found.why.endswith("over 6 seeds" if len(a) == 6 else "it needs at least 6 seeds or searches, and has 5")


def test_an_interval_above_0_that_does_not_decide_says_why() -> None:
    """Five of six differences are equal: by the t interval evidence, by sign flips at most 4 of 64."""
    nearly = [low + by for low, by in zip(LOW, [0.1, 0.1, 0.1, 0.1, 0.1, -0.005], strict=True)]
    found = said(ending(a=nearly, b=LOW), ahead=["a", "b"])
    assert found.outcome == "undecided"
    assert found.why.endswith("over 6 seeds; a test by sign flips finds no difference")
    assert float(found.why.split("(")[1].split()[0]) > 0


def test_at_a_cost_where_nothing_differs_nothing_is_decided() -> None:
    assert said(ending(a=HIGH, b=LOW), ahead=["a", "b"], at=0.34).outcome == "undecided"


@pytest.mark.parametrize(
    ("a", "b", "outcome"), [(HIGH, NEAR, "agrees"), (HIGH, LOW, "disagrees"), (HIGH, MIXED, "undecided")]
)
@pytest.mark.parametrize("at", [None, 1])
def test_level(a: list[float], b: list[float], outcome: str, at: float | None) -> None:
    assert said(ending(a=a, b=b), level=["a", "b"], within=0.04, at=at).outcome == outcome
    assert said(ending(a=b, b=a), level=["a", "b"], within=0.04, at=at).outcome == outcome


@pytest.mark.parametrize(
    ("a", "b", "outcome"), [(NEAR, HIGH, "agrees"), (LOW, HIGH, "disagrees"), (MIXED, HIGH, "undecided")]
)
def test_at_most_so_much_behind(a: list[float], b: list[float], outcome: str) -> None:
    assert said(ending(a=a, b=b), ahead=["a", "b"], within=0.04, at=1).outcome == outcome


@pytest.mark.parametrize("at", [None, 1])
@pytest.mark.parametrize(
    ("ends", "outcome"),
    [
        ((HIGH, LOW, HIGH, NEAR), "agrees"),
        ((HIGH, NEAR, HIGH, LOW), "disagrees"),
        ((HIGH, MIXED, HIGH, LOW), "undecided"),
        ((HIGH[:5], LOW[:5], HIGH[:5], NEAR[:5]), "undecided"),
    ],
    ids=["more", "less", "noisy", "few"],
)
def test_one_difference_is_larger_than_another(ends: tuple[list[float], ...], outcome: str, at: float | None) -> None:
    of = ending(**dict(zip("abcd", ends, strict=True)))
    assert said(of, gains_more=["a", "b"], than=["c", "d"], at=at).outcome == outcome


@pytest.mark.parametrize("at", [None, 1])
def test_the_difference_of_differences_is_paired_by_seed(at: float | None) -> None:
    """What differs from seed to seed in all labels alike cancels, and the numbers are those of the four labels."""
    shift = np.array([0.0, 0.2, -0.3, 0.1, -0.1, 0.25])
    low, high = 0.5 + shift, 0.6 + shift
    noise = np.array([0.0, 0.001, -0.001, 0.002, -0.002, 0.0])
    of = ending(a=(high + noise).tolist(), b=low.tolist(), c=high.tolist(), d=(high - 0.02).tolist())
    found = said(of, gains_more=["a", "b"], than=["c", "d"], at=at)
    assert found.outcome == "agrees"
    parts = [float(said(of, ahead=pair, at=at).why.split()[1]) for pair in (["a", "b"], ["c", "d"])]
    assert float(found.why.split()[1]) == pytest.approx(parts[0] - parts[1], abs=2e-3)
    assert said(of, gains_more=["c", "d"], than=["a", "b"], at=at).outcome == "disagrees"
    assert said(of, gains_more=["a", "untrained"], than=["b", "untrained"], at=at).outcome == "agrees"


def test_the_untrained_model_is_a_label() -> None:
    still = [[0.1, 0.1, 0.1 + end / 1000, 0.1] for end in (0.0, *HIGH)]
    of = result([*confirmed([[0.1, 0.3, end, end] for end in (1.0, *HIGH)], label="a"), *confirmed(still, label="b")])
    assert said(of, level=["b", "untrained"], within=0.05, at=1).outcome == "agrees"
    assert said(of, level=["a", "untrained"], within=0.05, at=1).outcome == "disagrees"
    assert said(of, ahead=["a", "untrained"]).outcome == "agrees"
    assert said(of, ahead=["untrained", "a"]).outcome == "disagrees"


@pytest.mark.parametrize(
    ("factor", "outcome"), [(0.5, "agrees"), (2.0, "disagrees"), (1.0, "undecided")], ids=["half", "twice", "equal"]
)
@pytest.mark.parametrize("spread", [False, True])
def test_smaller(factor: float, outcome: str, spread: bool) -> None:
    curves = []
    for label, scale in (("a", factor), ("b", 1.0)):
        for index, one in enumerate(confirmed([[0.1, 0.3, end, end] for end in (1.0, *HIGH)], label=label)):
            jitter = 1.01 if (index % 2 == 0) == (label == "a") else 1.0
            norms = [float("nan"), *(norm * scale * jitter for norm in (3.0, 4.0, 5.0))]
            curves.append(replace(one, columns={**one.columns, "update_norm": np.array(norms)}))
    found = said(result(curves), smaller=["a", "b"], metric="update_norm", spread=spread)
    assert found.outcome == outcome
    assert found.why.startswith(f"{factor:.3g} times (")
    few = [one for one in curves if one.seed < 6]
    assert said(result(few), smaller=["a", "b"], metric="update_norm").outcome == "undecided"


@pytest.mark.parametrize(
    ("scale", "count", "outcome"),
    [(0.5, 6, "agrees"), (2.0, 6, "disagrees"), (1.0, 6, "undecided"), (0.5, 5, "undecided")],
    ids=["half", "twice", "equal", "few"],
)
def test_smaller_beside_another_panel_is_not_paired_by_seed(scale: float, count: int, outcome: str) -> None:
    """Of the six seeds of each panel, which have other numbers."""

    def of(norms: Sequence[float], first: int) -> StudyResult:
        rows = confirmed([[0.1, 0.3, end] for end in (1.0, *HIGH[: len(norms)])], label="mixed")
        columns = [
            {**one.columns, "drift": np.array([np.nan, norm, norm])}
            for one, norm in zip(rows, (1.0, *norms), strict=True)
        ]
        moved = [replace(one, seed=one.seed + first, columns=own) for one, own in zip(rows, columns, strict=True)]
        return result(moved, last=2)

    there = [1.0, 1.1, 0.9, 1.2, 0.8, 1.0]
    here, other = of([scale * norm for norm in (1.2, 0.8, 1.0, 1.0, 1.1, 0.9)[:count]], 0), of(there, 100)
    statement = Statement(smaller=["mixed", "mixed"], metric="drift", beside="smile")
    found = judged([statement], lambda *_: here, {"smile": other}.get)[0]
    assert found.outcome == outcome
    assert found.statement == "drift of mixed below that of mixed in smile"
    if count == 6:
        test = stats.ttest_ind(np.log([scale * norm for norm in there]), np.log(there), equal_var=False)
        low, high = test.confidence_interval()
        assert found.why == f"{scale:.3g} times ({np.exp(low):.3g} to {np.exp(high):.3g}) over 6 seeds each"
    else:
        assert found.why == "it needs at least 6 seeds on which each did not diverge, and has 5"
    assert judged([statement], lambda *_: here)[0].why == "smile was not run"


@pytest.mark.parametrize(
    ("best", "outcome"),
    [
        ([0.01, 0.03, 0.1], "agrees"),
        ([0.1, 0.03, 0.01], "disagrees"),
        ([0.03, 0.1, 0.03], "undecided"),
    ],
)
def test_the_best_value_grows(best: list[float], outcome: str) -> None:
    curves = []
    for label, rate in zip("abc", best, strict=True):
        for configuration in range(12):
            good = configuration < 6
            values = {"server_lr": rate if good else 7.0}
            rows = [[0.1, 0.3, (0.9 if good else 0.5) + 0.01 * seed] for seed in range(3)]
            trials = confirmed(rows, label=label, configuration=configuration, hyperparameters=values)
            curves += [replace(trial, search=configuration % 6) for trial in trials]
    found = said(result(curves), grows="server_lr", over=["a", "b", "c"])
    assert found.outcome == outcome
    assert found.why.endswith(f"a {best[0]:g}, b {best[1]:g}, c {best[2]:g}")
    few = [one for one in curves if one.search < 5]
    assert said(result(few), grows="server_lr", over=["a", "b", "c"]).outcome == "undecided"


def test_the_best_values_of_a_grid_must_grow_in_enough_searches() -> None:
    """In 5 of 6 searches the slope is positive, which the t interval alone takes for evidence."""
    curves = []
    for label, rates in (("a", [0.1] * 6), ("b", [0.3] * 5 + [0.1])):
        for search, rate in enumerate(rates):
            one = confirmed([[0.1, 0.9]], label=label, configuration=search, hyperparameters={"server_lr": rate})
            curves.append(replace(one[0], search=search))
    assert said(result(curves, last=1), grows="server_lr", over=["a", "b"]).outcome == "undecided"
    curves[-1] = replace(curves[-1], hyperparameters={"server_lr": 0.3})
    assert said(result(curves, last=1), grows="server_lr", over=["a", "b"]).outcome == "agrees"


def swept(label: str, limits: Sequence[float]) -> list[TrialCurve]:
    """A grid of rates in each search, up to a limit; above it a trial diverges, or ends above the first loss."""
    curves = []
    for search, limit in enumerate(limits):
        for rate in (0.1, 0.3, 1.0, 3.0):
            above = [4.0, 9.0, 8.0, 8.0] if rate == 1.0 else [4.0, 2000.0]
            rows = [[4.0, 3.0, 2.0, 2.0 - 0.1 * rate] if rate <= limit else above]
            states = ["COMPLETE" if rate <= limit or rate == 1.0 else "DIVERGED"]
            own = {"client_lr": rate, "delta_lr": 1.0}
            number = len(curves)
            trials = confirmed(
                rows, label=label, metric="loss", states=states, configuration=number, hyperparameters=own
            )
            curves += [replace(trial, search=search) for trial in trials]
    return curves


@pytest.mark.parametrize(
    ("one", "other", "outcome"),
    [
        ([0.3] * 6, [1.0] * 6, "agrees"),
        ([0.3] * 6, [3.0, 1.0, 1.0, 3.0, 1.0, 1.0], "agrees"),
        ([1.0] * 6, [0.3] * 6, "disagrees"),
        ([0.3] * 6, [1.0] * 5 + [0.3], "undecided"),
        ([3.0] * 6, [3.0] * 6, "undecided"),
        ([0.3] * 5, [1.0] * 5, "undecided"),
        ([0.3] * 6, [1.0] * 5 + [0.0], "undecided"),
    ],
    ids=["equal limits", "noisy limits", "the other way", "a tie", "above all rates", "few", "none of a search trains"],
)
def test_the_largest_value_that_trains_grows(one: list[float], other: list[float], outcome: str) -> None:
    of = result([*swept("a", one), *swept("b", other)], quality="loss")
    found = said(of, grows="client_lr", over=["a", "b"], limit=True)
    assert found.outcome == outcome
    assert found.statement == "largest client_lr that trains grows over a, b"
    if len(one) == 6 and 0.0 not in other:
        tied = "; only 5 of 6 slopes have one sign, too few for a sign test" if other == [1.0] * 5 + [0.3] else ""
        assert found.why.endswith(f"over 6 searches; a {np.median(one):g}, b {np.median(other):g}{tied}")
    else:
        assert found.why == "it needs at least 6 searches, and has 5"


@pytest.mark.parametrize(
    ("statements", "outcome"),
    [
        ([{"ahead": ["outer_tenth", "outer_half"], "at": 1}, {"ahead": ["outer_half", "outer_1"], "at": 1}], "agrees"),
        (
            [{"ahead": ["outer_tenth", "outer_half"], "at": 1}, {"ahead": ["outer_1", "outer_tenth"], "at": 1}],
            "disagrees",
        ),
        (
            [{"ahead": ["outer_tenth", "outer_half"], "at": 1}, {"level": ["outer_half", "outer_1"], "within": 0.01}],
            "undecided",
        ),
    ],
)
def test_recorded_outcomes(statements: list[dict[str, Any]], outcome: str) -> None:
    """Khaled's figure 1 with much noise, at its small scale on 6 fresh seeds."""
    curves = [
        one
        for label, rows in RECORDED["loss"].items()
        for one in confirmed(rows, label=label, metric="loss", rounds=RECORDED["rounds"])
    ]
    found = judged([Statement(**one) for one in statements], lambda *_: result(curves, last=200, quality="loss"))
    assert overall(found) == outcome
    own = judged(preset("khaled-fig1").statements("noise_50"), lambda *_: result(curves, last=200, quality="loss"))
    assert overall(own) == "agrees"
