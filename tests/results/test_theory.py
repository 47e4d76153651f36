"""Studies on quadratic tasks carry the theory's prediction, and say how far it is from what was measured."""

import json
import subprocess
import sys
from typing import Any

import pytest

from driftline.results import theory
from driftline.results.show.axes import band_text
from driftline.results.study_result import StudyResult, study_result
from driftline.study.spec import Study
from driftline.study.trial_document import trial_document
from service.driver.ray.worker import columns
from tests.wire.made_records import study_record, trial_record
from trainers.engine.packs.pack import Pack
from trainers.trial.document import parse

from .test_show import data

WEIGHTS = {"client_lr": 0.05, "gradient_weights": [1.0] * 10}
TASK: dict[str, Any] = {"name": "quadratic", "problem": "worst_case", **WEIGHTS}
STEPS: dict[str, Any] = {"client_lr": 0.05, "server_lr": 0.05, "local_steps": {"choice": [2, 5, 10, 20]}}
RANDOM: dict[str, Any] = {"name": "quadratic", "problem": "random", "clients": 6, "dimension": 3}


def small(*methods: dict[str, Any], **keys: Any) -> Study:
    """A study of a grid on a quadratic task."""
    document = {"name": "small", "task": TASK, "methods": list(methods), "objective": {"quality": "distance"}}
    document |= {"budget": {"trials_per_method": 4, "rounds": 100, "seeds": 0}, "sampler": "grid"}
    return Study.from_json(document | {"init": [3.0, 3.0, 3.0], "eval_every": 1} | keys)


def ran(*methods: dict[str, Any], seeds: tuple[int, ...] = (0,), stopped: int = 0, **keys: Any) -> StudyResult:
    """The result of a study whose grids were trained here, every setting on every seed.

    The last `stopped` trials are stopped after 25 rounds.
    """
    study = small(*methods, **keys)
    trials, curves = [], {}
    for entry in study.methods:
        grid: list[dict[str, Any]] = [{}]
        for name, parameter in entry.parameters().items():
            grid = [{**setting, name: value} for setting in grid for value in parameter.grid()]
        repeats = [(number, seed) for number in range(len(grid)) for seed in seeds]
        for place, (number, seed) in enumerate(repeats):
            spec = parse(trial_document(study, entry.label, [grid[number]], seed))
            name = f"small.{entry.label}.{place}"
            early = place >= len(repeats) - stopped
            (curves[name],) = columns(Pack.from_spec(spec, device="cpu").advance(25 if early else None), 1)
            ended = "DIVERGED" if curves[name].get("diverged", [False])[-1] else "STOPPED" if early else "COMPLETE"
            phase = "search" if len(seeds) == 1 else "confirmation"
            own = {"configuration": number, "seed": seed, "hyperparameters": grid[number], "state": ended}
            trials.append(trial_record(place, id=name, label=entry.label, phase=phase, **own))
    record = study_record(spec=study.to_json())
    return study_result(record, trials, curves)


def test_deterministic_studies_agree_with_the_theory() -> None:
    """Of three kinds of settings; tests/theory/test_prediction.py has all methods."""
    nesterov = {"name": "sgd", "space": {"momentum": 0.3, "nesterov": True}}
    weights = {"client_lr": 0.03, "server_lr": 0.05, "gradient_weights": {"choice": [[1.0, 2.0], [0.5, 0.0, 2.0]]}}
    result = ran(
        {"label": "plain", "name": "fedavg", "space": STEPS},
        {"label": "nesterov", "name": "fedavg", "space": STEPS | {"server_lr": 0.03}, "server": nesterov},
        {"label": "weights", "name": "local_update", "space": weights},
    )
    assert json.loads(json.dumps(result.document, allow_nan=False)) == result.document
    for label, method in result.document["methods"].items():
        found = method["disagreement"]
        assert found["configurations"] == len(method["configurations"]) == (2 if label == "weights" else 4), label
        assert method["theory_note"] == ""
        assert found["largest"]["ends"] < 1e-9
        assert found["largest"]["settles"] == 0
        assert found["limit"] < 1e-6, label
        for row in method["configurations"]:
            assert row["theory"]["rate"] < 1
            assert row["theory"]["settles"] == row["settles"]
        assert [row["cost"] for row in method["theory"]] == [row["cost"] for row in method["recommendations"]]
        measured = {row["cost"]: row["quality"] for row in method["frontier"]}
        for row in method["theory"]:
            assert row["quality"] == pytest.approx(measured[row["cost"]], rel=1e-9)
    assert "theory" in result.document["definitions"]
    assert "disagreement" in result.document["definitions"]


def test_mixed_studies_have_a_prediction() -> None:
    task = RANDOM | {"central": {"hessian": [[3.0, 0, 0], [0, 2.0, 0], [0, 0, 1.0]], "center": [1.0, -1.0, 2.0]}}
    weight = {"federated_weight": {"choice": [0.5, 1.0]}}
    result = ran(
        {"label": "parallel", "name": "parallel_training", "space": STEPS | weight},
        {"label": "clients", "name": "fedavg", "space": STEPS},
        task=task,
    )
    for label, method in result.document["methods"].items():
        assert method["theory_note"] == "", label
        assert (
            method["disagreement"]["configurations"]
            == len(method["configurations"])
            == (8 if label == "parallel" else 4)
        )
        assert method["disagreement"]["largest"]["ends"] < 1e-9
        assert method["disagreement"]["largest"]["settles"] == 0


def test_the_limit_on_the_worst_case_is_the_papers_suboptimality() -> None:
    result = ran({"label": "plain", "name": "fedavg", "space": STEPS | {"local_steps": 10}})
    (row,) = result.document["methods"]["plain"]["configurations"]
    assert row["theory"]["limit"] / 2 == pytest.approx(0.334251, abs=5e-7)  # L / mu = 10, client_lr = 1 / (2 L)
    assert row["ends"] / 2 == pytest.approx(0.334251, abs=5e-7)


@pytest.mark.parametrize(("metric", "cost"), [("loss", "bytes"), ("excess_loss", "client_gradients")])
def test_other_costs_and_losses_agree_too(metric: str, cost: str) -> None:
    result = ran(
        {"label": "plain", "name": "fedavg", "space": STEPS}, objective={"quality": metric, "cost": cost}, eval_every=7
    )
    found = result.document["methods"]["plain"]["disagreement"]
    assert found["configurations"] == 4
    assert found["largest"]["ends"] < 1e-9
    assert found["largest"]["settles"] == 0


def test_a_budget_that_is_too_short_shows_in_the_limit_alone() -> None:
    slow = STEPS | {"server_lr": 0.004}
    result = ran({"label": "slow", "name": "fedavg", "space": slow})
    found = result.document["methods"]["slow"]["disagreement"]
    assert found["largest"]["ends"] < 1e-9
    assert found["largest"]["settles"] == 0
    assert found["largest"]["limit"] > 0.01


def test_noise_and_sampling_are_measured_and_named() -> None:
    space = STEPS | {"server_lr": 0.02}
    noisy = ran(
        {"label": "noisy", "name": "fedavg", "space": space},
        task=RANDOM | {"gradient_noise": 0.3},
        clients_per_round=3,
        seeds=(1, 2, 3),
    ).document["methods"]["noisy"]
    assert noisy["theory_note"] == (
        "The prediction leaves out the noise of the gradients (0.3) and the sampling of 3 of 6 clients."
    )
    assert 1e-4 < noisy["disagreement"]["ends"] < 1
    single = ran({"label": "noisy", "name": "fedavg", "space": space}, task=RANDOM, dtype="float32")
    method = single.document["methods"]["noisy"]
    assert method["theory_note"] == "The prediction leaves out the rounding of float32."
    assert 1e-10 < method["disagreement"]["largest"]["ends"] < 1e-4
    sized = space | {"local_steps": 2, "clients_per_round": {"choice": [2, 6, 3]}}
    method = ran({"label": "sized", "name": "fedavg", "space": sized}, task=RANDOM).document["methods"]["sized"]
    assert method["theory_note"] == "The prediction leaves out the sampling of 2 to 3 of 6 clients."
    rows = {row["hyperparameters"]["clients_per_round"]: row for row in method["configurations"]}
    assert rows.keys() == {2, 3, 6}
    assert rows[6]["theory"]["ends"] == pytest.approx(rows[6]["ends"])
    short = ran({"label": "short", "name": "fedavg", "space": space, "rounds": 40}, task=RANDOM).document
    assert short["methods"]["short"]["disagreement"]["largest"]["ends"] < 1e-9


def test_lookahead_samples_one_client_by_nature() -> None:
    result = ran({"label": "one", "name": "lookahead", "space": STEPS | {"server_lr": 0.01}}, task=RANDOM)
    note = result.document["methods"]["one"]["theory_note"]
    assert note == "The prediction leaves out the sampling of 1 of 6 clients."


def test_trials_that_stopped_early_have_no_prediction() -> None:
    method = ran({"label": "plain", "name": "fedavg", "space": STEPS}, stopped=1).document["methods"]["plain"]
    predicted = {row["hyperparameters"]["local_steps"]: row["theory"] is not None for row in method["configurations"]}
    assert predicted == {2: True, 5: True, 10: True, 20: False}
    assert method["theory_note"] == "1 of the configurations has no prediction: stopped early."


def test_no_closed_form_is_said_in_words_and_nothing_is_drawn() -> None:
    decay = {"name": "plateau", "space": {"window": 5, "cooldown": 5, "client_decay": 0.5}}
    result = ran(
        {"label": "decay", "name": "fedavg", "space": STEPS, "schedule": decay},
        {"label": "plain", "name": "fedavg", "space": STEPS},
    )
    method = result.document["methods"]["decay"]
    assert method["theory"] == []
    assert method["disagreement"] is None
    assert all(row["theory"] is None for row in method["configurations"])
    said = "No prediction: rates must stay constant for a closed form, got schedule plateau."
    assert method["theory_note"] == said
    assert f"decay: {said}" in " ".join(result.table().split())
    page = result.file("frontier.html").decode()
    decayed, constant = data(page)["readings"][0]["theory"]
    assert decayed == []
    assert constant[-1][1] == pytest.approx(result.document["methods"]["plain"]["theory"][-1]["quality"])
    assert said in page
    assert "the theory's prediction" in band_text(result.document)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"server": {"name": "adam", "space": {}}}, "server must be one of sgd, momentum, nesterov for a closed form"),
        ({"name": "mine"}, "method.name must be a method with a closed form"),
    ],
)
def test_unknown_parts_have_no_prediction(change: dict[str, Any], words: str) -> None:
    result = ran({"label": "plain", "name": "fedavg", "space": STEPS})
    spec = small({"label": "plain", "name": "fedavg", "space": STEPS}).to_json()
    spec["methods"][0] |= change
    method = theory.with_theory(result.document, Study.from_json(spec), result.curves, result.reading)["methods"][
        "plain"
    ]
    assert (method["theory"], method["disagreement"]) == ([], None)
    assert words in method["theory_note"]


def test_another_metric_and_too_much_work_have_no_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    train = ran({"label": "plain", "name": "fedavg", "space": STEPS}, objective={"quality": "train_loss"})
    assert train.document["methods"]["plain"]["theory_note"] == (
        "No prediction: the theory predicts loss, excess_loss, distance, not train_loss."
    )
    monkeypatch.setattr(theory, "MOST_WORK", 2 * 100 * 4 * 9 + 2 * 4 * 2 * 27)  # two configurations
    method = ran({"label": "plain", "name": "fedavg", "space": STEPS}).document["methods"]["plain"]
    assert method["disagreement"]["configurations"] == 2
    assert method["theory_note"].startswith("2 of the configurations have no prediction: predicting this many models")


def test_a_study_without_points_has_none_yet() -> None:
    study = small({"label": "plain", "name": "fedavg", "space": STEPS})
    record = study_record(spec=study.to_json())
    method = study_result(record, [], {}).document["methods"]["plain"]
    assert method["theory_note"] == "No prediction yet: no configuration has been counted."
    assert method["disagreement"] is None


def test_results_need_no_torch_and_other_tasks_no_theory() -> None:
    code = (
        "import sys, driftline.results.study_result\n"
        "assert 'trainers.theory.prediction' not in sys.modules\n"
        "import driftline.results.theory\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
