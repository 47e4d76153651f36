"""Studies whose search trials stop early at rungs: with a real store, real packs, no Ray."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from driftline.results.comparison import compare
from driftline.study.spec import Study
from driftline.wire.records import StudyPlan, TrialRecord
from service.api.computed_results import computed_frontier
from service.api.study_estimate import estimate
from service.samplers.build import build
from tests.driver.store_client import StoreClient
from tests.driver.test_reproducible import check_disturbed, disturbed, learning, trial_list
from tests.driver.test_retry import Spy, kill
from tests.driver.test_search import NO_CLOCK, Bench, OneRound, alone, begun, facts, one, ran

RUNGS = (2, 4, 8)


def stopping(trials: int = 14, **changes: Any) -> Study:
    """Generations of 4 in two structures; some trials diverge; about a third continues beyond rounds 2 and 4."""
    rates = {"client_lr": {"float": [1e-3, 2.0], "log": True}, "server_lr": {"float": [1e-2, 1e5], "log": True}}
    entry = {"name": "fedavg", "space": {**rates, "local_steps": {"choice": [1, 2]}}}
    momentum = {"nesterov": {"choice": [False, True]}, "momentum": 0.5}
    nesterov = {**entry, "label": "fast", "server": {"name": "sgd", "space": momentum}}
    document: dict[str, Any] = {
        "budget": {"trials_per_method": trials, "rounds": 8, "rungs": [2, 4], "seeds": 2, "confirm": 3},
        "methods": [{**entry, "label": "plain"}, nesterov],
    }
    return learning(trials, **{**document, **changes})


def searched(client: StoreClient, study_id: str, label: str | None = None) -> list[Any]:
    return client.store.trials.find(study_id, label=label, phase="search")


def test_a_study_stops_trials_at_rungs(client: StoreClient, tmp_path: Path) -> None:
    study = stopping()
    study_id, bench = begun(client, study, tmp_path)
    bench.run()
    assert bench.search.outcome() == ("SUCCEEDED", "")
    assert not list(tmp_path.glob(f"{study_id}/*.ckpt"))
    for label in study.labels:
        trials = searched(client, study_id, label)
        curves = client.store.curves.columns(study_id, [trial.id for trial in trials])
        assert {trial.state for trial in trials} >= {"COMPLETE", "STOPPED"}
        for trial in trials:
            last = curves[trial.id]["round"][-1]
            assert (trial.values is not None) == (trial.state == "COMPLETE")
            assert last == 8 if trial.state == "COMPLETE" else trial.state == "DIVERGED" or last in RUNGS[:2]
        for first in range(0, 14, 4):
            own = [trial for trial in trials if first <= trial.number < first + 4]
            lasted = [sum(trial.rounds_done > rung for trial in own) for rung in RUNGS[:2]]
            assert 1 <= lasted[1] <= lasted[0] <= 2, "a third of 4 or 2, rounded up, or both ends of the Pareto set"
    confirmed = client.store.trials.find(study_id, phase="confirmation")
    assert len(confirmed) == 2 * 3 * 2
    assert {trial.rounds_done for trial in confirmed if trial.state == "COMPLETE"} == {8}


def test_an_entry_has_rounds_of_its_own_and_rungs_at_the_same_fractions(client: StoreClient, tmp_path: Path) -> None:
    plain, fast = stopping().to_json()["methods"]
    study = stopping(methods=[plain, {**fast, "rounds": 16}])
    assert study.rungs == {"plain": RUNGS, "fast": (4, 8, 16)}
    assert estimate(study.to_json()).rounds == (14 * 2 + 5 * 2 + 2 * 4 + 6 * 8) * 3
    study_id = ran(client, study, tmp_path)
    result = computed_frontier(client.store, study_id)
    progress = client.store.studies.get(study_id).progress
    for label, rungs in study.rungs.items():
        trials = client.store.trials.find(study_id, label=label)
        assert {trial.state for trial in trials} >= {"COMPLETE", "STOPPED"}
        assert {trial.rounds_done for trial in trials if trial.state == "COMPLETE"} == {rungs[-1]}
        assert {trial.rounds_done for trial in trials if trial.state == "STOPPED"} <= set(rungs[:2])
        searched_rounds = sum(
            min(rung for rung in rungs if rung >= trial.rounds_done) for trial in trials if trial.phase == "search"
        )
        assert result["methods"][label]["granted"]["rounds"] == searched_rounds + 6 * rungs[-1]
        assert progress[label].rounds_done == progress[label].rounds_total == sum(t.rounds_done for t in trials)
    assert result["methods"]["fast"]["settings"] == {"rounds": 16}
    found = compare(result, "plain", "fast")
    assert found["verdict"] is None
    assert "budgets differ: plain had " in found["why"]


def test_a_budget_of_client_gradients_ends_trials_of_all_sizes_with_the_last_round_that_fits(
    client: StoreClient, tmp_path: Path
) -> None:
    plain, fast = stopping().to_json()["methods"]
    plain["space"]["local_steps"] = {"choice": [1, 2, 5]}
    budget = {"trials_per_method": 14, "client_gradients": 90, "rungs": "auto", "seeds": 3, "confirm": 2}
    study = stopping(methods=[plain, fast], budget=budget)
    assert estimate(study.to_json()).packs > 0
    study_id = ran(client, study, tmp_path)
    result, progress = computed_frontier(client.store, study_id), client.store.studies.get(study_id).progress
    ended = set()
    for label in study.labels:
        trials = client.store.trials.find(study_id, label=label)
        curves = client.store.curves.columns(study_id, [trial.id for trial in trials])
        for trial in trials:
            each = 2 * trial.hyperparameters.get("local_steps", 2)  # two clients
            rounds = 90 // each
            rungs = [-(-rounds * amount // 90) for amount in (10, 30, 90)]
            if trial.state != "DIVERGED":
                assert curves[trial.id]["client_gradients"][-1] == trial.rounds_done * each
            if trial.state == "COMPLETE":
                assert trial.rounds_done == rounds
                ended.add(rounds)
            elif trial.state == "STOPPED":
                assert trial.rounds_done in rungs[:2]
        assert {trial.state for trial in trials} >= {"COMPLETE", "STOPPED"}
        assert progress[label].rounds_done == progress[label].rounds_total
    assert len(ended) > 1, "trials of different sizes"
    assert result["definitions"]["parameters"]["unit"] == "client_gradients"
    assert "budgets differ" not in compare(result, "plain", "fast")["why"]


def test_trials_have_the_bits_of_trials_that_are_trained_alone_without_a_break(
    client: StoreClient, tmp_path: Path
) -> None:
    study = stopping(methods=[one()])
    study_id = ran(client, study, tmp_path, slots=3)
    trials = [trial for trial in searched(client, study_id) if trial.state == "COMPLETE"]
    curves = client.store.curves.columns(study_id)
    assert len({trial.pack for trial in trials}) > 1
    for trial in trials:
        assert trial.attempt == 3, "once for each rung"
        assert trial.plan["separate"]
        lines = alone(study, trial)
        for name, values in curves[trial.id].items():
            assert name in NO_CLOCK or values == lines[name], name


@pytest.mark.parametrize("rule", ["halving", "extrapolation"])  # by values, and by forecasts
def test_neither_workers_nor_deaths_change_a_decision(client: StoreClient, tmp_path: Path, rule: str) -> None:
    budget = {"trials_per_method": 12, "rounds": 8, "rungs": {"at": [2, 4], "rule": rule}, "seeds": 2, "confirm": 3}
    study = stopping(methods=[stopping().to_json()["methods"][1]], budget=budget, seed=2)
    whole = ran(client, study, tmp_path / "whole", slots=1)
    assert {fact[1] for fact in facts(client, whole)} == {"COMPLETE", "STOPPED", "DIVERGED"}
    assert trial_list(client, whole)["reproducible"]
    check_disturbed(client, study, tmp_path, whole, least=4)


def test_asynchronous_rungs_lose_no_trial_whatever_dies(client: StoreClient, tmp_path: Path) -> None:
    budget = {"trials_per_method": 12, "rounds": 8, "rungs": [2, 4], "seeds": 1, "confirm": 2, "asking": "asynchronous"}
    study = stopping(budget=budget, methods=[stopping().to_json()["methods"][1]])
    study_id = client.submit(study)
    disturbed(client, study_id, study, tmp_path, workers=3, seed=1)
    trials = searched(client, study_id)
    assert len(trials) == 12
    assert {trial.state for trial in trials} >= {"COMPLETE", "STOPPED"}
    for trial in trials:
        assert trial.rounds_done in RUNGS or trial.state == "DIVERGED"
        assert (trial.rounds_done == 8) == (trial.state == "COMPLETE") or trial.state == "DIVERGED"
    assert len(client.store.trials.find(study_id, phase="confirmation")) == 2
    assert trial_list(client, study_id)["exceptions"][-1].startswith("compared asynchronously")


def test_trials_end_whose_worker_or_driver_died_after_their_last_report(
    client: StoreClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = stopping(8, methods=[stopping().to_json()["methods"][1]])
    whole, study_id = client.submit(study), client.submit(study)
    packs: dict[str, set[tuple[str, ...]]] = {whole: set(), study_id: set()}
    start_pack = client.start_pack

    def recorded(study: str, attempt: int, pack: str, trials: Sequence[str], gpus: float) -> list[TrialRecord]:
        packs[study].add(tuple(trial.partition(".")[2] for trial in trials))
        return start_pack(study, attempt, pack, trials, gpus)

    monkeypatch.setattr(client, "start_pack", recorded)
    Bench(client, whole, study, tmp_path / "whole").run()
    assert {fact[1] for fact in facts(client, whole)} == {"COMPLETE", "STOPPED", "DIVERGED"}
    bench = Bench(client, study_id, study, tmp_path / "died", OneRound, slots=1)
    died = set()
    while True:
        if not bench.workers and bench.start() is None:
            break
        (pack,) = bench.workers
        trials = bench.search.table.packs[pack].trials
        result = bench.workers[pack].step()
        report = json.loads(result["report"])
        last = report["rounds_done"] in RUNGS and (trials, report["rounds_done"]) not in died
        bench.search.report({**report, "done": report["done"] and not last})
        if last:
            died.add((trials, report["rounds_done"]))
            bench = Bench(client, study_id, study, tmp_path / "died", OneRound, slots=1)
        elif result["done"]:
            del bench.workers[pack]
    assert bench.search.finished
    assert {rounds for _, rounds in died} == set(RUNGS)
    assert facts(client, study_id) == facts(client, whole)
    assert packs[study_id] == packs[whole]


@pytest.mark.parametrize("lost", [False, True], ids=["kept", "lost"])
def test_a_study_paused_at_a_rung_continues_with_or_without_its_checkpoints(
    client: StoreClient, tmp_path: Path, lost: bool
) -> None:
    study = stopping(methods=[one()])
    whole, study_id = ran(client, study, tmp_path / "whole"), client.submit(study)
    bench = Bench(client, study_id, study, tmp_path / "paused", OneRound, slots=1)
    while not list((tmp_path / "paused").glob("*/trial.*.ckpt")):
        if not bench.workers:
            bench.start()
        bench.step(next(iter(bench.workers)))
    bench.start()
    bench.request_stop()
    for pack in sorted(bench.workers):
        bench.step(pack)
    assert not bench.workers
    client.store.leases.release(study_id, bench.attempt, "PAUSED")
    client.resume(study_id)
    if lost:
        for path in (tmp_path / "paused").glob("*/*.ckpt"):
            path.unlink()
    Bench(client, study_id, study, tmp_path / "paused").run()
    assert facts(client, study_id) == facts(client, whole)


def test_a_trial_whose_last_checkpoint_is_missing_continues_from_the_rung_before(
    client: StoreClient, tmp_path: Path
) -> None:
    study = stopping(8, methods=[one()])
    whole, study_id = ran(client, study, tmp_path / "whole"), client.submit(study)
    bench = Bench(client, study_id, study, tmp_path / "lost", OneRound, slots=1)
    begun: list[int] = []
    while True:
        if not bench.workers and bench.start() is None:
            break
        pack = next(iter(bench.workers))
        new, since = bench.workers[pack].pack is None, bench.workers[pack].job.since
        report = bench.step(pack)
        if new and since == 4:
            begun.append(report["rounds_done"])
            assert "started again" not in (report["remark"] or "")
        for path in (tmp_path / "lost").glob("*/trial.*.00000004.ckpt"):
            path.unlink()
    assert set(begun) == {3}, "round 3, after the rung of round 2"
    assert facts(client, study_id) == facts(client, whole)


class Full(OneRound):
    """Memory that does not suffice for four trials, except for the first ones."""

    def train_for(self, seconds: float) -> list[dict[str, Any]]:
        if self.pack.members > 2 and not self.job.pack.endswith(".00001"):
            raise MemoryError
        return super().train_for(seconds)


def test_trials_are_packed_together_that_were_trained_before_and_after_a_lack_of_memory(
    client: StoreClient, tmp_path: Path
) -> None:
    study = stopping(8, methods=[one()], budget={"trials_per_method": 8, "rounds": 8, "rungs": [2, 4], "seeds": 0})
    study_id = client.submit(study)
    plan = StudyPlan(generation=8, width=4, confirmation_width=4)
    client.store.plans.put(study_id, Bench(client, study_id, study, tmp_path).attempt, plan)
    bench = Bench(client, study_id, study, tmp_path, Full, slots=1)
    remarks = set()
    while bench.workers or bench.start():
        remarks.add(bench.step(next(iter(bench.workers)))["remark"])
    after = {trial.number for trial in searched(client, study_id) if trial.rounds_done > 2}
    assert after & {0, 1, 2, 3}
    assert after & {4, 5, 6, 7}
    assert bench.search.study_plan.width == 2
    assert remarks == {None}


def test_samplers_hear_each_rung_on_its_own_also_from_the_next_driver(client: StoreClient, tmp_path: Path) -> None:
    study = stopping(16, methods=[one()])
    study_id = client.submit(study)
    heard: list[Any] = []

    def spied(*given: Any, **more: Any) -> Spy:
        heard.append([])
        return Spy(build(*given, **more), heard[-1])

    Bench(client, study_id, study, tmp_path, build_sampler=spied).run()
    trials = searched(client, study_id)[:8]  # what the last generation learns from
    assert len(heard) == 3
    for rung, told in zip(RUNGS, heard, strict=True):
        arrived = {("values", trial.number) for trial in trials if trial.rounds_done >= rung}
        assert {event for event in told if event[0] == "values"} == arrived - {
            ("values", trial.number) for trial in trials if trial.state == "DIVERGED"
        }


def test_a_failed_trial_is_not_promoted_and_changes_no_decision_when_it_is_tried_again(
    client: StoreClient, tmp_path: Path
) -> None:
    study = stopping(8, methods=[one()], resources={"gpu": 0, "packs": 1})
    study_id, bench = begun(client, study, tmp_path)
    kill(bench, ["only.s00002"])
    before = {trial.number: (trial.state, trial.rounds_done) for trial in searched(client, study_id)}
    assert before[2][0] == "FAILED"
    client.store.leases.release(study_id, bench.attempt, *bench.search.outcome())
    client.store.retries.request(study_id)
    Bench(client, study_id, study, tmp_path).run()
    after = {trial.number: (trial.state, trial.rounds_done) for trial in searched(client, study_id)}
    assert after.pop(2)[0] in ("COMPLETE", "STOPPED", "DIVERGED")
    before.pop(2)
    assert after == before
