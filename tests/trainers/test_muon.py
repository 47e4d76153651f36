"""Muon in whole trials: against a plain torch loop, which tensors it takes, and models without hidden matrices."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from trainers.engine.packs.pack import Pack
from trainers.trial.document import parse

MUON = {"name": "muon", "momentum": 0.9, "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-6}


def trial(model, **changes):
    return {
        "task": {"name": "digits", "clients": 3, "partition": {"dirichlet": 0.5}, "model": model},
        "method": {"name": "fedavg", "client_lr": 0.01, "delta_lr": 0.8, "local_steps": 4, "weight_decay": 0.1},
        "client": {**MUON, "state": "keep"},
        "rounds": 5,
        "dtype": "float64",
        "weighting": "uniform",
        "report": ["params"],
        **changes,
    }


def matrices_of(given):
    """Names of the tensors that are orthogonalized."""
    model = Pack.from_spec(parse(given))._setting.model
    starts = {place.start: rows for place, rows in model.hidden_matrices()}
    assert all(starts[entry.offset] == entry.shape[0] for entry in model.layout.entries if entry.offset in starts)
    return [entry.name for entry in model.layout.entries if entry.offset in starts]


def orthogonal(matrix):
    """Five quintic Newton-Schulz steps, as the paper writes them."""
    x = matrix / (matrix.norm() + 1e-7)
    if len(x) > x.shape[1]:
        return orthogonal(matrix.T).T
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x


class Inner:
    """Muon for the hidden matrices and torch.optim.AdamW for the rest of one worker."""

    def __init__(self, module, hidden):
        named = dict(module.named_parameters())
        self.hidden = [named[name] for name in hidden]
        rest = [held for name, held in named.items() if name not in hidden]
        self.adamw = torch.optim.AdamW(rest, lr=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)
        self.velocity = [torch.zeros_like(held) for held in self.hidden]

    @torch.no_grad()
    def step(self):
        self.adamw.step()
        for held, velocity in zip(self.hidden, self.velocity, strict=True):
            velocity.mul_(0.9).add_(held.grad)
            ahead = (held.grad + 0.9 * velocity).reshape(len(held), -1)
            held.mul_(1 - 0.01 * 0.1)
            held.sub_(0.01 * 0.2 * max(ahead.shape) ** 0.5 * orthogonal(ahead).reshape(held.shape))


@pytest.mark.parametrize(
    ("model", "hidden"),
    [
        ({"name": "mlp", "hidden": [7, 5, 6]}, 2),
        ({"name": "cnn", "filters": [2, 3], "kernel": 3, "dense": 5}, 2),
    ],
    ids=["mlp", "cnn"],
)
def test_clients_take_the_steps_of_the_paper(model, hidden):
    given = trial(model)
    pack = Pack.from_spec(parse(given))
    held = pack._setting.model
    names = matrices_of(given)
    assert len(names) == hidden
    module = pack.torch_modules()[0].train()
    bounds = np.append(held.offsets, held.offsets[-1] + held.sizes[-1])
    inputs = held.inputs.movedim(-1, 1) if held.inputs.dim() == 4 else held.inputs
    data = [(inputs[a:b].double(), held.targets[a:b]) for a, b in pairwise(bounds)]
    model_now = [value.detach().clone() for value in module.parameters()]
    inner = [Inner(module, names) for _ in data]
    wanted = []
    for _ in range(5):
        ends = []
        for one, (inputs, targets) in zip(inner, data, strict=True):
            with torch.no_grad():
                for value, start in zip(module.parameters(), model_now, strict=True):
                    value.copy_(start)
            for _ in range(4):
                module.zero_grad()
                torch.nn.functional.cross_entropy(module(inputs), targets).backward()
                one.step()
            ends.append([value.detach().clone() for value in module.parameters()])
        model_now = [
            start - 0.8 * (start - torch.stack(each).mean(0))
            for start, each in zip(model_now, zip(*ends, strict=True), strict=True)
        ]
        wanted.append(torch.cat([value.flatten() for value in model_now]).tolist())
    lines = pack.advance()[1:]
    np.testing.assert_allclose([line["params"] for line in lines], wanted, rtol=0, atol=1e-10)


def test_a_model_without_hidden_matrices_has_adamw():
    given = trial({"name": "softmax"})
    adamw = {**given, "client": {name: value for name, value in given["client"].items() if name != "momentum"}}
    adamw["client"]["name"] = "adamw"
    ends = [Pack.from_spec(parse(one)).advance()[-1]["params"] for one in (given, adamw)]
    np.testing.assert_allclose(*ends, rtol=0, atol=1e-12)


def test_the_matrices_between_embeddings_and_scores_are_hidden(tmp_path):
    for client in range(2):
        (tmp_path / f"{client}.txt").write_text("a few words to be or not to be " * 9)
    text = {"name": "text", "path": str(tmp_path), "context": 8}
    blocks = [
        f"blocks.{i}.{name}" for i in range(2) for name in ("attention.inputs", "attention.out", "inner", "outer")
    ]
    models = {
        "transformer": ({"width": 8, "depth": 2, "heads": 2}, [f"{name}.weight" for name in blocks]),
        "lstm": ({"width": 4, "depth": 1}, ["layers.weight_ih_l0", "layers.weight_hh_l0"]),
    }
    for name, (settings, hidden) in models.items():
        given = trial(None, task={**text, "model": {"name": name, **settings}}, rounds=1, batch_size=2)
        assert sorted(matrices_of(given)) == sorted(hidden)
