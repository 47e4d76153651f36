"""The same study gives the same trials, to the bit, whatever its workers do: with a real store, real packs, no Ray."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from driftline.errors import Unavailable
from driftline.results.trial_list import first_difference
from driftline.study.spec import Resources, Study
from driftline.wire.records import StudyPlan
from service.api.computed_results import computed_frontier
from service.driver.search.actions import Ask, SearchPlan
from service.driver.search.proposals import Proposals
from service.driver.search.state import StudyTable
from service.samplers.build import build
from tests.driver.store_client import StoreClient, quadratic
from tests.driver.test_retry import kill
from tests.driver.test_search import Bench, OneRound, begun, facts, one, ran
from trainers.registry import tasks
from trainers.trial import sizes


def learning(trials_per_method: int = 14, **changes: Any) -> Study:
    """Generations of 4 in packs of 2, of which TPE learns from the third on; two structures; some trials diverge."""
    space = {"client_lr": {"float": [1e-3, 2.0], "log": True}, "server_lr": {"float": [1e-2, 200.0], "log": True}}
    momentum = {"nesterov": {"choice": [False, True]}, "momentum": 0.5}
    entry = {"name": "fedavg", "space": {**space, "local_steps": {"choice": [1, 2]}}}
    budget = {"trials_per_method": trials_per_method, "rounds": 4, "seeds": 1, "confirm": 3}
    document: dict[str, Any] = {
        "methods": [
            {**entry, "label": "plain"},
            {**entry, "label": "fast", "server": {"name": "sgd", "space": momentum}},
        ],
        "budget": budget,
        "sampler": {"name": "tpe", "startup": 4},
        "resources": {"gpu": 0, "packs": 2},
    }
    return quadratic(**{**document, **changes})


def disturbed(client: StoreClient, study_id: str, study: Study, folder: Path, workers: int, seed: int) -> None:
    """Drives a study to its end; workers report in any order, and die, and so do drivers."""
    chance = random.Random(seed)
    while True:
        bench = Bench(client, study_id, study, folder, OneRound, slots=workers, checkpoint_seconds=0.0)
        while True:
            while bench.start():
                pass
            if bench.search.finished:
                client.store.leases.release(study_id, bench.attempt, *bench.search.outcome())
                return
            pack = chance.choice(sorted(bench.workers))
            fate = chance.random()
            if fate < 0.02:
                break  # the driver dies
            if fate < 0.1 and bench.workers[pack].pack is not None and bench.workers[pack].pack.round > 1:
                bench.kill(pack)  # after a new checkpoint
            else:
                bench.step(pack)


def trial_list(client: StoreClient, study_id: str) -> dict[str, Any]:
    return computed_frontier(client.store, study_id)["trial_list"]


def check_disturbed(client: StoreClient, study: Study, folder: Path, whole: str, least: int) -> None:
    """Whether a study has the trials of `whole` also with other workers and deaths: at least `least` attempts each."""
    for workers, seed in ((2, 1), (8, 2)):
        study_id = client.submit(study)
        disturbed(client, study_id, study, folder / str(workers), workers, seed)
        assert first_difference(client.store.trials.find(whole), client.store.trials.find(study_id)) is None
        assert facts(client, study_id) == facts(client, whole)
        assert trial_list(client, study_id) == trial_list(client, whole)
        assert max(trial.attempt for trial in client.store.trials.find(study_id)) >= least, "nothing died"


def test_neither_workers_nor_deaths_change_a_trial(client: StoreClient, tmp_path: Path) -> None:
    study = learning()
    whole = ran(client, study, tmp_path / "whole", slots=1)
    expected, listed = facts(client, whole), trial_list(client, whole)
    assert len(expected) == 2 * (14 + 3)
    assert {fact[1] for fact in expected} >= {"COMPLETE", "DIVERGED"}
    assert (listed["reproducible"], listed["trials"]) == (True, len(expected))
    check_disturbed(client, study, tmp_path, whole, least=2)


def test_a_study_with_constraints_and_a_prior_is_reproducible_whatever_dies(
    client: StoreClient, tmp_path: Path
) -> None:
    prior = [{"client_lr": 0.1, "server_lr": 1.0}, {"client_lr": 0.3, "local_steps": 2}]
    constrained = [
        {**entry, "constraints": ["client_lr * local_steps <= 0.6"]} for entry in learning().to_json()["methods"]
    ]
    study, plain = (
        learning(12, methods=[{**entry, "prior": prior} for entry in constrained]),
        learning(12, methods=constrained),
    )
    whole, without = client.submit(study), client.submit(plain)
    for study_id, given in ((whole, study), (without, plain)):
        Bench(client, study_id, given, tmp_path / study_id, slots=1).run()
    trials = client.store.trials.find(whole)
    assert max(trial.hyperparameters["client_lr"] * trial.hyperparameters["local_steps"] for trial in trials) <= 0.6
    assert first_difference(trials, client.store.trials.find(without)) is not None
    check_disturbed(client, study, tmp_path, whole, least=2)


@pytest.mark.parametrize("rungs", [None, [2, 4]], ids=["whole", "rungs"])
def test_tuning_in_stages_beside_another_sampler_is_reproducible(
    client: StoreClient, tmp_path: Path, rungs: list[int] | None
) -> None:
    """Both labels have the same budget; each stage is around the best trial of the stages before it."""
    rates = {"client_lr": {"choice": [0.01, 0.1, 0.3, 2.0]}, "server_lr": {"choice": [0.1, 1.0, 5.0]}}
    entry = {"name": "fedavg", "space": {**rates, "local_steps": {"choice": [1, 2, 4]}}}
    staged = {"name": "staged", "stages": [["client_lr"], ["server_lr"], ["local_steps"]]}
    study = learning(
        methods=[{**entry, "label": "joint"}, {**entry, "label": "staged", "sampler": staged}],
        budget={"trials_per_method": 20, "rounds": 8, "seeds": 1, "confirm": 2, "searches": 2, "rungs": rungs},
        objective={"quality": "loss", "optimize": "quality"},
        sampler="random",
    )
    whole = ran(client, study, tmp_path / "whole", slots=1)
    trials = client.store.trials.find(whole, phase="search")
    for search in range(2):
        own = [trial for trial in trials if trial.label == "staged" and trial.number % 2 == search]
        own.sort(key=lambda trial: trial.number)
        assert len({json.dumps(trial.hyperparameters, sort_keys=True) for trial in own}) == 10
        for begin, end, varied in ((0, 4, "client_lr"), (4, 6, "server_lr"), (6, 8, "local_steps")):
            told = [(trial.values.quality, -trial.number) for trial in own[:begin] if trial.values is not None]
            best = own[-max(told)[1] // 2 if told else 0].hyperparameters
            fixed = {name: value for name, value in best.items() if name != varied}
            assert all(trial.hyperparameters.items() >= fixed.items() for trial in own[begin:end])
    assert client.store.studies.get(whole).plan.stages == {"staged": [8, 4, 4, 6]}
    assert trial_list(client, whole)["reproducible"]
    check_disturbed(client, study, tmp_path, whole, least=2)


def test_asynchronous_asking_uses_every_result(client: StoreClient, tmp_path: Path) -> None:
    budget = {"trials_per_method": 12, "rounds": 3, "seeds": 0, "asking": "asynchronous"}
    study = learning(budget=budget, resources={"gpu": 0, "packs": 2})
    study_id = ran(client, study, tmp_path)
    found = trial_list(client, study_id)
    assert (found["asking"], found["plan"]["generation"], found["reproducible"]) == ("asynchronous", 0, False)


@pytest.mark.parametrize("sampler", ["random", "quasi_random", "tpe", "nsga2", "gp", "cmaes"])
@pytest.mark.parametrize("rates", [{"float": [1e-3, 1], "log": True}, {"choice": [0.01, 0.1, 0.2, 0.3]}], ids=str)
def test_labels_share_the_values_of_the_hyperparameters_that_they_share(sampler: str, rates: dict[str, Any]) -> None:
    """Only what a constraint of one label forbids, or what a search has tried already, is replaced."""
    space = {"client_lr": rates, "local_steps": {"int": [1, 4]}, "server_lr": 0.1}
    prox = {"prox": {"float": [1e-3, 1], "log": True}}
    constraint = "client_lr * local_steps <= 0.4"
    methods = [
        {"label": "plain", "name": "fedavg", "space": space},
        {"label": "bounded", "name": "fedavg", "space": space, "constraints": [constraint]},
        {"label": "more", "name": "fedprox", "space": space | prox},
    ]
    if sampler == "cmaes":
        methods = [methods[0], methods[2]]
    study = quadratic(
        methods=methods,
        sampler=sampler,
        objective={"quality": "loss", "optimize": "quality"},
        budget={"trials_per_method": 20, "rounds": 2, "searches": 2},
    )
    decided = StudyPlan(generation=0, width=1, confirmation_width=1)
    proposals = Proposals(study, decided, StudyTable(), build)
    plan = SearchPlan.of(tuple(study.labels), study.budget, decided)
    asked = {
        label: [
            (trial["client_lr"], trial["local_steps"])
            for trial in proposals.ask(Ask(label, 0, 20), plan)[:16]  # the start of samplers that learn
        ]
        for label in study.labels
    }
    drawn = asked["more"]
    assert drawn[::2] != drawn[1::2], "searches are independent"
    for label in asked:
        replaced = 0
        for number, (own, pair) in enumerate(zip(asked[label], drawn, strict=True)):
            repeated = label != "more" and pair in asked[label][number % 2 : number : 2]
            forbidden = label == "bounded" and pair[0] * pair[1] > 0.4
            replaced += repeated or forbidden
            assert (own == pair) == (not repeated and not forbidden)
        assert replaced < 12


def test_a_retried_trial_ends_reproducibility_two_generations_later(client: StoreClient, tmp_path: Path) -> None:
    study = learning(12, resources={"gpu": 0, "packs": 1}, methods=[one()])
    study_id, bench = begun(client, study, tmp_path)
    kill(bench, ["only.s00002"])
    line = "only.s00008 and later trials were asked for without the result of only.s00002, which had failed"
    assert trial_list(client, study_id)["exceptions"] == [line]
    client.store.leases.release(study_id, bench.attempt, *bench.search.outcome())
    client.store.retries.request(study_id)
    Bench(client, study_id, study, tmp_path).run()
    assert not client.store.trials.find(study_id, state="FAILED")
    assert trial_list(client, study_id)["exceptions"] == [line]


def test_packs_of_a_study_are_computed_as_its_first_pack(client: StoreClient, tmp_path: Path) -> None:
    study = learning(8)
    study_id, first = begun(client, study, tmp_path)
    pack = first.begin()
    first.step(pack)
    plan = client.store.studies.get(study_id).plan
    client.store.plans.put(
        study_id, first.attempt, plan.model_copy(update={"engine": {**plan.engine, "eval_every": 2}})
    )
    Bench(client, study_id, study, tmp_path).run()
    later = [trial for trial in client.store.trials.find(study_id) if not str(trial.pack).endswith(".p1.00001")]
    assert {trial.plan["eval_every"] for trial in later if trial.plan} == {2}


def test_a_new_driver_takes_the_plan_of_what_was_trained(client: StoreClient, tmp_path: Path) -> None:
    """The first driver dies after the first report, before it stores the plan; the second has more CPU cores."""
    study = learning(8, methods=[one()])
    study_id, first = begun(client, study, tmp_path, OneRound)

    def die(call: str) -> None:
        if call == "store_plan":
            raise Unavailable("gone")

    client.before = die
    pack = first.begin()
    with pytest.raises(Unavailable):
        first.step(pack)
    client.before = lambda call: None
    engine = client.store.trials.find(study_id)[0].plan
    larger = study.model_copy(update={"resources": Resources(gpu=0, cpus=2)})
    for threads, given in ((1, study), (2, larger), (2, larger)):
        Bench(client, study_id, given, tmp_path)
        plan = client.store.studies.get(study_id).plan
        assert plan.engine == {**engine, "threads": threads}
    assert plan.exceptions == ["packs compute with 2 threads instead of 1: resources.cpus was changed"]


def test_a_pack_that_would_not_fit_is_halved_too(
    client: StoreClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = learning(8, methods=[one()], resources={"gpu": 0, "packs": 4})
    task = tasks()["quadratic"].parse(study.task, "task")
    monkeypatch.setattr(sizes, "MOST_NUMBERS", 3 * task.clients * task.dimension)  # room for 3 of the 4 trials
    study_id = ran(client, study, tmp_path)
    assert client.store.studies.get(study_id).plan.width == 2
    assert {(trial.state, trial.deaths) for trial in client.store.trials.find(study_id)} == {("COMPLETE", 0)}


@pytest.mark.parametrize("trials", [4, 3])
def test_a_pack_that_runs_out_of_memory_is_halved(client: StoreClient, tmp_path: Path, trials: int) -> None:
    study = learning(8, methods=[one()], resources={"gpu": 0, "packs": trials})
    study_id, bench = begun(client, study, tmp_path)
    pack = bench.begin()
    report = json.loads(bench.workers.pop(pack).step()["report"])
    bench.search.report(
        {**report, "done": False, "error": "OutOfMemoryError: CUDA out of memory", "out_of_memory": True}
    )
    plan = client.store.studies.get(study_id).plan
    assert (plan.width, plan.confirmation_width) == (trials // 2, trials // 2)
    assert plan.exceptions == [f"a pack of {trials} trials ran out of memory: since then packs are half as wide"]
    bench.run()
    found = client.store.trials.find(study_id)
    assert {(trial.state, trial.deaths) for trial in found} <= {("COMPLETE", 0), ("DIVERGED", 0)}
    sizes = [len([other for other in found if other.pack == trial.pack]) for trial in found]
    assert max(sizes) == trials // 2
    events = [str(event.data["message"]) for event in client.store.events.read(study_id) if event.kind == "log"]
    assert events == plan.exceptions
