"""What people call first on a result: what to run for a cost, as numbers, as a trial, and as data frames."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from driftline import Frontier, Recommendation, Study
from driftline.errors import DriftlineError, InvalidSpec, NotFound
from driftline.results.document import Reading, frontier_document
from driftline.results.show.number_text import banded, number
from driftline.results.study_result import study_result
from driftline.sdk.frames import CurvesByTrial, TrialRecords
from driftline.sdk.job import Job
from driftline.study.trial_document import trial_document
from driftline.wire.records import TrialRecord
from tests.commands.conftest import STUDY
from tests.results.samples import curve, study
from tests.results.test_show import data
from tests.wire.made_records import study_record, trial_record
from trainers.run import run

READINGS = [Reading("test_accuracy", "rounds"), Reading("test_loss", "bytes")]


@pytest.fixture(scope="module", params=READINGS, ids=lambda reading: f"{reading.quality}-{reading.cost}")
def frontier(request: pytest.FixtureRequest) -> Frontier:
    return Frontier(frontier_document("digits", study(trials=16, confirm=3), request.param, 200))


def step(rows: list[dict[str, Any]], cost: float) -> dict[str, Any]:
    """The row of a step function of the document."""
    return [row for row in rows if row["cost"] <= cost][-1]


def test_the_best_at_the_end_of_a_row_are_the_numbers_of_the_table(frontier: Frontier) -> None:
    lines = frontier.table().splitlines()
    assert len(frontier.recommendations) > len(frontier.labels)
    for row in frontier.recommendations:
        assert frontier.best(row.label, cost=row.cost) == row
        cells = [number(row.cost), str(row.rounds), *banded(row.quality, row.low, row.high).split()]
        assert any(line.split()[: len(cells)] == cells for line in lines), cells


def test_the_best_between_the_rows_is_that_of_the_document(frontier: Frontier) -> None:
    ends = {(row.label, row.cost) for row in frontier.recommendations}
    for label, method in frontier.data["methods"].items():
        for one in method["recommendations"]:
            cost = one["cost"]
            if (label, cost) in ends:
                continue
            found, expected = frontier.best(label, cost=cost), step(method["frontier"], cost)
            assert (found.configuration, found.rounds) == (one["configuration"], one["round"])
            assert (found.quality, found.low, found.high) == tuple(expected[key] for key in ("quality", "low", "high"))
            assert found.phase == "confirmation"


def test_training_never_costs_more_than_was_asked_for() -> None:
    frontier = Frontier(frontier_document("digits", study(("fedavg",), 16, confirm=3), READINGS[0], 200))
    assert all(frontier.best(cost=cost).rounds <= cost for cost in range(1, 201))
    assert frontier.best(cost=10_000.0).rounds == frontier.best().rounds


def test_without_a_cost_it_is_the_end_and_without_a_label_the_best_one(frontier: Frontier) -> None:
    metric = frontier.data["definitions"]["parameters"]["metric"]
    ends = {label: frontier.best(label) for label in frontier.labels}
    for label, method in frontier.data["methods"].items():
        assert ends[label].quality == method["frontier"][-1]["quality"]
        assert ends[label].cost == frontier.data["scale"]["last"]
    best = (max if metric == "test_accuracy" else min)(ends.values(), key=lambda one: one.quality)
    assert frontier.best() == best
    assert len({one.quality for one in ends.values()}) == 3
    numbers = {one["configuration"]: one for one in frontier.configurations if one["label"] == best.label}
    assert best.hyperparameters == numbers[best.configuration]["hyperparameters"]


def test_what_cannot_be_recommended_is_an_error(frontier: Frontier) -> None:
    with pytest.raises(NotFound, match=r'no label "fedavgg" .*fedavg'):
        frontier.best("fedavgg")
    with pytest.raises(InvalidSpec, match=r"^cost: must be at least \S+ (rounds|bytes), got 0.5$"):
        frontier.best(cost=0.5)
    with pytest.raises(InvalidSpec, match="must be at least"):
        frontier.best(cost=float("nan"))
    with pytest.raises(InvalidSpec, match=r'^cost: must be a number of (rounds|bytes), got "24"$'):
        frontier.best(cost="24")  # type: ignore[arg-type]
    empty = Frontier(frontier_document("digits", [], READINGS[0], 200, ["fedavg"]))
    assert empty.recommendations == empty.configurations == []
    with pytest.raises(NotFound, match="nothing to recommend for fedavg yet"):
        empty.best("fedavg")


def test_a_configuration_that_diverged_later_is_named_as_such() -> None:
    trial = curve([0.1, 0.6, 0.5, 0.1], state="DIVERGED")
    frontier = Frontier(frontier_document("s", [trial], READINGS[0], 3))
    with pytest.raises(NotFound, match="diverged later on every seed"):
        frontier.best(cost=1)
    other = curve([0.1, 0.4, 0.4, 0.4], label="fedprox")
    both = Frontier(frontier_document("s", [trial, other], READINGS[0], 3))
    assert both.best(cost=1).label == "fedprox"


def test_a_recommendation_is_a_trial_that_runs() -> None:
    whole = Study.from_json(json.loads(json.dumps(STUDY)))
    settings = {"client_lr": 0.02, "server_lr": 0.05, "local_steps": 3}
    best = Recommendation("fedavg", 1, settings, 7, 9.0, 0.1, 0.1, 0.2, "confirmation")
    lines = list(run(json.loads(json.dumps(best.trial(whole, seed=3)))))
    assert lines[-1]["round"] == 7
    theirs = list(run(trial_document(whole, "fedavg", [settings], 3)))
    assert [line["train_loss"] for line in theirs[:8]] == [line["train_loss"] for line in lines]
    with pytest.raises(InvalidSpec, match="no entry"):
        Recommendation(**{**asdict(best), "label": "other"}).trial(whole)


def test_all_readings_of_a_jobs_page_know_the_searches(tmp_path: Path) -> None:
    whole = Study(
        name="s", task="digits", methods=["fedavg"], budget={"trials_per_method": 4, "rounds": 2, "searches": 2}
    )
    trials: list[TrialRecord] = []
    curves: dict[str, Any] = {}
    for configuration in range(4):
        for seed in range(3):
            phase = "confirmation" if seed else "search"
            one = trial_record(configuration, id=f"{configuration}-{seed}", seed=seed, phase=phase, state="COMPLETE")
            accuracy = [0.1, 0.2 + 0.1 * configuration, 0.3 + 0.1 * configuration + 0.01 * seed]
            trials.append(one)
            loss = [1 - value for value in accuracy]
            curves[one.id] = {"round": [0, 1, 2], "test_loss": loss, "test_accuracy": accuracy}
            curves[one.id] |= {"bytes_up": [0, 8, 16], "bytes_down": [0, 8, 16]}
    stored = study_record(state="SUCCEEDED", spec=whole.to_json())
    api: Any = SimpleNamespace(
        study=lambda _: stored,
        trials=lambda _, **__: trials,
        curves=lambda *_: curves,
        frontier=lambda _: study_result(stored, trials, curves).document,
    )
    page = Job(api, "01k6").frontier().plot(tmp_path / "frontier.html").read_text()
    readings = data(page)["readings"]
    assert len(readings) > 2
    assert {len(reading["frontiers"][0]["cost"]) for reading in readings} >= {2}


def test_trials_as_a_frame_have_the_metrics_own_sign() -> None:
    records = [
        trial_record(0, state="COMPLETE", rounds_done=9, values={"quality": -0.25, "speed": 0.5}),
        trial_record(1, state="FAILED", error="its worker died", hyperparameters={"server.momentum": 0.9}),
    ]
    falling, rising = (TrialRecords(records, metric).to_frame() for metric in ("test_loss", "test_accuracy"))
    assert falling["quality"].tolist()[0] == 0.25
    assert rising["quality"].tolist()[0] == -0.25
    assert falling["quality"].isna().tolist() == [False, True]
    assert falling["trial"].tolist() == [one.id for one in records]
    assert falling["rounds_done"].tolist() == [9, 0]
    assert list(falling.columns[-2:]) == ["client_lr", "server.momentum"]
    assert falling["client_lr"].isna().tolist() == [False, True]
    assert falling["error"].tolist()[1] == "its worker died"
    assert len(TrialRecords([], "test_loss").to_frame()) == 0


def test_curves_as_a_frame_have_a_row_for_each_report() -> None:
    one = {"round": [0, 1, 2], "test_loss": [2.0, None, 1.0]}
    curves = CurvesByTrial({"a": one, "b": {"round": [0], "distance": [3.0]}, "c": {}})
    frame = curves.to_frame()
    assert list(frame.columns) == ["trial", "round", "test_loss", "distance"]
    assert frame["trial"].tolist() == ["a", "a", "a", "b"]
    assert frame["round"].tolist() == [0, 1, 2, 0]
    assert frame["test_loss"].isna().tolist() == [False, True, False, True]
    assert frame["test_loss"].sum() == 3.0
    assert curves["a"] == one


def test_a_frontier_as_a_frame_has_a_row_for_each_step(frontier: Frontier) -> None:
    frame = frontier.to_frame()
    for label, method in frontier.data["methods"].items():
        part = frame[frame["label"] == label]
        expected = [{key: row[key] for key in ("cost", "quality", "low", "high")} for row in method["frontier"]]
        assert part.drop(columns="label").to_dict("records") == expected


def test_without_pandas_the_error_says_what_to_install(frontier: Frontier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(DriftlineError, match="pip install pandas"):
        frontier.to_frame()


@pytest.mark.parametrize("text", ["no JSON", "[]", '{"scale": 3}'])
def test_what_is_no_result_is_not_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "frontier.json").write_text(text)
    with pytest.raises(InvalidSpec, match=r"^path: must be a frontier\.json or a folder that holds one, got "):
        Frontier.read(tmp_path)
