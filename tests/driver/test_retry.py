"""FAILED trials that run again: with a real store, real packs and no Ray."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from driftline.study.spec import Study
from service.api.computed_results import computed_frontier
from service.samplers.build import build
from tests.driver.store_client import StoreClient, quadratic
from tests.driver.test_extend import extend
from tests.driver.test_search import Bench, OneRound, begun, facts, live, one, ran, three


def test_a_study_whose_trials_all_failed_goes_on_from_its_checkpoints(client: StoreClient, tmp_path: Path) -> None:
    study = three()
    whole = ran(client, study, tmp_path / "whole")
    study_id, bench = begun(client, study, tmp_path / "broken", OneRound, checkpoint_seconds=0.0)
    for steps in (4, 1, 1):
        live(bench, steps)
    bench.run()
    client.store.leases.release(study_id, bench.attempt, *bench.search.outcome())
    assert client.store.studies.get(study_id).state == "FAILED"
    assert computed_frontier(client.store, study_id)["methods"]["only"]["failed"] == 3

    assert client.store.retries.request(study_id).state == "PENDING"
    assert computed_frontier(client.store, study_id)["methods"]["only"]["failed"] == 0
    again = Bench(client, study_id, study, tmp_path / "broken", OneRound, checkpoint_seconds=0.0)
    assert live(again, 1) == [4]
    assert [(trial.deaths, trial.death_round) for trial in client.store.trials.find(study_id)] == [(1, 3)] * 3
    again.run()
    assert again.search.outcome() == ("SUCCEEDED", "")
    assert facts(client, study_id) == facts(client, whole)


class Spy:
    """A sampler that writes down what it hears."""

    def __init__(self, inner: Any, heard: list[Any]) -> None:
        self._inner = inner
        self.heard = heard

    def ask(self, number: int) -> dict[str, Any]:
        return self._inner.ask(number)

    def pending(self, number: int, setting: Mapping[str, Any]) -> None:
        self.heard.append(("pending", number))
        self._inner.pending(number, setting)

    def tell(self, number: int, setting: Mapping[str, Any], values: Any, diverged: bool = False) -> None:
        self.heard.append(("values" if values else "diverged" if diverged else "failed", number))
        self._inner.tell(number, setting, values, diverged)


def kill(bench: Bench, trials: list[str]) -> None:
    """Runs a study of packs of one trial to its end; the workers of these trials always die."""
    while not bench.search.finished:
        while bench.start():
            pass
        if bench.search.finished:
            return
        pack = sorted(bench.workers)[0]
        (trial,) = bench.search.table.packs[pack].trials
        if trial.partition(".")[2] in trials:
            bench.kill(pack)
        else:
            bench.step(pack)


def learning(trials_per_method: int) -> Study:
    """A study of one label with generations of 4, whose sampler learns from the third on, in packs of one."""
    budget = {"trials_per_method": trials_per_method, "rounds": 5, "seeds": 1, "confirm": 1}
    return quadratic(
        budget=budget, sampler={"name": "tpe", "startup": 4}, resources={"gpu": 0, "packs": 1}, methods=[one()]
    )


def test_a_trial_retried_before_its_result_was_needed_changes_nothing(client: StoreClient, tmp_path: Path) -> None:
    """What is proposed afterwards is what it would have been."""
    study, larger = learning(10), learning(14)
    whole = ran(client, larger, tmp_path / "whole")
    study_id, first = begun(client, study, tmp_path / "broken")
    kill(first, ["only.s00005", "only.s00009"])
    state, reason = first.search.outcome()
    assert (state, reason.partition(":")[0]) == ("SUCCEEDED", "2 of 11 trials have failed; the first")
    client.store.leases.release(study_id, first.attempt, "SUCCEEDED")
    client.store.retries.request(study_id)
    assert extend(client, study_id, trials_per_method=14) == larger
    heard: list[Any] = []
    second = Bench(
        client,
        study_id,
        larger,
        tmp_path / "broken",
        build_sampler=lambda *given, **more: Spy(build(*given, **more), heard),
    )
    assert heard == [("pending", number) for number in range(10)]
    heard.clear()
    second.run()
    assert heard == [("values", number) for number in range(8)], "no result of the last generations is used"
    assert second.search.outcome() == ("SUCCEEDED", "")
    searched = [fact for fact in facts(client, study_id) if ".s" in fact[0]]
    assert searched == [fact for fact in facts(client, whole) if ".s" in fact[0]]
