"""Two claims: their verdicts, and the reasons against one."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.errors import InvalidSpec, NotFound
from driftline.results.comparison import compare, study_headline
from driftline.results.curves import TrialCurve
from driftline.results.document import frontier_document
from driftline.results.ledger import rounds_of

from .samples import Chosen, confirmed, curve

HIGH = [0.90, 0.91, 0.89, 0.92, 0.90, 0.88]
LOW = [0.80, 0.82, 0.79, 0.80, 0.81, 0.78]
ENDS = st.lists(st.floats(0.3, 1.0), min_size=1, max_size=8)

CONFIRMED: dict[str, Any] = {"phase": "confirmation", "configuration": 0}
SEEDS = list(enumerate((0.9, 0.91, 0.92, 0.93, 0.94, 0.95), 1))


def label(name: str, ends: Sequence[float], **changes: Any) -> list[TrialCurve]:
    """One configuration with an end for each fresh seed; in the search it ends at 1."""
    return confirmed([[0.0, end, end] for end in (1.0, *ends)], label=name, **changes)


def frontier(*trials: list[TrialCurve], cost: str = "rounds", **more: Any) -> dict[str, Any]:
    return frontier_document("s", [one for part in trials for one in part], Chosen(cost=cost), 2, **more)


def compared(*trials: list[TrialCurve], **more: Any) -> dict[str, Any]:
    return compare(frontier(*trials, **more), "a", "b")


def searches(name: str, ends: Sequence[float]) -> list[TrialCurve]:
    """One search for each of these ends, each with its own configuration on two fresh seeds."""
    found = []
    for search, end in enumerate(ends):
        trials = confirmed([[0.0, end, end + 0.001 * seed] for seed in range(3)], label=name, configuration=search)
        found += [replace(trial, search=search) for trial in trials]
    return found


def test_the_configurations_found() -> None:
    found = compared(label("a", HIGH), label("b", LOW))
    claim = found["claims"]["configurations"]
    assert (found["verdict"], claim["verdict"]) == (None, "a"), "one search names no method"
    assert claim["reasons"] == []
    assert [row["seed"] for row in claim["pairs"]] == [1, 2, 3, 4, 5, 6]
    assert 0 < claim["difference"]["low"] < claim["difference"]["mean"] < claim["difference"]["high"]
    assert claim["p"] == claim["p_holm"] < 0.05
    size = "{mean:.3f} ({low:.3f} to {high:.3f})".format(**claim["difference"])
    assert found["why"] == (
        "a or b? Not decided: one search each (needs 6). "
        f"In this search the configurations found for a did better by {size}."
    )
    assert found["ranges_of"] == "configurations"
    assert found["ranges"] == [{"from": 1.0, "to": 2.0, "better": "a"}]


def test_a_study_that_was_extended_counts_the_looks() -> None:
    result = frontier(label("a", HIGH), label("b", LOW))
    whole = {**result, "trial_list": {"looks": 3}}
    said = " The study was extended: this is look 3 at its results, and 95 % is for one look."
    assert compare(whole, "a", "b")["why"] == compare(result, "a", "b")["why"] + said


def test_the_methods() -> None:
    found = compared(searches("a", HIGH), searches("b", LOW))
    assert (found["verdict"], found["ranges_of"]) == ("a", "methods")
    assert found["claims"]["configurations"]["verdict"] is None  # two seeds
    assert len(found["claims"]["methods"]["pairs"]) == 6
    size = "{mean:.3f} ({low:.3f} to {high:.3f})".format(**found["claims"]["methods"]["difference"])
    assert found["why"] == (
        f"a beats b: by {size} over 6 searches. "
        "In these 6 searches 2 seeds cannot tell the configurations found apart (needs 6)."
    )
    mixed = compared(searches("a", HIGH), searches("b", [0.95, 0.82, 0.95, 0.80, 0.96, 0.78]))
    assert mixed["verdict"] is None
    claim = mixed["claims"]["methods"]
    size = "{mean:.3f} ({low:.3f} to {high:.3f})".format(**claim["difference"])
    assert mixed["why"].startswith(
        f"a or b? Not decided over 6 searches: a is ahead by {size}, which may be luck; a difference of "
        f"{claim['detectable']:.3f} would have been found with a probability of 80 %. In these 6 searches "
    )


def test_the_search_alone_chooses_for_the_claim_about_configurations() -> None:
    """Fresh seeds prefer the second configuration, and the frontier shows it; the search has found the first."""
    first, second = label("a", [0.5] * 3), label("a", [0.9] * 3, configuration=1)
    second[0].columns["test_accuracy"][:] *= 0.9
    result = frontier(first, second)
    method = result["methods"]["a"]
    assert method["area"] == 1.0
    assert [row["area"] for row in method["claims"]["configurations"]] == pytest.approx([0.5 / 0.9] * 3)


def test_a_difference_that_may_be_luck_has_no_verdict_and_says_what_would_have_been_seen() -> None:
    found = compared(label("a", [0.9, 0.7, 0.8, 0.9, 0.6, 0.8]), label("b", [0.8, 0.8, 0.7, 0.9, 0.8, 0.6]))
    claim = found["claims"]["configurations"]
    assert found["verdict"] is None
    assert claim["reasons"] == ["the interval of the difference holds 0"]
    assert claim["detectable"] > claim["difference"]["high"] - claim["difference"]["mean"]
    said = f"a difference of {claim['detectable']:.3f} would have been found with a probability of 80 %"
    assert claim["why"].startswith("In this search the configurations found cannot be told apart: a is ahead by ")
    assert said in claim["why"]


def test_tests_that_disagree_give_no_verdict() -> None:
    low = [0.80, 0.82, 0.79, 0.80, 0.81, 0.885]
    claim = compared(label("a", HIGH), label("b", low))["claims"]["configurations"]
    assert claim["difference"]["low"] > 0
    assert (claim["verdict"], claim["p_signs"]) == (None, 4 / 64)
    assert claim["reasons"] == ["a test by sign flips finds no difference"]


def test_few_pairs_have_no_verdict() -> None:
    found = compared(label("a", HIGH[:5]), label("b", LOW[:5]))
    assert found["claims"]["configurations"]["reasons"] == [
        "it needs at least 6 seeds (budget.seeds), and both labels have 5"
    ]
    assert found["claims"]["methods"]["reasons"] == [
        "it needs at least 6 searches (budget.searches), and both labels have 1"
    ]
    assert found["ranges"] == []


def test_equal_differences_are_no_evidence() -> None:
    """The seeds change something, but not the difference: a band of zero width is no evidence."""
    ends = np.array(HIGH)
    found = compared(label("a", ends), label("b", ends - 0.25))
    assert found["verdict"] is None
    assert found["claims"]["configurations"]["reasons"] == [
        "all 6 seeds give the same difference, which is no evidence"
    ]


def test_all_pairs_of_labels_are_one_family() -> None:
    noise = [0.02, -0.05, 0.04, 0.0, -0.03, 0.05]
    a, b = label("a", [0.84 + n for n in noise]), label("b", [0.80] * 6)
    others = [label(name, [0.80 - n for n in noise]) for name in ("c", "d", "e")]
    alone, family = compared(a, b), compared(a, b, *others)
    claim = family["claims"]["configurations"]
    assert alone["claims"]["configurations"]["p_holm"] == alone["claims"]["configurations"]["p"]
    assert claim["p_holm"] > claim["p"]
    assert claim["level"] > alone["claims"]["configurations"]["level"] == 0.95


def test_without_randomness_areas_are_compared_as_they_are() -> None:
    equal = {"a": [1.0] * 6, "b": [0.7] * 6, "c": [0.995] * 6}
    trials = {
        name: confirmed([[0.0, end, end] for end in (ends[0], *ends)], label=name) for name, ends in equal.items()
    }
    result = frontier(*trials.values())
    found = compare(result, "a", "b")
    assert (found["verdict"], found["claims"]["configurations"]["verdict"]) == (None, "a")
    assert found["why"] == (
        "a or b? Not decided: one search each (needs 6). "
        "In this search the configurations found for a did better by 0.300, and nothing is random."
    )
    assert found["claims"]["configurations"]["p"] is None
    assert found["ranges"] == [{"from": 1.0, "to": 2.0, "better": "a"}]
    tie = compare(result, "a", "c")
    assert tie["verdict"] is None
    assert tie["claims"]["configurations"]["reasons"] == ["their areas differ by less than 1 % of the scale: a tie"]
    assert tie["why"].endswith("are equally good: their areas differ by less than 1 % of the scale: a tie.")
    assert tie["ranges"] == [{"from": 1.0, "to": 2.0, "better": None}]


def test_one_run_is_enough_where_nothing_is_random() -> None:
    a, b = (confirmed([[0.0, end, end]], label=name) for name, end in (("a", 1.0), ("b", 0.7)))
    assert compared(a, b, certain=True)["claims"]["configurations"]["verdict"] == "a"
    assert compared(a, b)["claims"]["configurations"]["verdict"] is None


def test_unequal_budgets_have_no_verdict() -> None:
    found = compared([*label("a", HIGH), *label("a", HIGH, configuration=1)[:1]], label("b", LOW))
    assert found["verdict"] is None
    assert found["why"] == "a or b? Not decided: budgets differ: a had 8 trials, b had 7."
    assert found["ranges"] == []
    dear = compared(label("a", HIGH, gradients=11), label("b", LOW), cost="client_gradients")
    assert dear["claims"]["configurations"]["verdict"] == "b", (
        "budgets are trials and rounds: a, which is dearer, comes too late"
    )


def test_a_diverged_trial_counts_with_the_rounds_it_was_granted() -> None:
    lost = confirmed([[0.0, 99.0]], label="b", configuration=1, states=["DIVERGED"])
    whole = confirmed([[0.0, 0.1, 0.2]], label="a", configuration=1)
    found = compared([*label("a", HIGH), *whole], [*label("b", LOW), *lost])
    assert found["ledger"] == {name: {"trials": 8, "rounds": 16, "cost": 16.0} for name in "ab"}
    assert found["claims"]["configurations"]["verdict"] == "a"


def test_labels_of_which_rungs_left_different_rounds_have_no_verdict() -> None:
    """Both have as many trials; those of b's search were stopped earlier."""
    seeds = range(6)
    trials = [
        curve([0.0, end, end], label=name, number=seed, seed=1 + seed, phase="confirmation", configuration=0)
        for name, ends in (("a", HIGH), ("b", LOW))
        for seed, end in zip(seeds, ends, strict=False)
    ]
    trials += [
        curve([0.0] * (1 + rounds), label=name, number=number, state="STOPPED")
        for name, rounds in (("a", 2), ("b", 1))
        for number in range(20)
    ]
    result = frontier_document("s", trials, Chosen(), 3, rungs=(1, 2, 3))
    assert [result["methods"][name]["granted"]["rounds"] for name in "ab"] == [6 * 3 + 20 * 2, 6 * 3 + 20]
    assert compare(result, "a", "b")["why"] == "a or b? Not decided: budgets differ: a had 58 rounds, b had 38."


def test_a_budget_of_client_gradients_is_equal_where_rounds_are_not() -> None:
    """a's rounds compute 20 gradients, b's 30; b's second search trial was stopped, its third diverged."""
    short = [curve([0.0, *[end] * 3], gradients=20, label="a", number=n, seed=n, **CONFIRMED) for n, end in SEEDS]
    long = [
        curve([0.0, *[end - 0.01 * n] * 2], gradients=30, label="b", number=n, seed=n, **CONFIRMED) for n, end in SEEDS
    ]
    tried = [curve([0.0] * 4, gradients=20, label="a", number=n) for n in range(3)]
    tried += [curve([0.0] * 3, gradients=30, label="b", number=0)]
    tried += [curve([0.0] * 2, gradients=30, label="b", number=1, state="STOPPED")]
    tried += [curve([0.0, 99.0], gradients=30, label="b", number=2, state="DIVERGED")]
    result = frontier_document("s", [*short, *long, *tried], Chosen(), 60, unit="client_gradients", rungs=(20, 60))
    assert [result["methods"][name]["granted"] for name in "ab"] == [
        {"trials": 9, "client_gradients": 9 * 60, "cost": 9 * 60 / 20},
        {"trials": 9, "client_gradients": 7 * 60 + 20 + 20, "cost": pytest.approx((7 * 60 + 20 + 20) / 30)},
    ]
    parameters = result["definitions"]["parameters"]
    assert (parameters["unit"], parameters["client_gradients"]) == ("client_gradients", 60)
    assert "rounds" not in parameters
    assert compare(result, "a", "b")["why"].endswith("budgets differ: a had 540 client gradients, b had 460.")
    equal = [*short, *long, *(trial for trial in tried if trial.state == "COMPLETE" and trial.number == 0)]
    result = frontier_document("s", equal, Chosen(), 60, unit="client_gradients", rungs=(20, 60))
    assert compare(result, "a", "b")["claims"]["configurations"]["reasons"] == []


@pytest.mark.parametrize(("unit", "amount", "expected"), [("rounds", 7, 7), ("client_gradients", 95, 9)])
def test_the_rounds_of_a_budget_follow_from_the_first_rounds_of_a_curve(unit: str, amount: int, expected: int) -> None:
    assert rounds_of(curve([0.0, 0.1, 0.2]), unit, amount) == expected
    assert rounds_of(curve([0.0]), "client_gradients", 95) == 1


def test_seconds_have_no_verdict() -> None:
    timed = (label(name, ends, wall_seconds=[0, 1, 2]) for name, ends in (("a", HIGH), ("b", LOW)))
    found = compared(*timed, cost="seconds")
    assert "seconds depend on the machine" in found["why"]
    assert found["ranges"] == []


def test_unknown_labels_are_named() -> None:
    result = frontier(label("fedavg", [0.9]))
    with pytest.raises(NotFound, match=r'no label "fedavgg" in this study \(have: fedavg\); did you mean "fedavg"'):
        compare(result, "fedavg", "fedavgg")
    with pytest.raises(InvalidSpec, match=r'^labels: must be two different ones of the study, got "fedavg" twice$'):
        compare(result, "fedavg", "fedavg")


def test_the_winner_need_not_win_everywhere() -> None:
    at = np.arange(11)
    a = confirmed([np.where(at > 0, end, 0.0) for end in (1.0, *LOW)], label="a")
    b = confirmed([np.where(at > 6, end + 0.1, 0.1 * (at > 0)) for end in (1.0, *HIGH)], label="b")
    found = compare(frontier_document("s", a + b, Chosen(), 10), "a", "b")
    assert found["claims"]["configurations"]["verdict"] == "a"
    (late,) = [row for row in found["ranges"] if row["better"] == "b"]
    assert late["from"] == pytest.approx(7, rel=0.05)
    assert late["to"] == 10
    assert found["why"].endswith(f"Not everywhere: from {np.ceil(late['from']):.0f} to 10 rounds b is better.")


@given(ENDS, ENDS)
def test_comparison_is_antisymmetric(left: list[float], right: list[float]) -> None:
    result = frontier(label("a", left), label("b", right))
    there, back = compare(result, "a", "b"), compare(result, "b", "a")
    assert (there["verdict"], there["ranges_of"]) == (back["verdict"], back["ranges_of"])
    assert there["ranges"] == back["ranges"]
    for name, claim in there["claims"].items():
        other = back["claims"][name]
        assert claim["p"] == pytest.approx(other["p"])
        assert claim["difference"]["low"] == pytest.approx(-other["difference"]["high"])
        if claim["verdict"]:
            assert claim["difference"]["low"] * claim["difference"]["high"] > 0


def test_search_trials_alone_give_neither_a_verdict_nor_a_band() -> None:
    """With `seeds: 0` the search reports the trials that it has chosen, so that luck looks like quality."""
    trials = {
        name: [
            replace(curve([0.0, end, end], label=name, number=number, seed=number), search=number)
            for number, end in enumerate(ends)
        ]
        for name, ends in (("a", HIGH), ("b", LOW))
    }
    curves = [*trials["a"], *trials["b"]]
    result = frontier_document("s", curves, Chosen(), 2)
    found = compare(result, "a", "b")
    assert found["why"] == (
        "a or b? Not decided: both labels are reported from search trials, which no fresh seed has judged "
        "(budget.seeds)."
    )
    assert (found["verdict"], found["ranges"]) == (None, [])
    method = result["methods"]["a"]
    assert method["claims"] == {"configurations": [], "methods": []}
    assert method["area_band"] == {"low": method["area"], "high": method["area"]}
    assert all(row["low"] == row["quality"] == row["high"] for row in method["frontier"])
    certain = frontier_document("s", curves, Chosen(), 2, certain=True)
    assert compare(certain, "a", "b")["verdict"] == "a"


def test_a_headline_of_several_labels_has_the_methods_first_and_few_names() -> None:
    trials = [label(name, [end * (1 - 0.1 * number) for end in HIGH]) for number, name in enumerate("abcd")]
    found = study_headline(frontier(*trials))
    assert found.startswith("a, b, c or d? Not decided: one search each (needs 6). In this search, of the ")
    assert found.count("did better than") == 3
    assert found.endswith("and 3 more (see Comparisons).")
    decided = [searches(name, [end * (1 - 0.1 * number) for end in HIGH]) for number, name in enumerate("abc")]
    found = study_headline(frontier(*decided))
    assert [word in found for word in ("a beats b: by", "a beats c: by", "b beats c: by")] == [True] * 3
    assert "more pair" not in found
    four = [*decided, searches("d", [end * 0.7 for end in HIGH])]
    found = study_headline(frontier(*four))
    assert ". 3 more pairs are decided (see Comparisons). In these 6 searches" in found
    mixed = [*decided[:2], searches("c", [end + 0.03 * (-1) ** number for number, end in enumerate(HIGH)])]
    found = study_headline(frontier(*mixed))
    assert "The other pair of methods: not decided. In these 6 searches" in found
    assert study_headline(frontier(decided[0])) == ""
    said = study_headline({**frontier(*decided), "trial_list": {"looks": 2}})
    assert said.endswith(" The study was extended: this is look 2 at its results, and 95 % is for one look.")


def drawn(name: str, lift: float, *, seed: int = 0, kept: int = 96) -> list[TrialCurve]:
    """Six searches whose configurations are drawn at random, each run on the search's seed and on a fresh one."""
    generator = np.random.default_rng(seed)
    trials = []
    noise = np.random.default_rng([seed, *name.encode()]).normal(0, 0.01, (kept, 2))
    for configuration, quality in enumerate(generator.uniform(0.2, 0.8, kept)):
        ends = quality + lift + noise[configuration]
        both = confirmed([[0.0, end, end] for end in ends], label=name, configuration=configuration)
        trials += [replace(trial, search=configuration % 6) for trial in both]
    return trials


def test_draws_of_random_searches_judge_the_methods_after_a_number_of_trials() -> None:
    """Both labels draw the same configurations, so that a small difference is seen; separate searches miss it."""
    trials = (drawn("a", 0.02), drawn("b", 0.0))
    found = compared(*trials, drawn=("a", "b"))
    claim = found["claims"]["methods"]
    assert (found["verdict"], claim["trials"], claim["p_signs"]) == ("a", 8, None)
    assert [row["trials"] for row in found["efforts"]] == [1, 2, 4, 8, 16]
    assert found["efforts"][3]["difference"] == claim["difference"]["mean"]
    assert found["why"].startswith("a beats b after 8 trials: by ")
    whole = compared(*trials)
    assert (whole["claims"]["methods"]["trials"], whole["efforts"]) == (None, [])


def test_independent_draws_of_one_method_are_seldom_told_apart() -> None:
    verdicts = [
        compared(drawn("a", 0, seed=2 * study), drawn("b", 0, seed=2 * study + 1), drawn=("a", "b"))["verdict"]
        for study in range(20)
    ]
    assert sum(verdict is not None for verdict in verdicts) <= 3


@pytest.mark.parametrize(("change", "kept"), [("unconfirmed", 96), ("stopped", 96), ("few", 11), ("other numbers", 96)])
def test_draws_that_cannot_be_used_leave_the_comparison_to_whole_searches(change: str, kept: int) -> None:
    first, second = drawn("a", 0.1, kept=kept), drawn("b", 0.0, kept=kept)
    if change == "unconfirmed":
        first = [one for one in first if (one.configuration, one.phase) != (5, "confirmation")]
    if change == "stopped":
        first = [replace(one, state="STOPPED") if one.configuration == 5 else one for one in first]
    if change == "other numbers":
        first = [replace(one, configuration=one.configuration + 1) for one in first]
    assert compared(first, second, drawn=("a", "b"))["claims"]["methods"]["trials"] is None


def test_searches_that_share_starting_points_are_not_independent() -> None:
    result = frontier(searches("a", HIGH), searches("b", LOW))
    assert compare(result, "a", "b")["verdict"] == "a"
    for key, words in (("start", "starting points"), ("prior", "a prior")):
        for label in ("a", "b"):
            result["methods"][label]["given"] = {"start": [], "prior": [], key: [{"client_lr": 0.1}]}
        assert compare(result, "a", "b")["verdict"] == "a", "the same for both"
        result["methods"]["a"]["given"] = {"start": [], "prior": []}
        found = compare(result, "a", "b")
        assert found["verdict"] is None
        reason = f"the searches of a label share {words}, and those of a and b differ"
        assert found["claims"]["methods"]["dependent"] == [reason]
        assert found["why"].startswith(f"a or b? Not decided: {reason}. In these 6 searches")
