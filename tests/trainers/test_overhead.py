"""Overhead of mixed federated learning: the paper's tables, from the counters of real rounds and as formulas."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from trainers.engine.evaluation.flops import counted, gradient_flops
from trainers.engine.packs.pack import Pack
from trainers.trial.document import parse

from .methods.mixed import DIGITS, problem, train


def linear(folder, parameters):
    """A linear regression with `parameters` parameters."""
    generator = np.random.default_rng(0)
    inputs = generator.standard_normal((12, parameters - 1)).astype(np.float32)
    np.savez(folder / f"{parameters}.npz", x=inputs, y=generator.standard_normal(12))
    keys = {"model": "linear", "client": None, "partition": "iid", "clients": 4, "test_fraction": 0}
    keys["central"] = {"fraction": 0.3}
    return {"name": "npz", "path": str(folder / f"{parameters}.npz"), **keys}


def test_counters_give_the_paper_s_communication(tmp_path):
    """A table of 3952 rows, or the 160 that a client touches, of 16 numbers: real messages of one client and round."""
    models = {"baseline": 2, "parallel_training": 2, "one_way_transfer": 3, "two_way_transfer": 3}
    for name, sent in models.items():
        numbers = 16 * (3952 if name == "baseline" else 160)
        method = "fedavg" if name == "baseline" else name
        trial = {"dtype": "float32", "clients_per_round": 2, "batch_size": 2, "init": None, "report": []}
        rates = {"client_lr": 1e-6, "server_lr": 1e-6}
        line = train(method, 3, linear(tmp_path, numbers), **rates, trial=trial)[-1]
        assert line["exchanges"] == 3
        each = (line["bytes_down"] + line["bytes_up"]) / (3 * 2)
        assert each == sent * numbers * 4
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


def layers():
    """Computations whose operations torch counts as well."""
    generator = torch.Generator().manual_seed(0)

    def tensor(*shape, grad=True):
        return torch.randn(*shape, generator=generator).requires_grad_(grad)

    inputs, image = tensor(5, 4, grad=False), tensor(2, 3, 8, 8, grad=False)
    query, keys = tensor(2, 6, 4), tensor(2, 6, 4)
    attention = torch.nn.MultiheadAttention(4, 2)
    return {
        "linear": lambda: torch.nn.functional.linear(inputs, tensor(7, 4), tensor(7)),
        "linear of a hidden layer": lambda: torch.nn.functional.linear(tensor(5, 4), tensor(7, 4)),
        "matmul": lambda: tensor(2, 5, 4) @ tensor(4, 3),
        "reflected matmul": lambda: inputs.__matmul__(tensor(4, 3)),
        "bmm": lambda: torch.bmm(tensor(2, 5, 4), tensor(2, 4, 3)),
        "addmm": lambda: torch.addmm(tensor(3), inputs, tensor(4, 3)),
        "conv2d": lambda: torch.nn.functional.conv2d(image, tensor(6, 3, 5, 5), padding=2, stride=2),
        "conv1d": lambda: torch.nn.functional.conv1d(tensor(2, 4, 9), tensor(6, 4, 3)),
        "conv_transpose2d": lambda: torch.nn.functional.conv_transpose2d(image, tensor(3, 6, 5, 5)),
        "einsum": lambda: torch.einsum("bij,bjk->bik", tensor(2, 5, 4), tensor(2, 4, 3)),
        "einsum with dots": lambda: torch.einsum("...ij,jk->...ik", tensor(2, 5, 4), tensor(4, 3)),
        "keywords": lambda: torch.nn.functional.linear(inputs, weight=tensor(7, 4)),
        "multi-head attention": lambda: attention(query, keys, keys)[0],
    }


@pytest.mark.parametrize("name", layers())
def test_operations_are_those_that_torch_counts(name):
    def compute():
        layers()[name]().sum().backward()

    with FlopCounterMode(display=False) as counter:
        compute()
    assert counted(compute) == counter.get_total_flops() > 0


def test_operations_of_attention():
    """Scores and their means over the values: two products, each with two gradients."""
    query, keys, values = (torch.zeros(2, 5, size, requires_grad=True) for size in (4, 4, 3))
    found = counted(lambda: torch.nn.functional.scaled_dot_product_attention(query, keys, values))
    assert found == 3 * 2 * (2 * 5 * 5) * (4 + 3)


def test_recurrent_layers_cannot_be_counted():
    assert math.isnan(counted(lambda: torch.nn.Linear(3, 1)(torch.nn.LSTM(4, 3)(torch.zeros(2, 6, 4))[0])))


@pytest.mark.parametrize("flops", [RuntimeError("not with autograd"), math.nan, 0.0], ids=str)
def test_a_model_whose_operations_are_not_counted_trains_on(flops, monkeypatch):
    def count(model):
        if isinstance(flops, Exception):
            raise flops
        return flops

    monkeypatch.setattr("trainers.engine.packs.pack.gradient_flops", count)
    spec = parse({"task": DIGITS, "method": {"name": "fedsgd", "server_lr": 0.1}, "rounds": 1})
    assert Pack.from_spec(spec).work["flops_per_example"] is None


def test_counting_operations_does_not_import_torch_s_compiler():
    """It takes seconds, in every worker process."""
    code = (
        "import sys; from trainers import Pack, parse;"
        "method = {'name': 'fedsgd', 'server_lr': 0.1};"
        "task = {'name': 'quadratic', 'hessians': [[[2.0, 0.0], [0.0, 1.0]]], 'centers': [[1.0, 0.0]]};"
        "print(Pack.from_spec(parse({'task': task, 'method': method, 'rounds': 1})).work);"
        "print('torch._dynamo' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert found.stdout.splitlines() == [
        "{'clients_per_round': 1, 'flops_per_example': 8.0, 'model_bytes': 16}",
        "False",
    ]
