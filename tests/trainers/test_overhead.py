"""Overhead of mixed federated learning: the paper's tables, from the counters of real rounds and as formulas."""

import numpy as np
import pytest

from trainers.engine.evaluation.flops import gradient_flops
from trainers.engine.packs.pack import Pack
from trainers.errors import SpecError
from trainers.theory.overhead import Recommendation
from trainers.trial.document import parse

from .methods.mixed import DIGITS, METHODS, problem, train

KB = 1024


def test_the_paper_s_table():
    task = Recommendation()
    found = {name: task.communication_bytes(name) / KB for name in ("baseline", *METHODS)}
    assert found == {
        "baseline": 494,
        "parallel_training": 20,
        "one_way_transfer": 30,
        "two_way_transfer": 30,
    }
    assert task.recommendation_flops == 24_864
    for name in METHODS:
        assert task.client_flops(name) / 1e6 == pytest.approx(0.025, abs=5e-4)
    assert task.client_flops("baseline") / 1e6 == pytest.approx(125.16, abs=0.2)
    assert Recommendation(vocabulary_size=3954).client_flops("baseline") / 1e6 == pytest.approx(125.16, abs=0.005)
    assert task.communication_saved == pytest.approx(0.9393, abs=5e-5)
    assert 1 - found["parallel_training"] / found["baseline"] == pytest.approx(0.9595, abs=5e-5)
    assert task.compute_saved == pytest.approx(0.9998, abs=5e-6)
    each = 3952**2 * 8
    assert [task.server_regularizer_flops(name) for name in ("baseline", *METHODS)] == [0, 10 * each, each, 10 * each]
    with pytest.raises(SpecError, match="no overhead of method"):
        task.communication_bytes("fedavg")


def linear(folder, parameters):
    """A regression with so many parameters."""
    generator = np.random.default_rng(0)
    inputs = generator.standard_normal((12, parameters - 1)).astype(np.float32)
    np.savez(folder / f"{parameters}.npz", x=inputs, y=generator.standard_normal(12))
    keys = {"model": "linear", "client": None, "partition": "iid", "clients": 4, "test_fraction": 0}
    keys["central"] = {"fraction": 0.3}
    return {"name": "npz", "path": str(folder / f"{parameters}.npz"), **keys}


def test_counters_give_the_paper_s_communication(tmp_path):
    """A table of 3952 rows, or the 160 that a client touches, of 16 numbers: real messages of one client and round."""
    task = Recommendation()
    rows = {"baseline": task.vocabulary_size} | dict.fromkeys(METHODS, task.movies)
    for name, count in rows.items():
        method = "fedavg" if name == "baseline" else name
        trial = {"dtype": "float32", "clients_per_round": 2, "batch_size": 2, "init": None, "report": []}
        rates = {"client_lr": 1e-6, "server_lr": 1e-6}
        line = train(method, 3, linear(tmp_path, count * task.embedding_dim), **rates, trial=trial)[-1]
        assert line["exchanges"] == 3
        each = (line["bytes_down"] + line["bytes_up"]) / (3 * 2)
        assert each == task.communication_bytes(name)
        down = {"baseline": 1, "parallel_training": 1}.get(name, 2)
        assert line["bytes_down"] == down * line["bytes_up"]


def test_the_server_s_gradients_are_counted():
    """Algorithms 1 and 2: central_steps of a round, one for one-way transfer, none without mixing."""
    asked = {"report": ["overhead"], "batch_size": 5, "clients_per_round": 3}
    wanted = {
        "parallel_training": (6, 6 * 15),
        "two_way_transfer": (6, 6 * 15),
        "one_way_transfer": (4, 4 * 15),  # a batch of all local steps, 4 of 3 clients with 5 examples
        "fedavg": (0, 0),
        "all_on_client": (0, 0),
        "pooled_training": (4, 4 * 15),
    }
    for name, (gradients, examples) in wanted.items():
        more = {"central_steps": 6} if name in ("parallel_training", "two_way_transfer") else {}
        lines = train(name, 2, DIGITS, **more, trial=asked)
        for number, line in enumerate(lines[1:], 1):
            assert (line["central_gradients"], line["central_examples"]) == (number * gradients, number * examples), (
                name
            )
            own = {"all_on_client": 3 * 4 * (5 + 15)}.get(name, 3 * 4 * 5)
            assert line["client_examples"] == number * own
    sized = train("one_way_transfer", 1, DIGITS, central_batch_size=40, trial=asked)[-1]
    assert (sized["central_gradients"], sized["central_examples"]) == (1, 40)
    warm = train("two_way_transfer", 1, DIGITS, central_steps=6, warm_start=True, trial=asked)[-1]
    assert warm["central_gradients"] == 7
    adam = train("parallel_training", 1, DIGITS, central_steps=6, central={"name": "adam"}, trial=asked)[-1]
    assert adam["central_gradients"] == 6


def test_members_count_their_own_steps_and_restarts_go_on():
    method = {"name": "parallel_training", "client_lr": 0.05, "server_lr": 0.04, "local_steps": 4}
    document = {"task": problem()[0], "method": method, "rounds": 4, "report": ["overhead"]}
    document["members"] = [{}, {"local_steps": 1, "central_steps": 3}]
    spec = parse(document)
    pack = Pack.from_spec(spec)
    lines = pack.advance(2)
    lines += Pack.restore(spec, pack.to_bytes()).advance()
    found = [[line[name] for name in ("client_examples", "central_gradients")] for line in lines[-2:]]
    assert found == [[4 * 4 * 4, 4 * 4], [4 * 4 * 1, 4 * 3]]
    assert [line["client_flops"] for line in lines[-2:]] == [64 * 2 * 9, 16 * 2 * 9]  # 2 d^2 a gradient
    assert [line["server_flops"] for line in lines[-2:]] == [16 * 2 * 9, 12 * 2 * 9]


@pytest.mark.parametrize(
    ("model", "flops"),
    [
        ("softmax", 4 * 65 * 10),
        (
            {"name": "mlp", "hidden": [7]},
            4 * 64 * 7 + 6 * 7 * 10,
        ),  # forward, weights' and, but for pixels, inputs' slopes
    ],
)
def test_operations_of_a_gradient_are_those_of_its_products(model, flops):
    method = {"name": "fedsgd", "server_lr": 0.1}
    pack = Pack.from_spec(parse({"task": {**DIGITS, "model": model}, "method": method, "rounds": 1}))
    assert gradient_flops(pack._setting.model) == flops
    assert gradient_flops(pack._setting.model) == flops


def test_full_batches_count_the_clients_own_examples():
    spec = {"task": DIGITS, "method": {"name": "fedsgd", "server_lr": 0.1, "local_steps": 2}, "rounds": 3}
    line = Pack.from_spec(parse({**spec, "report": ["overhead"]})).advance()[-1]
    assert line["client_examples"] == 3 * 2 * parse(spec).task.examples.sum()
