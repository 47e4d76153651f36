"""Fragments: a plain torch loop of Streaming DiLoCo, packs and checkpoints, bytes, and what cannot be in fragments."""

import numpy as np
import pytest
import torch

from trainers.engine.layout import Layout
from trainers.engine.packs.pack import Pack
from trainers.engine.rounds.fragments import Fragments
from trainers.engine.rounds.quantised import QUANTISERS
from trainers.errors import SpecError
from trainers.registry import methods
from trainers.trial.document import parse
from trainers.trial.inactive import inactive_rules

from .methods.trials import document
from .plain_loops import cosine

HIDDEN, CLIENTS, STEPS, ROUNDS = 5, 4, 3, 30
SHAPES = {"0": (HIDDEN, 64), "1": (HIDDEN,), "2": (10, HIDDEN), "3": (10,)}
COUNTS = [HIDDEN * 64, HIDDEN, 10 * HIDDEN, 10]
ABLE = sorted(name for name in methods() if methods().constant(name, "FRAGMENTS"))
METHOD = {"client_lr": 0.01, "server_lr": 0.006, "local_steps": STEPS, "weight_decay": 0.1, "clip_norm": 0.5}
DILOCO = {
    "client": {"name": "adamw", "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3, "state": "keep"},
    "server": {"name": "sgd", "momentum": 0.9, "nesterov": True},
    "schedule": {"name": "cosine", "warmup": 0.05, "floor": 0.05},
}


def trial(fragments=3, **changes):
    return {
        "task": {
            "name": "digits",
            "clients": CLIENTS,
            "partition": "iid",
            "model": {"name": "mlp", "hidden": [HIDDEN]},
        },
        "method": {"name": "fedavg", **METHOD},
        **DILOCO,
        "batch_size": None,
        "rounds": ROUNDS,
        "seed": 4,
        "dtype": "float64",
        "weighting": "uniform",
        "eval_every": ROUNDS,
        "report": ["params"],
        **({} if fragments is None else {"fragments": fragments}),
        **changes,
    }


def models(given):
    return np.array([line["params"] for line in Pack.from_spec(parse(given)).advance()])


class Worker:
    """A client with a model and a torch.optim.AdamW of its own, which are never reset."""

    def __init__(self, start, inputs, targets):
        self.params = [value.clone().requires_grad_() for value in start]
        self.optimizer = torch.optim.AdamW(
            self.params, lr=METHOD["client_lr"], betas=(0.8, 0.95), eps=1e-3, weight_decay=METHOD["weight_decay"]
        )
        self.inputs, self.targets = inputs, targets
        self.left = [torch.zeros_like(value) for value in start]

    def step(self, number):
        weight, bias, last, end = self.params
        scores = torch.relu(self.inputs @ weight.T + bias) @ last.T + end
        self.optimizer.zero_grad()
        torch.nn.functional.cross_entropy(scores, self.targets).backward()
        torch.nn.utils.clip_grad_norm_(self.params, METHOD["clip_norm"])
        self.optimizer.param_groups[0]["lr"] = METHOD["client_lr"] * cosine(number, ROUNDS * STEPS)
        self.optimizer.step()

    def sent(self, number, change, quantiser):
        if quantiser is None:
            return change
        whole = change + self.left[number]
        found = quantiser.sent(whole.view(1, 1, -1)).view_as(whole)
        self.left[number] = whole - found
        return found


def torch_loop(start, groups, quantiser):
    """Models after every round of workers that exchange one group of tensors, in turn; torch's SGD steps along it."""
    spec = parse(trial())
    train = spec.task_module.build(spec.task, "float64").train
    rows = [slice(first, first + size) for first, size in zip(train.offsets, train.sizes, strict=True)]
    inputs = torch.as_tensor(train.inputs, dtype=torch.float64).flatten(1)
    targets = torch.as_tensor(train.targets).long()
    model = [value.clone() for value in start]
    outer = torch.optim.SGD(model, lr=METHOD["server_lr"], momentum=0.9, nesterov=True)
    workers = [Worker(start, inputs[own], targets[own]) for own in rows]
    found = []
    for number in range(ROUNDS):
        for worker in workers:
            for step in range(STEPS):
                worker.step(number * STEPS + step)
        outer.zero_grad()
        group = groups[number % len(groups)]
        with torch.no_grad():
            for at in group:
                changes = [(model[at] - worker.params[at]) / METHOD["client_lr"] for worker in workers]
                sent = [worker.sent(at, change, quantiser) for worker, change in zip(workers, changes, strict=True)]
                model[at].grad = torch.stack(sent).mean(0)
        outer.step()
        with torch.no_grad():
            for worker in workers:
                for at in group:
                    worker.params[at].copy_(model[at])
        found.append(torch.cat([value.flatten() for value in model]).numpy().copy())
    return np.array(found)


@pytest.mark.parametrize(
    ("fragments", "groups", "upload"),
    [(2, [[0], [1, 2, 3]], None), (4, [[0], [1], [2], [3]], None), (4, [[0], [1], [2], [3]], "int4")],
)
def test_a_plain_loop_of_torch_has_the_same_models(fragments, groups, upload):
    found = models(trial(fragments, **({"upload": upload} if upload else {})))
    start = torch.tensor(found[0]).split(COUNTS)
    start = [values.view(shape) for values, shape in zip(start, SHAPES.values(), strict=True)]
    wanted = torch_loop(start, groups, QUANTISERS[upload] if upload else None)
    np.testing.assert_allclose(found[1:], wanted, rtol=0, atol=1e-10)
    if upload is None:
        assert np.abs(found[-1] - models(trial(None))[-1]).max() > 1e-3


def test_the_whole_model_is_one_fragment():
    assert parse(trial(1)).canonical == parse(trial(None)).canonical
    assert parse(trial(2)).canonical["fragments"] == 2


@pytest.mark.parametrize(
    ("counts", "fragments", "wanted"),
    [
        ([320, 5, 50, 10], 3, [[320], [5, 50], [10]]),
        ([4, 4, 4, 4, 4, 4], 3, [[4, 4], [4, 4], [4, 4]]),
        ([1, 1, 1, 100], 2, [[1, 1, 1], [100]]),
        ([1, 100, 1], 3, [[1], [100], [1]]),
        ([30, 10, 10, 10], 1, [[30, 10, 10, 10]]),
    ],
)
def test_fragments_are_consecutive_tensors_of_about_equal_numbers(counts, fragments, wanted):
    layout = Layout.of({str(number): (count,) for number, count in enumerate(counts)})
    made = Fragments.of(layout, fragments)
    assert list(made.numbers) == [sum(group) for group in wanted]
    assert [part.start for part in made.parts] == [0, *(part.stop for part in made.parts[:-1])]
    assert made.parts[-1].stop == layout.size


@pytest.mark.parametrize("upload", [None, "int8"])
def test_bytes_are_those_of_the_fragments(upload):
    rounds, numbers = 7, [320, 55, 10]
    given = trial(rounds=rounds, **({"upload": upload} if upload else {}))
    last = Pack.from_spec(parse(given)).advance()[-1]
    turns = [numbers[number % 3] for number in range(rounds)]
    up = [count + 8 * -(-count // 256) if upload else 8 * count for count in turns]
    assert last["bytes_up"] == CLIENTS * sum(up)
    assert last["bytes_down"] == CLIENTS * 8 * (sum(COUNTS) + sum(turns[:-1]))
    assert last["exchanges"] == rounds


@pytest.mark.parametrize("method", methods())
def test_every_method_takes_fragments_or_says_why_not(method):
    digits = {"name": "digits", "clients": 1 if method == "lookahead" else 4, "partition": "iid", "model": "mlp"}
    given = document(method, task={**digits, "model": {"name": "mlp", "hidden": [4]}}, fragments=4)
    if method not in ABLE:
        with pytest.raises(SpecError, match=f"fragments must be left out for {method}, got 4: ") as refused:
            parse(given)
        assert refused.value.path == "fragments"
        return
    line = Pack.from_spec(parse(given)).advance()[-1]
    assert line["train_loss"] < 2.4
    assert line["bytes_up"] == given["task"]["clients"] * 8 * (4 * 64 + 4 + 40 + 10 + 4 * 64 + 4)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"fragments": 5}, "fragments must be at most 4, the tensors of the model, got 5"),
        ({"server": {"name": "adam"}}, "fragments must be left out with server adam, "),
        ({"schedule": {"name": "plateau"}}, "fragments must be left out with schedule plateau, "),
        (
            {"stragglers": {"share": 0.5, "kept": False}},
            "fragments must be left out with stragglers that are dropped, ",
        ),
        ({"clients_per_round": 3}, "fragments must be left out with clients_per_round 3 of 4 clients, "),
        ({"task": {"name": "quadratic", "problem": "two_clients"}}, "fragments must be at most 1, "),
    ],
)
def test_what_cannot_be_in_fragments_is_refused(changes, text):
    with pytest.raises(SpecError, match=text) as refused:
        parse(trial(**changes))
    assert refused.value.path == "fragments"


def test_one_local_step_is_not_independent_of_the_clients_rate():
    names, given = {"method": "fedavg", "schedule": "constant"}, ["client_lr", "server_lr", "local_steps"]
    assert "client_lr" in inactive_rules(names, given)
    assert "client_lr" not in inactive_rules(names, [*given, "fragments"])
