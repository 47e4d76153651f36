"""Studies whose configurations are tried with several settings of their schedule: real store, real packs, no Ray."""

from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from driftline.study.spec import Study
from service.api.computed_results import computed_frontier
from service.driver.search.study_plan import decided
from tests.driver.store_client import StoreClient
from tests.driver.test_reproducible import check_disturbed, learning
from tests.driver.test_search import NO_CLOCK, alone, begun, facts, ran

OWN = NO_CLOCK | {"shared_gradients"}


def branching(trials: int = 12, budget: dict[str, Any] | None = None, **entry: Any) -> Study:
    """Trunks of 4 trials."""
    rates = {"client_lr": {"float": [1e-2, 0.5], "log": True}, "server_lr": {"float": [1e-2, 1e5], "log": True}}
    decay = {"window": {"int": [1, 3]}, "cooldown": {"int": [0, 6]}, "client_decay": {"choice": [0.1, 0.5]}}
    method = {
        "name": "fedavg",
        "space": {**rates, "local_steps": {"choice": [1, 2]}},
        "schedule": {"name": "plateau", "space": {**decay, "min_delta": 0.5}},
    }
    size = {"trials_per_method": trials, "rounds": 12, "branches": 4, "seeds": 2, "confirm": 4}
    own = {"methods": [{**method, **entry}], "budget": {**size, **(budget or {})}, "resources": {"gpu": 0}}
    return learning(trials, **own, seed=2)


def trunk(hyperparameters: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in hyperparameters.items() if not name.startswith("schedule.")}


@pytest.mark.parametrize("sampler", ["tpe", "random", "quasi_random", "nsga2", "gp"])
def test_trials_of_a_trunk_differ_in_their_schedules_only(client: StoreClient, tmp_path: Path, sampler: str) -> None:
    start = [{"client_lr": 0.1}, {"client_lr": 0.2}]
    study = branching(12, {"seeds": 0, "rounds": 2}, start=start).model_copy(update={"sampler": sampler})
    trials = client.store.trials.find(ran(client, study, tmp_path), phase="search")
    assert [trial.number for trial in trials] == list(range(12))
    assert [trial.hyperparameters["client_lr"] for trial in trials[:2]] == [0.1, 0.2], "starting points, as they are"
    trunks = [trunk(trial.hyperparameters) for trial in trials]
    assert trunks[2] == trunks[3] == trunks[0]
    for first in (4, 8):
        assert trunks[first : first + 4] == [trunks[first]] * 4
        assert len({str(trial.hyperparameters) for trial in trials[first : first + 4]}) > 1
        assert len({trial.pack for trial in trials[first : first + 4]}) == 1
    assert trunks[0] != trunks[4] != trunks[8]


def test_searches_have_trunks_of_their_own(client: StoreClient, tmp_path: Path) -> None:
    study = branching(16, {"searches": 2, "seeds": 0, "rounds": 2})
    trials = client.store.trials.find(ran(client, study, tmp_path), phase="search")
    for search in (0, 1):
        trunks = [str(trunk(trial.hyperparameters)) for trial in trials[search::2]]
        assert [len(list(group)) for _, group in groupby(trunks)] == [4, 4]


@pytest.mark.parametrize("rungs", [None, [4]], ids=["no rungs", "rungs"])
def test_trials_have_the_bits_of_trials_that_are_trained_alone(
    client: StoreClient, tmp_path: Path, rungs: list[int] | None
) -> None:
    study = branching(12, {} if rungs is None else {"rungs": rungs})
    study_id = ran(client, study, tmp_path)
    trials, curves = client.store.trials.find(study_id), client.store.curves.columns(study_id)
    for trial in trials:
        lines = alone(study, trial)
        last = len(curves[trial.id]["round"])
        assert last == len(lines["round"]) or trial.state == "STOPPED"
        for name, values in curves[trial.id].items():
            assert name in OWN or values == lines[name][:last], name
    ledger = computed_frontier(client.store, study_id)["methods"]["fedavg"]["ledger"]
    last_of = {
        name: [curve[name][-1] for curve in curves.values()] for name in ("client_gradients", "shared_gradients")
    }
    assert ledger["client_gradients"] == sum(last_of["client_gradients"])
    assert ledger["shared_gradients"] == sum(last_of["shared_gradients"])
    assert 0.1 < ledger["shared_gradients"] / ledger["client_gradients"] < 0.75


@pytest.mark.parametrize("rungs", [None, [4]], ids=["no rungs", "rungs"])
def test_neither_workers_nor_deaths_change_a_trial(
    client: StoreClient, tmp_path: Path, rungs: list[int] | None
) -> None:
    study = branching(10, {} if rungs is None else {"rungs": rungs}, start=[{"server_lr": 1e5}])
    whole = ran(client, study, tmp_path / "whole")
    assert {fact[1] for fact in facts(client, whole)} >= {"COMPLETE", "DIVERGED"}
    check_disturbed(client, study, tmp_path, whole, least=2)


def test_a_wide_confirmation_pack_whose_worker_dies_at_once_is_trained_again(
    client: StoreClient, tmp_path: Path
) -> None:
    """It has no plan yet, and more trials than a pack of the search."""
    study = branching(12, {"seeds": 1, "confirm": 8, "rounds": 2})
    study_id, bench = begun(client, study, tmp_path, slots=1)
    while (pack := bench.start()) and bench.search.table.trials[
        bench.search.table.packs[pack].trials[0]
    ].phase == "search":
        while pack in bench.workers:
            bench.step(pack)
    assert len(bench.search.table.packs[pack].trials) == 8 > bench.search.plan.width
    bench.kill(pack)
    bench.run()
    assert bench.search.outcome() == ("SUCCEEDED", "")
    assert not any(trial.error for trial in client.store.trials.find(study_id))


def test_entries_without_branches_share_products_instead(client: StoreClient, tmp_path: Path) -> None:
    study = branching(8, {"rounds": 2}).to_json()
    space = {"client_lr": {"float": [0.01, 0.1]}, "server_lr": 1.0, "local_steps": 2}
    constant = {"name": "fedavg", "label": "constant", "space": space}
    both = Study.from_json(study | {"methods": [*study["methods"], constant]})
    trials = client.store.trials.find(ran(client, both, tmp_path))
    assert {(trial.label, trial.plan["separate"]) for trial in trials if trial.plan} == {
        ("fedavg", True),
        ("constant", False),
    }


@pytest.mark.parametrize("sampler", ["tpe", "quasi_random"])
def test_a_proposal_that_repeats_a_configuration_with_the_trunk_stays(
    client: StoreClient, tmp_path: Path, sampler: str
) -> None:
    schedule = {"name": "plateau", "space": {"client_decay": {"choice": [0.1, 0.5]}}}
    study = branching(12, {"seeds": 0, "rounds": 1}, schedule=schedule).model_copy(update={"sampler": sampler})
    trials = client.store.trials.find(ran(client, study, tmp_path), phase="search")
    tried = [trial.hyperparameters for trial in trials]
    assert all(one not in tried[:number] for number, one in enumerate(tried))
    for first in (0, 4, 8):
        own = [trunk(one) == trunk(tried[first]) for one in tried[first : first + 4]]
        assert sum(own) == 2, "as many as there are schedules"


def test_a_proposal_that_breaks_a_constraint_with_the_trunk_stays(client: StoreClient, tmp_path: Path) -> None:
    rule = "client_lr <= 0.02 * schedule.window"
    study = branching(12, {"seeds": 0, "rounds": 2}, constraints=[rule])
    trials = client.store.trials.find(ran(client, study, tmp_path), phase="search")
    values = [trial.hyperparameters for trial in trials]
    assert all(one["client_lr"] <= 0.02 * one["schedule.window"] + 1e-9 for one in values)
    assert len({str(trunk(one)) for one in values}) < len(values)


def test_generations_and_packs_hold_whole_trunks() -> None:
    budget = branching(64, {"branches": 6}).budget
    assert decided(budget, branching().resources, "tpe").model_dump(include={"generation", "width"}) == {
        "generation": 12,
        "width": 6,
    }
    four = branching().resources.model_copy(update={"packs": 16})
    assert decided(budget, four, "tpe").width == 12
    assert decided(budget, four.model_copy(update={"packs": 4}), "tpe").width == 4
    assert decided(branching(64).budget, branching().resources, "tpe").confirmation_width == 4
