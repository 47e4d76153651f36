"""Replayed searches whose trials stop early at rungs."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import service.replay.simulation as simulation
from driftline.errors import InvalidSpec
from driftline.results import objectives
from driftline.results.curves import TrialCurve
from driftline.results.recorded_table import write
from driftline.study.budget import Budget
from service.driver.search.study_plan import rounded
from service.replay.simulation import Replay
from service.samplers.build import build
from tests.command_line import printed
from tests.replay.test_simulation import LABELS, table

RUNGS = (1, 2, 4)


def budget_of(rungs: Any, **changes: Any) -> Budget:
    return Budget(**{"trials_per_method": 32, "rounds": 4, "confirm": 4, "seeds": 3, "rungs": rungs, **changes})


def searched(sampler: Any, rungs: Any, seed: int = 0) -> list[TrialCurve]:
    replay = Replay(table(), LABELS, budget_of(rungs), sampler)
    return [trial for trial in replay.trials(seed) if trial.phase == "search"]


@pytest.mark.parametrize("sampler", ["random", {"name": "tpe", "startup": 4}], ids=["random", "tpe"])
def test_a_third_of_each_generation_passes_a_rung(sampler: Any) -> None:
    trials = searched(sampler, RUNGS[:2], seed=1)
    assert {trial.state for trial in trials} == {"COMPLETE", "STOPPED", "DIVERGED"}
    for generation in range(8):
        own = trials[4 * generation : 4 * generation + 4]
        lasted = [sum(trial.rounds_done > rung for trial in own) for rung in (0, 1, 2)]
        assert lasted[0] == 4
        assert lasted[1] == 2, "a third, rounded up"
        assert 1 <= lasted[2] <= 2, "a third, rounded up, or both ends of the Pareto set"
    assert all(trial.rounds_done in RUNGS for trial in trials)
    assert all(trial.rounds_done == 4 for trial in trials if trial.state == "COMPLETE")


def test_extrapolation_continues_at_most_half_of_a_generation() -> None:
    trials = searched("random", {"at": [1, 2], "rule": "extrapolation"})
    assert {trial.state for trial in trials} >= {"COMPLETE", "STOPPED"}
    for generation in range(8):
        own = trials[4 * generation : 4 * generation + 4]
        assert sum(trial.rounds_done > 1 for trial in own) <= 2


def test_without_rungs_all_trials_are_the_same_as_before() -> None:
    assert {trial.state for trial in searched("random", None)} == {"COMPLETE", "DIVERGED"}
    whole, early = searched("random", None), searched("random", RUNGS)
    assert [trial.trial for trial in whole] == [trial.trial for trial in early]
    for full, part in zip(whole, early, strict=True):
        kept = full.columns["test_loss"][: len(part.rounds)]
        np.testing.assert_array_equal(part.columns["test_loss"], kept)


def test_a_trial_that_diverges_later_was_stopped_before_it_diverged() -> None:
    """Every eleventh configuration of the table diverges in round 2."""
    trials = searched("random", (1,), seed=1)
    assert {trial.rounds_done for trial in trials if trial.state == "DIVERGED"} <= {2}
    assert {trial.rounds_done for trial in trials if trial.state == "STOPPED"} == {1}


def test_samplers_hear_values_at_rungs_that_trials_have_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class Spy:
        def __init__(self, *given: Any, **more: Any) -> None:
            self.inner, self.heard = build(*given, **more), {}
            self.ask, self.pending = self.inner.ask, self.inner.pending
            made.append(self)

        def tell(self, number: int, hyperparameters: Any, values: Any, diverged: bool = False) -> None:
            self.heard[number] = (values, diverged)
            self.inner.tell(number, hyperparameters, values, diverged)

    monkeypatch.setattr(simulation, "build", Spy)
    trials = searched({"name": "tpe", "startup": 4}, RUNGS)
    assert len(made) == len(RUNGS)
    for rung, spy in zip(RUNGS, made, strict=True):
        expected: dict[int, Any] = {}
        for trial in trials[:24]:  # the last two generations are never told
            if trial.state == "DIVERGED":
                expected[trial.number] = (None, True)
            elif trial.rounds_done >= rung:
                part = trial.until(rung)
                assert part.rounds_done == rung
                expected[trial.number] = (rounded(objectives.values(part, "test_loss", "rounds")), False)
        assert spy.heard == expected


def test_stopped_configurations_are_confirmed_as_others_are() -> None:
    """More are confirmed than have trained to the end."""
    replay = Replay(table(), LABELS, budget_of([1], confirm=16))
    trials = replay.trials(0)
    states = {trial.configuration: trial.state for trial in trials if trial.phase == "search"}
    confirmed = {trial.configuration for trial in trials if trial.phase == "confirmation"}
    assert len(confirmed) == 16
    assert {states[configuration] for configuration in confirmed} == {"COMPLETE", "STOPPED"}


def test_rungs_between_the_rounds_of_the_table_are_refused() -> None:
    whole = table()
    rounds = [0, 1, 2, 4]
    thinned = [
        replace(trial, columns={name: values[np.isin(trial.rounds, rounds)] for name, values in trial.columns.items()})
        for trial in whole.trials
    ]
    given = replace(whole, trials=thinned)
    Replay(given, LABELS, budget_of([1, 2]))
    with pytest.raises(InvalidSpec, match=r"rungs: round 3 was not recorded for fedavg: .* such as 2"):
        Replay(given, LABELS, budget_of([1, 3]))


def test_the_command_takes_rungs(tmp_path: Path) -> None:
    path = str(tmp_path / "table.parquet")
    write(table(), Path(path))
    words = ["replay", path, "--trials", "12", "--confirm", "4", "--seeds", "3", "--studies", "2", "--json"]
    found = [json.loads(printed(*words, *more)) for more in ([], ["--rungs", "1,2"])]
    assert found[1]["budget"] == {**found[0]["budget"], "rungs": [1, 2]}
    by_rule = json.loads(printed(*words, "--rungs", "1,2", "--rule", "extrapolation"))
    assert by_rule["budget"]["rungs"] == {"at": [1, 2], "rule": "extrapolation"}
    with pytest.raises(InvalidSpec, match="rungs: must be auto or a list of increasing numbers"):
        printed(*words, "--rungs", "1,x")
    with pytest.raises(InvalidSpec, match="--rule: needs rungs"):
        printed(*words, "--rule", "extrapolation")
