"""The whole result: its shape, its invariants, and small studies worked out by hand."""

import csv
import html
import io
import json
import re
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.errors import InvalidSpec
from driftline.results.comparison import compare
from driftline.results.curves import TrialCurve
from driftline.results.document import frontier_document
from driftline.results.show.page import frontier_html
from driftline.results.show.text_table import table
from driftline.results.show.trials_csv import trials_csv
from driftline.results.study_result import joined_result, study_result
from driftline.sdk.frontier import Frontier
from driftline.wire.records import StudyRecord, TrialRecord

from .samples import Chosen, confirmed, curve, study

RATES = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.floats(0.0, 1.0), st.floats(0.2, 1.0), st.booleans()),
    min_size=1,
    max_size=6,
)


def made(rates: list[tuple[str, float, float, bool]], metric: str = "test_accuracy") -> list[TrialCurve]:
    """Configurations that rise at a rate from 0 to an end, confirmed on three seeds; some diverge on one of these."""
    at, found = np.arange(21), []
    turn = -1.0 if metric == "test_loss" else 1.0
    for number, (label, rate, end, lost) in enumerate(rates):
        table = [turn * end * (1 - 0.02 * seed) * (1 - np.exp(-rate * at)) for seed in range(4)]
        states = ["DIVERGED" if lost and seed == 2 else "COMPLETE" for seed in range(4)]
        found += confirmed(table, label=label, configuration=number, metric=metric, states=states)
    return found


def test_shape_of_the_document() -> None:
    result = frontier_document("digits", study(), Chosen(), 200)
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert set(result) == {"study", "definitions", "scale", "deterministic", "methods"}
    for method in result["methods"].values():
        assert method["ledger"]["trials"] == 32 + 24
        assert (method["ledger"]["search_trials"], method["ledger"]["confirmation_trials"]) == (32, 24)
        for row in method["frontier"]:
            assert set(row) == {"cost", "quality", "low", "high"}
            assert row["low"] <= row["quality"] + method["optimism"] <= row["high"]
        assert (method["frontier"][0]["cost"], method["frontier"][-1]["cost"]) == (1.0, 200.0)
        for row in method["recommendations"]:
            assert set(row) == {"cost", "configuration", "round", "quality", "low", "high"}
            assert row["round"] <= row["cost"]
        assert [(row["search"], row["seed"]) for row in method["cross_fitted"]] == [(0, 1), (0, 2), (0, 3)]
        assert len(method["configurations"]) == 8
        assert [row["seed"] for row in method["areas"]] == method["reported"]["seeds"] == [1, 2, 3]
    words = {"quality", "recommendations", "frontier", "area", "settles", "ends", "comparison", "ledger", "diverged"}
    assert words <= {word for word, text in result["definitions"].items() if text}
    assert (result["scale"]["first"], result["scale"]["last"]) == (1.0, 200.0)
    assert result["definitions"]["parameters"]["window"] == 0.1


def test_a_study_by_hand() -> None:
    """The first configuration is better in the mean. On seed 1 it was chosen for seed 2, the second for seed 1.

    From round 2 to round 4, half of the logarithm of the cost, each seed looks better by 0.2 than what it is left with;
    two seeds choose better than one: the optimism is 0.2 / 2 / 2.
    """
    first = confirmed([[0.0, 0.5, 0.6, 0.6, 0.6], [0.0, 0.5] + [0.8] * 3, [0.0, 0.5] + [0.6] * 3], configuration=0)
    second = confirmed([[0.0, 0.2, 0.5, 0.5, 0.5], [0.0, 0.2] + [0.5] * 3, [0.0, 0.2] + [0.7] * 3], configuration=1)
    result = frontier_document("s", [*first, *second], Chosen(), 4)
    method = result["methods"]["fedavg"]
    assert method["optimism"] == pytest.approx(0.05)
    frontier = [
        {"cost": 1.0, "quality": pytest.approx(0.45), "low": 0.5, "high": 0.5},
        {"cost": 2.0, "quality": pytest.approx(0.65), "low": 0.6, "high": 0.8},
    ]
    assert method["frontier"] == [*frontier, {**frontier[-1], "cost": 4.0}]
    assert method["recommendations"] == [
        {**row, "configuration": 0, "round": round_} for round_, row in enumerate(frontier, 1)
    ]
    assert method["cross_fitted"] == [
        {"search": 0, "seed": 1, "cost": [1.0, 2.0], "quality": [0.5, 0.5]},
        {"search": 0, "seed": 2, "cost": [1.0, 2.0], "quality": [0.5, 0.6]},
    ]
    assert result["scale"] == {
        "start": 0.0, "best": pytest.approx(0.55), "logarithmic": False, "floor": None, "first": 1.0, "last": 4.0,
        "fixed": False,
    }  # fmt: skip
    assert [row["area"] for row in method["areas"]] == pytest.approx([0.5 / 0.55, 0.55 / 0.55])
    assert method["reported"] == {
        "phase": "confirmation", "trials": 4, "diverged": 0, "incomplete": 0, "seeds": [1, 2], "searches": 1,
    }  # fmt: skip
    assert method["ledger"] == {
        "trials": 6, "search_trials": 2, "confirmation_trials": 4, "rounds": 24, "client_gradients": 240,
        "bytes": 19200,
    }  # fmt: skip


def test_the_ledger_says_what_was_shared_where_trials_may_share() -> None:
    trials = [
        curve([0.0, 0.5, 0.6], shared_gradients=[0, 10, 10]),
        curve([0.0, 0.5, 0.7], number=1, shared_gradients=[0, 0, 0]),
        curve([0.0, 0.5], label="fedprox"),
    ]
    result = frontier_document("digits", trials, Chosen(), 2)
    ledgers = {label: method["ledger"] for label, method in result["methods"].items()}
    assert ledgers["fedavg"]["shared_gradients"] == 10
    assert "shared_gradients" not in ledgers["fedprox"]
    assert "\nfedavg: 30 of 40 client gradients were computed; the others are shared.\n" in table(result)
    assert "fedprox: 10" not in table(result)


def test_one_confirmation_seed_reports_what_the_search_chose() -> None:
    flattered = confirmed([[0.0, 0.9], [0.0, 0.3]], configuration=0)
    honest = confirmed([[0.0, 0.6], [0.0, 0.6]], configuration=1)
    method = frontier_document("s", [*flattered, *honest], Chosen(), 1)["methods"]["fedavg"]
    assert method["frontier"] == [{"cost": 1.0, "quality": 0.3, "low": 0.3, "high": 0.3}]
    assert [(row["configuration"], row["round"]) for row in method["recommendations"]] == [(0, 1)]


def test_a_seed_that_diverged_reports_the_untrained_model() -> None:
    """The others do not know about it, and recommend it; chosen on all seeds it is left at its divergence."""
    rows = [[0.1, 0.5, 0.7, 0.9]] * 4
    states = ["COMPLETE", "COMPLETE", "COMPLETE", "DIVERGED"]
    tame = confirmed([[0.1, 0.2, 0.3, 0.4]] * 4, configuration=1)
    result = frontier_document("s", [*confirmed(rows, configuration=0, states=states), *tame], Chosen(), 3)
    method = result["methods"]["fedavg"]
    assert method["frontier"][-1] == {"cost": 3.0, "quality": 0.7, "low": 0.7, "high": 0.7}
    assert [row["quality"][-1] for row in method["cross_fitted"]] == [0.7, 0.7, 0.1]
    assert [row["round"] for row in method["recommendations"]] == [1, 2]
    assert (method["diverged"], method["reported"]["diverged"]) == (1, 1)
    assert [(row["configuration"], row["diverged"], row["pareto"]) for row in method["configurations"]] == [
        (0, 1, False),
        (1, 0, False),  # came less than half of the way
    ]


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_confirmation_that_ended_before_its_first_round_reports_the_untrained_model(seeds: int) -> None:
    trials = confirmed([[0.1, 0.5, 0.9], *[[0.1]] * seeds], states=["COMPLETE", *["DIVERGED"] * seeds])
    method = frontier_document("s", trials, Chosen(), 2)["methods"]["fedavg"]
    assert {(row["low"], row["high"]) for row in method["frontier"]} == {(0.1, 0.1)}
    assert [row["area"] for row in method["claims"]["configurations"]] == [0.0] * seeds


def test_configurations_that_lack_a_seed_are_left_out() -> None:
    whole = [trial for number in (0, 1) for trial in confirmed([[0.0, 0.5]] * 4, configuration=number)]
    part = confirmed([[0.0, 0.9]] * 4, configuration=2)[:-1]
    method = frontier_document("s", [*whole, *part], Chosen(), 1)["methods"]["fedavg"]
    assert method["reported"]["seeds"] == [1, 2, 3]
    assert method["reported"]["incomplete"] == 1
    assert [row["configuration"] for row in method["configurations"]] == [0, 1]


def test_speed_against_final_quality_by_hand() -> None:
    fast = confirmed([[0.0, 0.6, 0.6, 0.6]] * 4, configuration=0)
    good = confirmed([[0.0, 0.5, 0.8, 0.8]] * 4, configuration=1)
    poor = confirmed([[0.0, 0.1, 0.3, 0.39]] * 4, configuration=2)
    worse = confirmed([[0.0, 0.1, 0.1, 0.7]] * 4, configuration=3)
    method = frontier_document("s", [*fast, *good, *poor, *worse], Chosen(), 3)["methods"]["fedavg"]
    rows = [(row["configuration"], row["settles"], row["ends"], row["pareto"]) for row in method["configurations"]]
    assert rows == [(0, 1.0, 0.6, True), (1, 2.0, 0.8, True), (3, 3.0, 0.7, False), (2, 3.0, 0.39, False)]


def test_searches_show_their_luck() -> None:
    lucky = confirmed([[0.0, 0.8], [0.0, 0.8], [0.0, 0.7]], configuration=0)
    other = [replace(trial, search=1) for trial in confirmed([[0.0, 0.6], [0.0, 0.5], [0.0, 0.4]], configuration=1)]
    result = frontier_document("s", [*lucky, *other], Chosen(), 1)
    method = result["methods"]["fedavg"]
    assert method["reported"]["searches"] == 2
    assert [(row["search"], row["seed"]) for row in method["cross_fitted"]] == [(0, 1), (0, 2), (1, 1), (1, 2)]
    (row,) = method["frontier"]
    assert (row["quality"], row["low"], row["high"]) == (pytest.approx(0.75), 0.7, 0.8), "of the run alone"
    areas = [each["area"] * result["scale"]["best"] for each in method["claims"]["methods"]]
    assert areas == pytest.approx([0.75, 0.45])
    assert [each["area"] * result["scale"]["best"] for each in method["claims"]["configurations"]] == pytest.approx(
        [0.65, 0.55]
    )
    assert [(row["configuration"], row["round"]) for row in method["recommendations"]] == [(0, 1)]


def test_the_searches_are_chosen_from_together_and_a_promise_is_of_one_run() -> None:
    """Each search is best at one end; a run keeps the seeds of its own search."""
    fast = confirmed([[0.0, 0.6, 0.6], [0.0, 0.5, 0.5], [0.0, 0.4, 0.4]])
    slow = [
        replace(trial, search=1, seed=trial.seed + 100)
        for trial in confirmed([[0.0, 0.1, 0.9], [0.0, 0.1, 0.8], [0.0, 0.1, 0.7]], configuration=1)
    ]
    method = frontier_document("s", [*fast, *slow], Chosen(), 2)["methods"]["fedavg"]
    assert [(row["configuration"], row["low"], row["high"]) for row in method["recommendations"]] == [
        (0, 0.4, 0.5),
        (1, 0.7, 0.8),
    ]
    assert [row["quality"] for row in method["recommendations"]] == pytest.approx([0.45, 0.75])
    unfinished = [*fast, *[trial for trial in slow if trial.seed != 102]]
    method = frontier_document("s", unfinished, Chosen(), 2)["methods"]["fedavg"]
    assert {row["configuration"] for row in method["recommendations"]} == {0}, "a search with fewer seeds waits"


def test_the_luck_of_the_best_search_is_part_of_the_optimism() -> None:
    """Every search has one configuration: within a search nothing is chosen, but the best of the searches is."""
    noise = np.random.default_rng(3).normal(size=(8, 4))
    trials = [
        replace(trial, search=search, seed=trial.seed + 10 * search)
        for search, row in enumerate(noise)
        for trial in confirmed([[2.0, 0.5], *([2.0, float(0.5 * np.exp(0.3 * x))] for x in row)], configuration=search,
                               metric="test_loss")
    ]  # fmt: skip
    method = frontier_document("s", trials, Chosen("test_loss"), 1)["methods"]["fedavg"]
    means = np.exp(0.3 * noise.mean(axis=1)) * 0.5
    (row,) = method["recommendations"]
    assert row["configuration"] == int(means.argmin())
    assert method["optimism"] > 1.05
    assert row["quality"] == pytest.approx(means.min() * method["optimism"])
    left_out = [np.delete(noise, seed, axis=1).mean(axis=1) for seed in range(4)]
    gaps = [noise[rest.argmin(), seed] - rest.min() for seed, rest in enumerate(left_out)]
    assert method["optimism"] == pytest.approx(np.exp(0.3 * np.mean(gaps) * 3 / 4))


def test_one_fresh_seed_of_a_configuration_that_failed_in_the_search_reports_nothing() -> None:
    failed, fresh = confirmed([[0.0, 0.5]] * 2, states=["FAILED", "COMPLETE"])
    method = frontier_document("s", [failed, fresh], Chosen(), 1)["methods"]["fedavg"]
    assert (method["frontier"], method["recommendations"]) == ([], [])
    two = confirmed([[0.0, 0.5]] * 3, states=["FAILED", "COMPLETE", "COMPLETE"])
    method = frontier_document("s", two, Chosen(), 1)["methods"]["fedavg"]
    assert method["frontier"][-1]["quality"] == 0.5
    assert method["claims"]["configurations"] == []


def test_a_study_without_randomness_is_recognised() -> None:
    equal = confirmed([[0.0, 0.5, 0.6]] * 4)
    assert frontier_document("s", equal, Chosen(), 2)["deterministic"]
    other = confirmed([[0.0, 0.5, 0.6]] * 3 + [[0.0, 0.5, 0.6 + 1e-16]], configuration=1)
    assert not frontier_document("s", [*equal, *other], Chosen(), 2)["deterministic"]
    single = [curve([0.0, 0.5, 0.6])]
    assert not frontier_document("s", single, Chosen(), 2)["deterministic"]
    assert frontier_document("s", single, Chosen(), 2, certain=True)["deterministic"]


@given(RATES, st.randoms())
def test_invariants(rates: list[tuple[str, float, float, bool]], random: object) -> None:
    trials = made(rates)
    result = frontier_document("s", trials, Chosen(), 20, ["a", "b"])
    shuffled = list(trials)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert frontier_document("s", shuffled, Chosen(), 20, ["a", "b"]) == result
    ends = [[row["quality"][-1] for row in method["cross_fitted"]] for method in result["methods"].values()]
    assert max(np.median(end) for end in ends if end) == result["scale"]["best"]
    for method in result["methods"].values():
        costs = [row["cost"] for row in method["frontier"]]
        assert costs == sorted(set(costs))
        assert (np.diff([row["quality"] for row in method["recommendations"]]) > -1e-9).all(), "more is never worse"
        promised = {(row["configuration"], row["round"], row["quality"]) for row in method["recommendations"]}
        assert len({run[:2] for run in promised}) == len(promised), "one promise for each run"
        on = [row for row in method["configurations"] if row["pareto"]]
        for one in on:
            assert not one["diverged"]
            for other in on:
                same = (one["settles"], one["ends"]) == (other["settles"], other["ends"])
                assert same or not (one["settles"] <= other["settles"] and one["ends"] >= other["ends"])


@given(RATES)
def test_a_loss_that_is_not_positive_is_an_accuracy_upside_down(rates: list[tuple[str, float, float, bool]]) -> None:
    rising = frontier_document("s", made(rates), Chosen(), 20)["methods"]
    falling = frontier_document("s", made(rates, "test_loss"), Chosen("test_loss"), 20)["methods"]
    for label, method in rising.items():
        other = falling[label]
        assert other["area"] == pytest.approx(method["area"], abs=1e-12)
        for mine, turned in zip(method["recommendations"], other["recommendations"], strict=True):
            for key in ("cost", "configuration", "round"):
                assert mine[key] == turned[key]
        assert other["optimism"] == method["optimism"]
        assert [(r["cost"], -r["quality"], -r["high"], -r["low"]) for r in other["frontier"]] == [
            (r["cost"], r["quality"], r["low"], r["high"]) for r in method["frontier"]
        ]
        for mine, turned in zip(method["configurations"], other["configurations"], strict=True):
            assert (mine["settles"], mine["pareto"]) == (turned["settles"], turned["pareto"])
            assert mine["ends"] == -turned["ends"]


@given(RATES, st.sampled_from(["FAILED", "RUNNING", "CANCELLED"]))
def test_trials_that_did_not_end_change_no_frontier(rates: list[tuple[str, float, float, bool]], state: str) -> None:
    trials = made([("a", 0.5, 1.0, False), *rates])
    extra = curve([0.0, 9.0, 9.0], number=99, label="a", phase="confirmation", seed=1, configuration=50, state=state)
    before, after = (frontier_document("s", some, Chosen(), 20)["methods"]["a"] for some in (trials, [*trials, extra]))
    for key in ("frontier", "recommendations", "configurations", "area"):
        assert after[key] == before[key]
    assert after["failed"] - before["failed"] == (state == "FAILED")


def test_costs_end_where_every_label_has_configurations() -> None:
    cheap = confirmed([[0.0, 1.0, 1.0]] * 3, gradients=10)
    dear = confirmed([[0.0, 1.0, 1.0]] * 3, gradients=100, label="dear")
    result = frontier_document("s", [*cheap, *dear], Chosen(cost="client_gradients"), 2)
    assert (result["scale"]["first"], result["scale"]["last"]) == (10.0, 20.0)
    assert result["methods"]["fedavg"]["area"] == 1.0
    assert result["methods"]["dear"]["area"] == 0.0  # no round of it is paid for
    assert result["methods"]["dear"]["recommendations"] == []


def test_a_label_all_of_whose_runs_diverged_does_not_limit_the_costs() -> None:
    """Its frontier holds the round before the divergence up to the last cost of the others."""
    good = confirmed([np.minimum(np.arange(11) / 10, 0.9)] * 4, label="a")
    for rounds, kept in ((1, 0.0), (3, 0.2)):
        states = ["COMPLETE", *["DIVERGED"] * 3]
        bad = confirmed([np.arange(rounds + 1) / 10] * 4, label="b", states=states)
        result = frontier_document("s", [*good, *bad], Chosen(), 10)
        assert (result["scale"]["last"], result["scale"]["best"]) == (10, 0.9)
        lost = result["methods"]["b"]
        assert (lost["frontier"][-1]["cost"], lost["frontier"][-1]["quality"]) == (10, kept)
        assert lost["area"] == pytest.approx(0.0 if rounds == 1 else (np.log10(2) * 0.1 + np.log10(5) * 0.2) / 0.9)
    alone = frontier_document("s", bad, Chosen(), 10)
    assert alone["scale"]["last"] == 3


def test_where_nothing_is_learned_areas_are_0_and_not_rounding() -> None:
    """The mean of eight accuracies of 0.1 and their median differ in the last digit."""
    frozen = [one for number in range(8) for one in confirmed([[0.1] * 5] * 7, label="a", configuration=number)]
    worse = [one for number in range(8) for one in confirmed([[0.1] + [0.09] * 4] * 7, label="b", configuration=number)]
    result = frontier_document("s", [*frozen, *worse], Chosen(), 4)
    assert [result["methods"][label]["area"] for label in "ab"] == [0, 0]


def test_studies_without_results() -> None:
    empty = frontier_document("s", [], Chosen(), 10, ["fedavg", "fedprox"])
    assert list(empty["methods"]) == ["fedavg", "fedprox"]
    assert empty["methods"]["fedavg"]["frontier"] == []
    assert empty["methods"]["fedavg"]["area"] is None
    assert "nothing to recommend yet" in table(empty)
    all_diverged = frontier_document("s", [curve([1.0, 2.0], state="DIVERGED")], Chosen(), 10)
    assert all_diverged["methods"]["fedavg"]["recommendations"] == []
    assert all_diverged["methods"]["fedavg"]["diverged"] == 1
    running = frontier_document("s", [curve([0.1], state="RUNNING")], Chosen(), 10)
    assert running["methods"]["fedavg"]["ledger"]["trials"] == 1
    nothing = TrialCurve("t", "fedavg", "search", 0, 0, 0, {}, "DIVERGED", {})
    assert frontier_document("s", [nothing], Chosen(), 10)["methods"]["fedavg"]["granted"] == {
        "trials": 1,
        "rounds": 10,
        "cost": 10.0,
    }
    with pytest.raises(InvalidSpec, match="did you mean rounds"):
        frontier_document("s", [], Chosen(cost="round"), 10)


def test_table_by_hand() -> None:
    fast, good = curve([0.0, 0.6, 0.6, 0.6], number=0), curve([0.0, 0.5, 0.8, 0.8], number=1)
    lines = table(frontier_document("small", [fast, good], Chosen(), 3)).splitlines()
    assert lines[0] == "small: test_accuracy (rises) against rounds"
    assert lines[7].split() == ["fedavg", "0.842", "0.8", "2", "+", "0", "0"]
    assert lines[-3:] == [
        "  rounds up to  stop at round  test_accuracy  run",
        "             1              1  0.6            client_lr 0.1",
        "             3              2  0.8            client_lr 0.2",
    ]


def test_trials_csv() -> None:
    trials = [
        curve(
            [0.0, 0.6, 0.6, 0.6],
            number=0,
            hyperparameters={"client_lr": 0.1, "server.momentum": 0.9},
            shared_gradients=[0, 10, 20, 20],
        ),
        curve([0.0, 7.0], number=1, state="DIVERGED", hyperparameters={"client_lr": 9.0, "tied": True}),
    ]
    rows = list(csv.DictReader(io.StringIO(trials_csv(trials, frontier_document("s", trials, Chosen(), 3), Chosen()))))
    assert [name for name in rows[0] if name.startswith("final_")] == ["final_test_accuracy"], "not of counters"
    assert [row["trial"] for row in rows] == ["study.fedavg.s00000", "study.fedavg.s00001"]
    first, second = rows
    assert (first["state"], first["ends"], first["settles"], first["recommended"], first["pareto"]) == (
        "COMPLETE", "0.6", "1", "true", "true",
    )  # fmt: skip
    assert (first["client_gradients"], first["shared_gradients"], second["shared_gradients"]) == ("30", "20", "")
    assert (first["client_lr"], first["server.momentum"], first["tied"]) == ("0.1", "0.9", "")
    assert (second["state"], second["ends"], second["speed"], second["pareto"]) == ("DIVERGED", "", "", "false")
    assert (second["rounds_done"], second["bytes_up"], second["tied"]) == ("1", "400", "true")


def test_result_of_a_stored_study() -> None:
    moments = dict.fromkeys(("created_at", "updated_at"), datetime(2026, 1, 1, tzinfo=UTC))
    spec = {
        "name": "stored",
        "task": {"name": "digits"},
        "methods": [{"label": "a", "name": "fedavg", "weighting": "uniform"}, {"label": "b", "name": "fedprox"}],
        "objective": {"quality": "test_accuracy", "cost": "rounds", "scale": {"start": 0.0, "best": 2.0}},
        "budget": {"trials_per_method": 1, "rounds": 3},
    }
    record = StudyRecord(id="s", name="stored", spec=spec, **moments)
    numbers = dict.fromkeys(("configuration", "number", "seed"), 0)
    trials = [TrialRecord(id="s.a.s00000", study_id="s", label="a", phase="search", state="COMPLETE",
                          hyperparameters={}, **numbers, **moments)]  # fmt: skip
    spent = {name: [0, 1, 2, 3] for name in ("round", "bytes_up", "bytes_down")}
    columns = {"s.a.s00000": {**spent, "test_accuracy": [0.0, None, 0.5, 1.0]}}
    result = study_result(record, trials, columns)
    assert result.document["methods"]["a"]["configurations"][0]["settles"] == 3.0
    assert json.loads(result.file("frontier.json")) == result.document
    assert (result.document["submitted_at"], result.document["finished_at"]) == ("2026-01-01T00:00:00+00:00", None)
    assert "Submitted 2026-01-01 00:00 UTC, not finished." in result.file("frontier.html").decode()
    ended = study_result(record.model_copy(update={"finished_at": record.created_at}), trials, columns)
    assert "finished 2026-01-01 00:00 UTC." in ended.file("frontier.html").decode()
    other = study_result(record, trials, columns, cost="bytes").document
    assert other["methods"]["a"]["configurations"][0]["settles"] == 6.0
    assert (result.document["scale"]["best"], result.document["scale"]["fixed"]) == (2.0, True)
    assert not other["scale"]["fixed"]  # of another reading
    one_step = {"local_steps": 1}
    rules = {"client_lr": [one_step], "prox": [one_step, {"client_lr": 0}]}
    assert result.document["methods"]["b"]["inactive"] == rules
    own = "a weights clients equally in training (its own weighting); all metrics have the study's weighting."
    assert own in " ".join(table(result.document).split())
    assert own in html.unescape(result.file("frontier.html").decode())
    assert compare(result.document, "b", "a")["why"].endswith(f" {own}")
    joined = joined_result([(record.study, result)]).document["methods"]
    assert [method.get("settings") for method in joined.values()] == [{"weighting": "uniform"}, None]


def test_a_stopped_trial_counts_in_the_search_as_far_as_it_went() -> None:
    early = curve([0.1, 0.6, 0.7], number=0, state="STOPPED")
    late = curve([0.1, 0.2, 0.3, 0.8, 0.9], number=1)
    found = frontier_document("s", [early, late], Chosen(), 4, rungs=(2, 4))["methods"]["fedavg"]
    assert [(row["cost"], row["configuration"], row["round"]) for row in found["recommendations"]] == [
        (1.0, 0, 1), (2.0, 0, 2), (3.0, 1, 3), (4.0, 1, 4),
    ]  # fmt: skip
    assert found["granted"] == {"trials": 2, "rounds": 2 + 4, "cost": 6.0}
    assert found["ledger"]["rounds"] == 6


@pytest.mark.parametrize(
    ("quality", "beside"),
    [("validation_accuracy", "test_accuracy"), ("validation_client_accuracy_worst", "client_accuracy_worst")],
)
def test_a_validation_metric_chooses_and_the_test_metric_of_what_is_chosen_stands_beside_it(quality, beside):
    rounds = np.arange(4)
    trials = []
    for number, (validation, test) in enumerate([((0.1, 0.5, 0.7, 0.8), 0.6), ((0.1, 0.4, 0.9, 0.7), 0.5)]):
        for seed in range(3):
            values = np.array(validation) + 0.001 * seed
            own = {"phase": "confirmation" if seed else "search", "seed": seed, "configuration": number}
            own |= {beside: np.array([0.1, *(test + 0.01 * rounds[1:] + 0.02 * seed)])}
            trials.append(curve(values, metric=quality, number=10 * number + seed, **own))
    reading = Chosen(quality=quality)
    result = frontier_document("s", trials, reading, 3)
    rows = result["methods"]["fedavg"]["recommendations"]
    assert [(row["configuration"], row["round"]) for row in rows] == [(0, 1), (1, 2)]
    seeds = np.array([1, 2])
    assert rows[0]["test"] == pytest.approx(np.mean(0.61 + 0.02 * seeds))
    assert rows[1]["test"] == pytest.approx(np.mean(0.52 + 0.02 * seeds))
    text = table(result)
    assert re.search(rf"up to  stop at round  {quality} +{beside} +run", text)
    assert "0.55" in text
    assert Frontier(result).best().test == pytest.approx(0.55)
    assert f"{beside} of the recommended run" in result["definitions"]["test"]
    assert f">{beside}</th>" in frontier_html(result)
    plain = frontier_document("s", trials, Chosen(), 3)["methods"]["fedavg"]["recommendations"]
    assert not any("test" in row for row in plain)
