"""Whose answers count how much, in training and in metrics, and who takes part: cohorts without replacement."""

import numpy as np
import pytest

from trainers.engine import randomness
from trainers.engine.packs.pack import Pack
from trainers.engine.packs.setting import PopulationWeights
from trainers.errors import SpecError
from trainers.registry import methods
from trainers.trial.document import parse

from . import trials

TASK = {"name": "digits", "clients": 6, "partition": {"classes_per_client": 2}}


def document(method, **changes):
    own = {"seed": 0, "batch_size": 8, "rounds": 1, "clients_per_round": None, "report": ["params"]}
    return trials.document(method, **{"task": TASK, **own, **changes})


def moved(given, weights=None):
    """The change of the model in one round; weights: in place of the trial's own."""
    pack = Pack.from_spec(parse(given))
    if weights is not None:
        setting = pack._setting
        setting.training = setting.measured = PopulationWeights(np.asarray(weights, dtype=np.float64), setting.like)
    first, last = pack.advance()
    return np.array(last["params"]) - np.array(first["params"])


def counts(method="fedavg"):
    spec = parse(document(method))
    found = np.array(spec.task_module.build(spec.task, spec.dtype).train.sizes)
    assert len(found) == 6
    assert found.max() > 1.5 * found.min()
    return found


@pytest.mark.parametrize("method", methods())
def test_every_method_weighs_by_examples_or_uniformly(method):
    by_examples = moved(document(method, weighting="examples"))
    uniform = moved(document(method, weighting="uniform"))
    np.testing.assert_allclose(by_examples, moved(document(method), counts(method)), rtol=0, atol=1e-14)
    np.testing.assert_allclose(uniform, moved(document(method), [1] * 6), rtol=0, atol=1e-14)
    alone = methods()[method].CLIENTS_PER_ROUND == 1
    assert (np.abs(by_examples - uniform).max() > 1e-4) != alone


# Tasks whose clients have unequal numbers of examples, or weights of their own.
YARDSTICKS = {
    "digits": {**TASK, "central": {"fraction": 0.1}},
    "linear_regression": {
        "name": "linear_regression",
        "clients": 3,
        "examples": [4, 10, 40],
        "dimension": 2,
        "label_noise": 1,
    },
    "quadratic": {
        "name": "quadratic",
        "hessians": [[[1.0]], [[3.0]]],
        "centers": [[1.0], [2.0]],
        "client_weights": [0.2, 0.8],
        "central": {"hessian": [[1.0]], "center": [0.0]},
    },
}
OF_MODELS = ("full_loss", "misalignment", "difference_norm")
OF_ROUNDS = ("train_loss", "cohort_misalignment")
NO_METRICS = ("client_lr", "server_lr", "wall_seconds")


def measured(task, method, **changes):
    """The metrics of round 0, and those of the first round that are of the model before it; all clients take part."""
    given = document(method, task=YARDSTICKS[task], batch_size=None, loss_data="full", **changes)
    given |= {"report": [*OF_MODELS, OF_ROUNDS[1]], "adaptation": {"steps": [0, 1], "client_lr": 0.1}}
    first, last = Pack.from_spec(parse(given)).advance()
    metrics = {name: value for name, value in first.items() if isinstance(value, float) and name not in NO_METRICS}
    one_client = methods()[method].CLIENTS_PER_ROUND == 1
    return metrics if one_client else metrics | {name: last[name] for name in OF_ROUNDS}


@pytest.mark.parametrize(
    ("task", "weighting"),
    [
        ("digits", None),
        ("digits", "uniform"),
        ("linear_regression", None),
        ("linear_regression", "examples"),
        ("quadratic", None),
    ],
)
def test_all_methods_of_a_study_are_measured_alike_whatever_they_train_with(task, weighting):
    usual = measured(task, "fedavg", weighting=weighting)
    assert {*OF_MODELS, *OF_ROUNDS, "adapted_loss_1"} <= usual.keys()
    assert usual["train_loss"] == pytest.approx(usual["full_loss"], rel=1e-12)
    assert usual["cohort_misalignment"] == pytest.approx(usual["misalignment"], rel=1e-12)
    if task != "digits":  # their own metric is the clients' loss
        assert usual["loss"] == pytest.approx(usual["full_loss"], rel=1e-12)
        assert usual["adapted_loss_0"] == pytest.approx(usual["loss"], rel=1e-12)
    entries = [{"method": name} for name in methods() if task != "linear_regression" or not methods()[name].CENTRAL]
    if task != "quadratic":  # which has weights of its own alone
        entries += [{"method": "fedavg", "training_weighting": own} for own in ("uniform", "examples")]
    for entry in entries:
        metrics = measured(task, weighting=weighting, **entry)
        assert metrics == {name: pytest.approx(usual[name], rel=1e-12, abs=1e-12) for name in metrics}, entry


@pytest.mark.parametrize(("weighting", "training"), [("examples", "uniform"), ("uniform", "examples")])
def test_an_entry_may_train_with_a_weighting_of_its_own(weighting, training):
    shares = {"examples": counts() / counts().sum(), "uniform": np.full(6, 1 / 6)}
    chosen = randomness.cohort(0, 0, 6, 4)
    given = document("fedsgd", batch_size=None, loss_data="full", weighting=weighting, training_weighting=training)
    given |= {"report": ["params", "full_loss"], "init": np.linspace(-1, 1, 650).tolist()}
    clients = [Pack.from_spec(parse(given)) for _ in range(6)]
    for number, pack in enumerate(clients):
        pack._setting.measured = PopulationWeights(np.eye(6)[number], pack._setting.like)
    losses = np.array([pack.advance()[0]["full_loss"] for pack in clients])
    own = np.array([moved(given, np.eye(6)[client]) for client in range(6)])
    first, last = Pack.from_spec(parse({**given, "clients_per_round": 4})).advance()
    assert first["full_loss"] == pytest.approx(np.average(losses, weights=shares[weighting]), rel=1e-12)
    assert last["train_loss"] == pytest.approx(np.average(losses[chosen], weights=shares[weighting][chosen]), rel=1e-12)
    step = np.array(last["params"]) - np.array(first["params"])
    np.testing.assert_allclose(step, np.average(own[chosen], 0, shares[training][chosen]), rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("task", "weighting"), [("digits", "examples"), ("linear_regression", "uniform"), ("quadratic", "uniform")]
)
def test_the_default_is_the_tasks(task, weighting):
    for method in ("fedavg", "fednova"):
        assert parse(document(method, task=YARDSTICKS[task])).canonical["weighting"] == weighting


@pytest.mark.parametrize("key", ["weighting", "training_weighting"])
def test_a_task_with_weights_of_its_own_is_weighted_by_them_alone(key):
    own = {**YARDSTICKS["linear_regression"], "client_weights": [0.2, 0.3, 0.5]}
    assert parse(document("fedavg", task=own)).weighting == "uniform"
    with pytest.raises(SpecError, match=f"^{key} must be uniform for a task with weights of its own, got {key}="):
        parse(document("fedavg", task=own, **{key: "examples"}))
