"""Replayed studies: against a real study, twice the same, and within their budget."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from driftline.errors import Conflict, InvalidSpec, NotFound
from driftline.results.comparison import compare
from driftline.results.recorded_table import RecordedTable, read, recorded, write
from driftline.study.budget import Budget
from driftline.study.spec import Study
from service.api.computed_results import computed_frontier
from service.replay.simulation import Replay
from service.replay.summary import possible, share, summary
from service.samplers.random import Sampler
from service.store.store import Store
from tests.command_line import printed, refusal
from tests.driver.store_client import StoreClient
from tests.driver.test_reproducible import learning
from tests.driver.test_search import ran
from tests.new_stores import empty_database
from tests.results.samples import curve
from tests.results.test_recorded_table import study

LABELS = ("fedavg",)


@cache
def table(configurations: int = 40, seeds: int = 14) -> RecordedTable:
    """Losses that fall at a rate of their own, noisy; every eleventh configuration diverges."""
    whole = study()
    sampler = Sampler(whole.entry("fedavg").parameters(), (), 0)
    trials = []
    for number in range(configurations):
        hyperparameters = sampler.ask(number)
        rate = 1 / (1 + abs(np.log10(hyperparameters["client_lr"])))
        for seed in range(seeds):
            noise = np.random.default_rng([number, seed]).normal(0, 0.05, 5)
            losses = 2.0 * np.exp(-rate * np.arange(5) + noise * (np.arange(5) > 0))
            lost = number % 11 == 10
            trials.append(
                curve(
                    losses[:3] if lost else losses,
                    metric="test_loss",
                    number=number,
                    seed=seed,
                    state="DIVERGED" if lost else "COMPLETE",
                    hyperparameters=hyperparameters,
                )
            )
    return recorded(whole, trials)


def budget_of(trials: int, **parts: Any) -> Budget:
    return Budget(trials_per_method=trials, rounds=1, **parts)


BUDGET = budget_of(12, searches=2, confirm=4, seeds=3)


def test_a_replay_agrees_with_the_study_that_was_recorded(tmp_path: Path) -> None:
    """All configurations of the real study are confirmed, so its table is complete. TPE learns from generation 3 on."""
    whole = learning(
        14,
        task={"name": "quadratic", "hessians": [[[4.0]], [[1.0]]], "centers": [[1.0], [-1.0]], "gradient_noise": 0.1},
        budget={"trials_per_method": 14, "rounds": 4, "seeds": 3, "confirm": 14},
    )
    store = Store(empty_database(tmp_path / "driftline.db"))
    client = StoreClient(store)
    real = computed_frontier(store, ran(client, whole, tmp_path / "checkpoints"))
    store.close()
    said = printed("export", str(tmp_path), str(tmp_path / "table.parquet"))
    assert "plain: 14 configurations on all 4 seeds" in said
    exported = read(tmp_path / "table.parquet")
    found = json.loads(printed("export", str(tmp_path), str(tmp_path / "again.parquet"), "--json"))
    assert found["labels"] == {label: {"configurations": 14, "seeds": 4} for label in whole.labels}
    assert {trial.state for trial in exported.trials} == {"COMPLETE", "DIVERGED"}
    replay = Replay(exported, whole.labels, budget_of(14, confirm=14, seeds=3), whole.sampler)
    trials = replay.trials(whole.seed, seeds=[[whole.seed, *(whole.seed + 1 + index for index in range(3))]])
    found = replay.document(trials)
    assert not found["deterministic"]
    for label in whole.labels:
        ours, theirs = found["methods"][label], real["methods"][label]
        for name in ("recommendations", "area", "claims", "granted"):
            assert ours[name] == theirs[name]
    assert compare(found, *whole.labels)["why"] == compare(real, *whole.labels)["why"]


@pytest.mark.parametrize("sampler", ["random", "tpe", "grid"])
def test_a_replay_is_a_function_of_its_seed(sampler: str) -> None:
    one, same = (Replay(table(), ["fedavg", "fedavg"], BUDGET, sampler) for _ in range(2))
    assert facts(one, 3) == facts(same, 3)
    assert facts(one, 3) != facts(one, 4)
    assert one.document(one.trials(3)) == same.document(same.trials(3))


def facts(replay: Replay, seed: int) -> list[Any]:
    return [(t.label, t.phase, t.number, t.seed, t.search, t.configuration, t.trial) for t in replay.trials(seed)]


@pytest.mark.parametrize("sampler", ["random", "tpe"])
@pytest.mark.parametrize("parts", ["search", "study"])
def test_budget_and_seeds(sampler: str, parts: Any) -> None:
    replay = Replay(table(), ["fedavg", "fedavg"], BUDGET, sampler, parts)
    trials = replay.trials(0)
    seeds = replay.seeds(0)
    assert len({seed for search in seeds for seed in search}) == 8, "searches share no seed while there are enough"
    for search, (own, *fresh) in enumerate(seeds):
        tried = {}
        for name in ("fedavg-1", "fedavg-2"):
            mine = [trial for trial in trials if (trial.label, trial.search) == (name, search)]
            searched = [trial for trial in mine if trial.phase == "search"]
            confirmed = [trial for trial in mine if trial.phase == "confirmation"]
            tried[name] = {row(trial) for trial in searched}
            assert [trial.seed for trial in searched] == [own] * 6
            assert len(tried[name]) == 6, "no row is tried twice in a search"
            assert len(confirmed) == 2 * 3
            assert {trial.seed for trial in confirmed} == set(fresh)
            assert {trial.configuration for trial in confirmed} <= {trial.configuration for trial in searched}
        assert not tried["fedavg-1"] & tried["fedavg-2"], "names of one label share no row in a search"
    numbers = [(trial.label, trial.phase, trial.number) for trial in trials]
    assert len(set(numbers)) == len(numbers)


def row(trial: Any) -> str:
    return str(trial.hyperparameters)


def test_parts_of_a_study_stay_the_same() -> None:
    def tried(parts: Any) -> tuple[set[str], set[str]]:
        trials = Replay(table(), ["fedavg", "fedavg"], BUDGET, parts=parts).trials(0)
        one, other = ({row(trial) for trial in trials if trial.label == name} for name in ("fedavg-1", "fedavg-2"))
        return one, other

    one, other = tried("study")
    assert not one & other
    one, other = tried("search")
    assert one & other


def test_too_small_tables_are_refused() -> None:
    with pytest.raises(InvalidSpec, match="needs as many configurations"):
        Replay(table(configurations=11), ["fedavg", "fedavg"], BUDGET)
    with pytest.raises(InvalidSpec, match="need 4 seeds, and the labels have 3"):
        Replay(table(seeds=3), LABELS, BUDGET)


def test_tuning_in_stages_is_refused() -> None:
    with pytest.raises(
        InvalidSpec, match=r"^sampler: must propose values anywhere in their ranges, got staged: .* tpe$"
    ):
        Replay(table(), LABELS, BUDGET, {"name": "staged", "stages": [["client_lr"]]})


def test_labels_of_unlike_rounds_are_refused() -> None:
    whole = table()
    spec = whole.study.to_json()
    spec["methods"][0]["rounds"] = whole.study.budget.rounds + 1
    with pytest.raises(InvalidSpec, match=r"^rounds: must be \d+ for a replay, as of all labels, got rounds="):
        Replay(replace(whole, study=Study.from_json(spec)), LABELS, BUDGET)


def test_budgets_in_another_unit_than_rounds_are_refused() -> None:
    spec = table().study.to_json()
    spec["budget"]["client_gradients"] = spec["budget"].pop("rounds")
    with pytest.raises(
        InvalidSpec, match=r"^budget\.client_gradients: must be left out for a replay, whose trials end"
    ):
        Replay(replace(table(), study=Study.from_json(spec)), LABELS, BUDGET)


def test_branches_are_refused(tmp_path: Path) -> None:
    rule = "budget.branches: must be 1 for a replay, which draws the rows of a table one by one, got branches=2"
    with pytest.raises(InvalidSpec, match=rule):
        Replay(table(), LABELS, budget_of(12, branches=2))
    document = study("other").to_json()
    decay = {"name": "plateau", "space": {"window": {"int": [1, 3]}}}
    document["methods"][0]["schedule"] = decay
    document["budget"]["branches"] = 2
    paths = [str(tmp_path / name) for name in ("plain.parquet", "branching.parquet")]
    write(table(), Path(paths[0]))
    write(recorded(Study.from_json(document), [replace(one, label="other") for one in table().trials]), Path(paths[1]))
    error = refusal("replay", *paths)
    assert isinstance(error, InvalidSpec)
    assert str(error) == rule


def test_lifting_multiplies_the_area() -> None:
    plain, more = (
        Replay(table(), ["fedavg", "fedavg"], BUDGET, lift={"fedavg-2": factor} if factor > 1 else None)
        for factor in (1.0, 1.1)
    )
    areas = []
    for replay in (plain, more):
        found = [replay.document(replay.trials(seed))["methods"] for seed in range(20)]
        areas.append([np.mean([one[name]["area"] for one in found]) for name in replay.names])
    before, after = ((second / first) for first, second in areas)
    assert after / before == pytest.approx(1.1, rel=0.01)
    with pytest.raises(NotFound, match="fedavg-2"):
        Replay(table(), ["fedavg", "fedavg"], BUDGET, lift={"fedavg": 2.0})


def test_the_summary_counts_verdicts() -> None:
    budget = budget_of(12, searches=6, confirm=6, seeds=1)
    replay = Replay(table(), ["fedavg", "fedavg"], budget, lift={"fedavg-2": 3.0})
    seen = []
    found = summary(replay, range(10), lambda trials, document, compared: seen.append(compared["fedavg-1,fedavg-2"]))
    claim = found["pairs"][0]["claims"]["methods"]
    verdicts = [one["claims"]["methods"]["verdict"] for one in seen]
    assert claim["b"] == share(verdicts.count("fedavg-2"), 10)
    assert claim["a"] == share(0, 10)
    assert claim["b"]["count"] > 5
    assert claim["possible"] == share(10, 10)
    few = Replay(table(), ["fedavg", "fedavg"], BUDGET)
    compared = compare(few.document(few.trials(0)), *few.names)["claims"]
    assert not possible(compared["methods"]), "it has two searches"
    assert possible(compared["configurations"]), "it has six seeds in all"


def test_shares_have_exact_intervals() -> None:
    assert share(0, 20)["low"] == 0
    assert share(20, 20)["high"] == 1
    assert share(0, 20)["high"] == pytest.approx(1 - 0.025 ** (1 / 20))


def test_the_command_prints_what_studies_conclude(tmp_path: Path) -> None:
    path = str(tmp_path / "table.parquet")
    write(table(), Path(path), "float16")
    words = ["replay", path, "--trials", "12", "--searches", "6", "--confirm", "6", "--seeds", "1", "--studies", "4"]
    said = printed(*words, "--lift", "3")
    assert "Each label: 12 trials in 6 searches, 6 configurations confirmed on 1 seeds." in said
    assert "the methods: a verdict is possible in 100.0 % (39.8 to 100.0) of studies" in said
    found = json.loads(printed(*words, "--lift", "3", "--json"))
    assert found["budget"] == {"trials": 12, "searches": 6, "confirm": 6, "seeds": 1}
    areas = {name: area["mean"] for name, area in found["areas"].items()}
    assert areas["fedavg-2"] / areas["fedavg-1"] == pytest.approx(3, rel=0.2)
    assert found["tables"] == {path: read(Path(path)).digest}


def test_an_export_overwrites_nothing(tmp_path: Path) -> None:
    kept = tmp_path / "study.yaml"
    kept.write_text("name: mine")
    assert isinstance(refusal("export", str(tmp_path), str(kept)), Conflict)
    assert kept.read_text() == "name: mine"


def test_an_export_is_named_as_what_it_is(tmp_path: Path) -> None:
    error = refusal("export", str(tmp_path), "table.csv")
    assert str(error) == "TABLE: must end in .parquet, got 'table.csv'"
