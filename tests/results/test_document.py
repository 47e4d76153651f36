"""The whole result: its shape, its invariants, and small studies worked out by hand."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.errors import InvalidSpec
from driftline.results.curves import TrialCurve
from driftline.results.document import frontier_document
from driftline.results.show.text_table import table
from driftline.results.show.trials_csv import trials_csv
from driftline.results.study_result import study_result
from driftline.wire.records import StudyRecord, TrialRecord

from .samples import Chosen, curve, study

RATES = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.floats(0.0, 1.0), st.floats(0.2, 1.0), st.sampled_from([1, 2, 3])),
    min_size=1,
    max_size=8,
)


def made(
    rates: list[tuple[str, float, float, int]], turn: float = 1.0, metric: str = "test_accuracy"
) -> list[TrialCurve]:
    """Trials that rise at a rate from 0 to an end; half of the numbers are odd, those repeat the even ones."""
    at = np.arange(21)
    return [
        curve(turn * end * (1 - np.exp(-rate * at)), metric=metric, label=label, number=number, seed=seed)
        for number, (label, rate, end, seed) in enumerate(rates)
    ]


def test_shape_of_the_document() -> None:
    result = frontier_document("digits", study(), Chosen(), 200)
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert set(result) >= {"study", "definitions", "methods"}
    assert result["study"] == "digits"
    for method in result["methods"].values():
        assert set(method) >= {"points", "frontier", "hypervolume", "diverged", "ledger"}
        assert set(method["ledger"]) == {"trials", "rounds", "client_gradients", "bytes"}
        for point in method["points"]:
            assert set(point) >= {"trial", "seed", "cost", "quality", "hyperparameters", "pareto"}
        for row in method["frontier"]:
            assert set(row) == {"cost", "quality", "low", "high"}
            assert row["low"] <= row["quality"] <= row["high"]
        assert (method["frontier"][0]["cost"], method["frontier"][-1]["cost"]) == (1.0, 200.0)
    for word in ("quality", "point", "frontier", "frontier", "hypervolume", "comparison", "ledger", "diverged"):
        assert result["definitions"][word]
    assert result["definitions"]["parameters"]["window_rounds"] == 10


def test_a_study_by_hand() -> None:
    fast = curve([0.0, 0.6, 0.6, 0.6], number=0)
    good = curve([0.0, 0.5, 0.8, 0.8], number=1)
    poor = curve([0.0, 0.1, 0.3, 0.39], number=2)  # less than half of the way to 0.8
    lost = curve([0.0, 0.9], number=3, state="DIVERGED")
    method = frontier_document("s", [fast, good, poor, lost], Chosen(), 3)["methods"]["fedavg"]
    shown = [(point["trial"][-1], point["cost"], point["quality"], point["pareto"]) for point in method["points"]]
    assert shown == [("0", 1.0, 0.6, True), ("1", 2.0, 0.8, True)]
    assert method["frontier"] == [
        {"cost": 1.0, "quality": 0.6, "low": 0.6, "high": 0.6},
        {"cost": 2.0, "quality": 0.8, "low": 0.8, "high": 0.8},
        {"cost": 3.0, "quality": 0.8, "low": 0.8, "high": 0.8},
    ]
    share = np.log10(2) / np.log10(3)
    assert method["hypervolume"] == pytest.approx(share * 0.75 + (1 - share) * 1.0)
    assert (method["diverged"], method["not_counted"], method["failed"]) == (1, 1, 0)
    assert method["ledger"] == {"trials": 4, "rounds": 10, "client_gradients": 100, "bytes": 8000}
    assert method["granted"] == {"trials": 4, "cost": 12.0}  # the diverged one was granted its three rounds


def test_a_setting_keeps_the_seeds_on_which_it_failed_to_learn() -> None:
    """Leaving them out would flatter it: one seed of three stays near the start, one diverges."""
    tails = {1: 1.0, 2: 0.9, 3: 0.1}
    front = [
        curve([0.0, end, end], phase="confirmation", number=number, seed=seed, configuration=5)
        for number, (seed, end) in enumerate(tails.items())
    ]
    (configuration,) = frontier_document("s", front, Chosen(), 2)["methods"]["fedavg"]["configurations"]
    assert (configuration["quality"], configuration["low"], configuration["high"]) == (0.9, 0.1, 1.0)
    assert (configuration["seeds"], configuration["counted"], configuration["diverged"], configuration["pareto"]) == (
        3,
        2,
        0,
        True,
    )
    lost = curve([0.0, 9.0], phase="confirmation", number=2, seed=3, configuration=5, state="DIVERGED")
    (configuration,) = frontier_document("s", [*front[:1], front[2], lost], Chosen(), 2)["methods"]["fedavg"][
        "configurations"
    ]
    assert (configuration["seeds"], configuration["counted"], configuration["diverged"], configuration["pareto"]) == (
        3,
        1,
        1,
        False,
    )


def test_bands_over_seeds_by_hand() -> None:
    ends = {1: 0.6, 2: 0.8, 3: 1.0}
    front = [
        curve(
            [0.0, end / 2, end, end],
            phase="confirmation",
            number=number,
            seed=seed,
            configuration=5,
            hyperparameters={"lr": 0.1},
        )
        for number, (seed, end) in enumerate(ends.items())
    ]
    search = [curve([0.0, 5.0, 5.0, 5.0], number=5)]  # better than all, but the front has been repeated
    method = frontier_document("s", [*search, *front], Chosen(), 3)["methods"]["fedavg"]
    assert [(row["quality"], row["low"], row["high"]) for row in method["frontier"]] == [
        (0.4, 0.3, 0.5),
        (0.8, 0.6, 1.0),
        (0.8, 0.6, 1.0),
    ]
    (configuration,) = method["configurations"]
    assert (
        configuration["configuration"],
        configuration["cost"],
        configuration["quality"],
        configuration["low"],
        configuration["high"],
    ) == (
        5,
        2,
        0.8,
        0.6,
        1,
    )
    assert (configuration["seeds"], configuration["counted"], configuration["pareto"]) == (3, 3, True)
    assert [row["seed"] for row in method["hypervolume_seeds"]] == [1, 2, 3]
    volumes = [row["hypervolume"] for row in method["hypervolume_seeds"]]
    assert method["hypervolume"] == volumes[1]
    assert method["hypervolume_band"] == {"low": volumes[0], "high": volumes[2]}
    assert method["reported"] == {"phase": "confirmation", "trials": 3, "diverged": 0, "seeds": [1, 2, 3]}


def test_a_seed_where_all_diverged_has_reached_nothing() -> None:
    front = [
        curve(
            [0.1, 0.5, 1.0],
            phase="confirmation",
            number=seed,
            seed=seed,
            configuration=0,
            state="COMPLETE" if seed < 3 else "DIVERGED",
        )
        for seed in (1, 2, 3)
    ]
    method = frontier_document("s", front, Chosen(), 2)["methods"]["fedavg"]
    assert method["frontier"][-1] == {"cost": 2.0, "quality": 1.0, "low": 0.1, "high": 1.0}
    assert method["hypervolume_band"]["low"] == 0.0
    assert all(point["seed"] < 3 for point in method["points"])


@settings(max_examples=40)
@given(RATES, st.randoms())
def test_invariants(rates: list[tuple[str, float, float, int]], random: object) -> None:
    trials = made(rates)
    result = frontier_document("s", trials, Chosen(), 20)
    shuffled = list(trials)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert frontier_document("s", shuffled, Chosen(), 20, list(result["methods"])) == frontier_document(
        "s", trials, Chosen(), 20, list(result["methods"])
    )
    for method in result["methods"].values():
        on = [point for point in method["points"] if point["pareto"]]
        for a in on:
            for b in on:
                same = (a["cost"], a["quality"]) == (b["cost"], b["quality"])
                assert same or not (a["cost"] <= b["cost"] and a["quality"] >= b["quality"])
        qualities = [row["quality"] for row in method["frontier"]]
        assert qualities == sorted(qualities)
        assert 0 <= method["hypervolume"] <= 1


@settings(max_examples=40)
@given(RATES)
def test_a_loss_is_an_accuracy_upside_down(rates: list[tuple[str, float, float, int]]) -> None:
    rising = frontier_document("s", made(rates), Chosen(), 20)["methods"]
    falling = frontier_document("s", made(rates, -1.0, "test_loss"), Chosen("test_loss"), 20)["methods"]
    for label, method in rising.items():
        other = falling[label]
        assert other["hypervolume"] == method["hypervolume"]
        assert [(p["trial"], p["cost"], -p["quality"], p["pareto"]) for p in other["points"]] == [
            (p["trial"], p["cost"], p["quality"], p["pareto"]) for p in method["points"]
        ]
        assert [(r["cost"], -r["quality"], -r["high"], -r["low"]) for r in other["frontier"]] == [
            (r["cost"], r["quality"], r["low"], r["high"]) for r in method["frontier"]
        ]


@settings(max_examples=30)
@given(RATES, st.sampled_from(["DIVERGED", "FAILED", "RUNNING", "frozen"]))
def test_what_is_no_result_is_no_point(rates: list[tuple[str, float, float, int]], kind: str) -> None:
    extra = curve([0.0, 9.0, 9.0], number=99, label="a", seed=1, state="DIVERGED" if kind == "frozen" else kind)
    if kind == "frozen":
        extra = curve([0.0] * 21, number=99, label="a", seed=1)
    before = frontier_document("s", made([("a", 0.5, 1.0, 1), *rates]), Chosen(), 20)["methods"]["a"]
    after = frontier_document("s", [*made([("a", 0.5, 1.0, 1), *rates]), extra], Chosen(), 20)["methods"]["a"]
    assert after["points"] == before["points"]
    assert after["frontier"] == before["frontier"]
    assert after["hypervolume"] == before["hypervolume"]
    assert after["diverged"] - before["diverged"] == (kind == "DIVERGED")
    assert after["failed"] - before["failed"] == (kind == "FAILED")


def test_costs_other_than_rounds_share_one_scale() -> None:
    cheap, dear = curve([0.0, 1.0, 1.0], gradients=10), curve([0.0, 1.0, 1.0], gradients=100, label="dear")
    result = frontier_document("s", [cheap, dear], Chosen(cost="client_gradients"), 2)
    assert (result["scale"]["one_round"], result["scale"]["budget"]) == (10.0, 200.0)
    assert result["methods"]["fedavg"]["hypervolume"] == 1.0
    assert result["methods"]["dear"]["hypervolume"] == pytest.approx(np.log10(2) / np.log10(20))


def test_studies_without_results() -> None:
    empty = frontier_document("s", [], Chosen(), 10, ["fedavg", "fedprox"])
    assert list(empty["methods"]) == ["fedavg", "fedprox"]
    assert empty["methods"]["fedavg"]["frontier"] == []
    assert empty["methods"]["fedavg"]["hypervolume"] == 0.0
    assert "no point yet" in table(empty)
    all_diverged = frontier_document("s", [curve([1.0, 2.0], state="DIVERGED")], Chosen(), 10)
    assert all_diverged["methods"]["fedavg"]["points"] == []
    assert all_diverged["methods"]["fedavg"]["diverged"] == 1
    running = frontier_document("s", [curve([0.1], state="RUNNING")], Chosen(), 10)
    assert running["methods"]["fedavg"]["ledger"]["trials"] == 1
    nothing = TrialCurve("t", "fedavg", "search", 0, 0, None, {}, "DIVERGED", {})
    assert frontier_document("s", [nothing], Chosen(), 10)["methods"]["fedavg"]["granted"] == {
        "trials": 1,
        "cost": 10.0,
    }
    with pytest.raises(InvalidSpec, match="did you mean rounds"):
        frontier_document("s", [], Chosen(cost="round"), 10)


def test_table_fits_a_terminal() -> None:
    trials = [replace(trial, label=f"{trial.label}-with-a-rather-long-label-indeed") for trial in study()]
    for chosen in (Chosen(), Chosen("test_loss", "bytes")):
        text = table(frontier_document("digits", trials, chosen, 200))
        assert max(len(line) for line in text.splitlines()) <= 80
        assert "client_lr" in text
        assert "hypervolume" in text


def test_table_by_hand() -> None:
    fast, good = curve([0.0, 0.6, 0.6, 0.6], number=0), curve([0.0, 0.5, 0.8, 0.8], number=1)
    lines = table(frontier_document("small", [fast, good], Chosen(), 3)).splitlines()
    assert lines[0] == "small: test_accuracy (rises) against rounds"
    assert lines[3].split() == ["fedavg", "0.842", "0.8", "2", "2", "0"]
    assert lines[-4:] == [
        "fedavg: frontier, search, 1 seed",
        "  rounds  test_accuracy  hyperparameters",
        "       1  0.6            client_lr 0.1",
        "       2  0.8            client_lr 0.2",
    ]


def test_trials_csv() -> None:
    trials = [
        curve([0.0, 0.6, 0.6, 0.6], number=0, hyperparameters={"client_lr": 0.1, "server.momentum": 0.9}),
        curve([0.0, 7.0], number=1, state="DIVERGED", hyperparameters={"client_lr": 9.0, "tied": True}),
    ]
    rows = list(
        csv.DictReader(io.StringIO(trials_csv(trials, frontier_document("s", trials, Chosen(), 3), Chosen(), 3)))
    )
    assert [row["trial"] for row in rows] == ["study.fedavg.s00000", "study.fedavg.s00001"]
    first, second = rows
    assert (first["state"], first["quality"], first["cost_to_settle"], first["counted"]) == (
        "COMPLETE",
        "0.6",
        "1",
        "true",
    )
    assert (first["client_lr"], first["server.momentum"], first["tied"]) == ("0.1", "0.9", "")
    assert (second["state"], second["quality"], second["speed"], second["pareto"]) == ("DIVERGED", "", "", "false")
    assert (second["rounds_done"], second["bytes_up"], second["tied"]) == ("1", "400", "true")


def test_result_of_a_stored_study() -> None:
    moment = "2026-01-01T00:00:00Z"
    spec = {
        "name": "stored",
        "task": {"name": "digits"},
        "methods": [{"label": "a", "name": "fedavg"}, {"label": "b", "name": "fedprox"}],
        "objective": {"quality": "test_accuracy", "cost": "rounds"},
        "budget": {"trials_per_method": 1, "rounds": 3},
    }
    record = StudyRecord.model_validate(
        {"id": "s", "name": "stored", "spec": spec, "created_at": moment, "updated_at": moment}
    )
    trial = {
        "id": "s.a.s00000",
        "study_id": "s",
        "label": "a",
        "phase": "search",
        "configuration": 0,
        "number": 0,
        "seed": 0,
        "state": "COMPLETE",
    }
    trials = [TrialRecord.model_validate(trial | {"hyperparameters": {}, "created_at": moment, "updated_at": moment})]
    columns = {
        "s.a.s00000": {
            "round": [0, 1, 2, 3],
            "test_accuracy": [0.0, None, 0.5, 1.0],
            "bytes_up": [0, 1, 2, 3],
            "bytes_down": [0, 1, 2, 3],
        }
    }
    result = study_result(record, trials, columns)
    assert result.document["methods"]["a"]["points"][0]["cost"] == 3.0
    assert json.loads(result.file("frontier.json")) == result.document
    assert study_result(record, trials, columns, cost="bytes").document["methods"]["a"]["points"][0]["cost"] == 6.0
