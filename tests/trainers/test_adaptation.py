"""Evaluation after adaptation: right by hand, the same for every model and pack, and refused where it means nothing."""

import itertools

import numpy as np
import pytest

from trainers.engine.evaluation import after_adaptation as adapted
from trainers.engine.packs.build import adapted_clients
from trainers.engine.packs.pack import Pack
from trainers.errors import SpecError
from trainers.trial.document import parse

from .datasets import npz_task
from .members import contract

HAND = {"name": "quadratic", "hessians": [[[1.0]], [[3.0]]], "centers": [[0.0], [3.0]], "client_weights": [0.25, 0.75]}
FEDAVG = {"name": "fedavg", "client_lr": 0.1, "server_lr": 0.1, "local_steps": 2}


@pytest.fixture(scope="module")
def letters(tmp_path_factory):
    """A task of 6 training and 5 held-out clients, one of which has a single example."""
    draw = np.random.default_rng(3)
    weight = draw.normal(size=(7, 4))

    def some(count):
        inputs = draw.normal(size=(count, 7))
        return inputs, (inputs @ weight + draw.normal(size=(count, 4))).argmax(1)

    train, test = [*some(60), np.repeat(np.arange(6), 10)], [*some(31), np.repeat(np.arange(5), [10, 8, 7, 5, 1])]
    return npz_task(tmp_path_factory.mktemp("letters") / "letters.npz", train, test)


def trained(task, adaptation, **changes):
    document = {"task": task, "method": FEDAVG, "rounds": 2, "dtype": "float64", "eval_every": 1, **changes}
    return Pack.from_spec(parse({**document, "adaptation": adaptation})).advance()


def test_by_hand_on_quadratics():
    """Clients x^2 / 2 and 1.5 (x - 3)^2 at x = 1: a step of 0.1 leads to 0.9 and 1.6, two to 0.81 and 2.02."""
    line = trained(HAND, {"steps": [2, 0, 1], "client_lr": 0.1}, init=[1.0])[0]
    assert line["adapted_loss_0"] == pytest.approx(0.25 * 0.5 + 0.75 * 6.0, rel=1e-14)
    assert line["adapted_loss_1"] == pytest.approx(0.25 * 0.9**2 / 2 + 0.75 * 1.5 * 1.4**2, rel=1e-14)
    assert line["adapted_loss_2"] == pytest.approx(0.25 * 0.81**2 / 2 + 0.75 * 1.5 * 0.98**2, rel=1e-14)
    assert "adapted_accuracy_1" not in line


def test_a_rate_above_the_range_of_the_dtype_diverges():
    adaptation = {"steps": [0, 1], "client_lr": 1e39}
    line = trained(HAND, adaptation, dtype="float32")[-1]
    assert line["adapted_loss_0"] > 0
    assert line["adapted_loss_1"] is None
    assert not line["diverged"]


def test_without_a_rate_of_its_own_it_takes_the_trials_as_the_schedule_has_it():
    schedule = {"name": "theory_1_over_t", "strong_convexity": 1.0, "smoothness": 3.0}
    lines = trained(HAND, {"steps": [1]}, schedule=schedule, rounds=4, report=["params"])
    for before, line in itertools.pairwise(lines):
        x, rate = line["params"][0], line["client_lr"]
        first, second = x - rate * x, x - 3 * rate * (x - 3)
        assert line["adapted_loss_1"] == pytest.approx(0.25 * first**2 / 2 + 0.75 * 1.5 * (second - 3) ** 2, rel=1e-12)
        assert before["client_lr"] != line["client_lr"] or line["round"] == 1


@pytest.mark.parametrize("model", ["softmax", {"name": "mlp", "hidden": [5]}])
def test_every_client_learns_from_its_support_and_is_measured_on_its_query(letters, model):
    """Against plain autograd, client by client, on the split itself."""
    task = {**letters, "model": model}
    adaptation = {"steps": [0, 3], "client_lr": 0.3, "support": 0.4}
    line = trained(task, adaptation, rounds=1)[-1]
    spec = parse({"task": task, "method": FEDAVG, "rounds": 1, "dtype": "float64", "adaptation": adaptation})
    pack = Pack.from_spec(spec)
    pack.advance()
    problem = spec.task_module.build(spec.task, "float64")
    support, query = adapted.split(problem, 0.4)
    assert support.train.sizes.tolist() == [4, 3, 3, 2]  # the client with a single example cannot be split
    assert query.train.sizes.tolist() == [6, 5, 4, 3]
    oracle = adapted_clients(spec, pack.device, "autograd")._support
    measure = adapted_clients(spec, pack.device, "autograd")._query
    for steps in (0, 3):
        losses, accuracies = [], []
        for client in range(4):
            x = pack._lanes[0].now.state.params.clone()
            batch = oracle.source(0, None, "shuffled").round(0, np.array([client])).full()
            for _ in range(steps):
                x = x - 0.3 * oracle.oracles["autograd"].value_and_grad(x, batch)[1]
            held_out = measure.source(0, None, "shuffled").round(0, np.array([client])).full()
            losses.append(float(measure.oracles["autograd"].value(x, held_out)))
            accuracies.append(float(measure.accuracy(x, held_out)))
        assert line[f"adapted_loss_{steps}"] == pytest.approx(np.mean(losses), rel=1e-10)
        assert line[f"adapted_accuracy_{steps}"] == pytest.approx(np.mean(accuracies), rel=1e-10)


def test_nobody_is_measured_on_what_it_adapted_on(letters):
    problem = parse({"task": letters, "method": FEDAVG, "rounds": 1})
    problem = problem.task_module.build(problem.task, "float64")
    support, query = adapted.split(problem, 0.5)
    rows = {tuple(row) for row in support.train.inputs}
    assert rows.isdisjoint(tuple(row) for row in query.train.inputs)
    assert rows | {tuple(row) for row in query.train.inputs} == {tuple(row) for row in problem.test.inputs[:-1]}


@pytest.mark.parametrize("chunk", [1, 9, 1 << 20])
def test_pack_is_alone_and_parts_of_the_clients_add_up(letters, chunk, monkeypatch):
    monkeypatch.setattr("trainers.engine.evaluation.client_chunks._EXAMPLES", chunk)
    given = {"task": letters, "method": FEDAVG, "rounds": 2, "dtype": "float64", "eval_every": 1, "batch_size": 3}
    members = [{}, {"client_lr": 0.02, "local_steps": 5}, {"client_lr": 0.0}]
    contract({**given, "adaptation": {"steps": [1, 4]}}, members, cut=1)


def test_looking_changes_nothing_else(letters):
    plain = trained(letters, None, batch_size=3)
    for line, other in zip(plain, trained(letters, {"steps": [2], "client_lr": 0.1}, batch_size=3), strict=True):
        assert {name: other[name] for name in line.keys() - {"wall_seconds"}} == {
            name: line[name] for name in line.keys() - {"wall_seconds"}
        }


def test_a_checkpoint_goes_on_with_another_adaptation(letters):
    document = {"task": letters, "method": FEDAVG, "rounds": 4, "eval_every": 1, "dtype": "float64"}
    pack = Pack.from_spec(parse(document))
    pack.advance(2)
    on = Pack.restore(parse({**document, "adaptation": {"steps": [1]}}), pack.to_bytes())
    whole = trained(letters, {"steps": [1]}, rounds=4)
    assert on.advance()[-1]["adapted_loss_1"] == pytest.approx(whole[-1]["adapted_loss_1"], rel=1e-12)


@pytest.mark.parametrize(
    ("adaptation", "message"),
    [
        ({"steps": []}, "adaptation.steps"),
        ({"steps": [-1]}, "adaptation.steps"),
        ({"steps": [1], "support": 1.0}, r"adaptation.support must be in \(0, 1\), got support=1"),
        ({"steps": [1], "lr": 0.1}, "adaptation.*client_lr"),
        ({"client_lr": 0.1}, "adaptation.steps must be given"),
        (3, "adaptation must be like"),
    ],
)
def test_bad_input_is_refused(adaptation, message):
    with pytest.raises(SpecError, match=message):
        parse({"task": HAND, "method": FEDAVG, "rounds": 1, "adaptation": adaptation})


def test_a_method_without_a_client_lr_needs_one():
    with pytest.raises(SpecError, match="must be given: fedsgd has no client_lr of its own"):
        parse({"task": HAND, "method": {"name": "fedsgd", "server_lr": 1}, "rounds": 1, "adaptation": {"steps": [1]}})


def test_a_task_without_held_out_clients_is_refused(tmp_path):
    np.savez(tmp_path / "few.npz", x=np.ones((4, 2)), y=np.array([0, 1, 0, 1]), client=np.arange(4))
    task = {"name": "npz", "path": str(tmp_path / "few.npz"), "test_fraction": 0}
    with pytest.raises(SpecError, match="without held-out clients"):
        parse({"task": task, "method": FEDAVG, "rounds": 1, "adaptation": {"steps": [1]}})
