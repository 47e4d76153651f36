"""Presets: an entry of a study by the name that the literature has for it."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from driftline.errors import InvalidSpec
from driftline.study.spec import Study
from driftline.study.trial_document import trial_document
from search_spaces import presets, spaces
from search_spaces.parameters import Float
from trainers.engine.packs.pack import Pack
from trainers.registry import optimizers
from trainers.trial.document import parse

from ..trainers.plain_loops import workers

PAPERS = {
    "fedavgm": {"momentum": 0.9},
    "fedadam": {"along": "change", "initial_accumulator": None, "epsilon": 1e-3, "bias_correction": False},
    "fedyogi": {"along": "change", "initial_accumulator": None, "epsilon": 1e-3, "bias_correction": False},
    "fedadagrad": {"along": "change", "initial_accumulator": None, "epsilon": 1e-3},
}
EXAMPLE = Path(__file__).parents[2] / "examples" / "server-optimizers.yaml"


def study(*entries):
    document = {
        "name": "test",
        "task": {"name": "digits", "clients": 8, "partition": "iid"},
        "methods": list(entries),
        "objective": {"quality": "test_loss"},
        "budget": {"trials_per_method": 2, "rounds": 2, "seeds": 0},
        "batch_size": 5,
    }
    return Study.from_json(document)


@pytest.mark.parametrize("name", presets.SERVERS)
def test_a_preset_is_fedavg_with_a_server_optimizer(name):
    server = presets.SERVERS[name]
    space = spaces.default("methods", "fedavg")
    if server != "sgd":
        space["client_lr"] = Float(1e-3, 10.0, log=True)
    forms = {key: parameter.to_json() for key, parameter in space.items()}
    held = PAPERS[name] | {key: item.to_json() for key, item in spaces.default("server", server).items()}
    written = {"label": name, "name": "fedavg", "space": forms, "server": {"name": server, "space": held}}
    short, long = study({"preset": name}), study(written)
    assert short.to_json() == study({"preset": name, "space": "default", "server": {"space": "default"}}).to_json()
    assert short.fingerprint() == long.fingerprint()
    assert short.to_json() == long.to_json()
    assert Study.from_json(short.to_json()).fingerprint() == short.fingerprint()
    assert short.check() == long.check()
    assert {server} <= set(optimizers())


def test_what_the_entry_says_comes_first():
    space = {"client_lr": 0.1, "server_lr": 0.1, "local_steps": 3}
    given = {
        "preset": "fedyogi",
        "label": "mine",
        "space": space,
        "server": {"name": "yogi", "space": {"epsilon": 0.1}},
    }
    entry = study(given).methods[0]
    assert (entry.label, entry.name, entry.server.name) == ("mine", "fedavg", "yogi")
    assert {key: form.to_json() for key, form in entry.server.space.items()} == PAPERS["fedyogi"] | {"epsilon": 0.1}
    assert set(entry.space) == set(space)
    for other in ("adam", {"name": "adam"}):
        assert study(given | {"server": other}).methods[0].server.space == {}


@pytest.mark.parametrize("rate", ["server_lr", "delta_lr"])
@pytest.mark.parametrize("name", presets.SERVERS)
def test_a_preset_is_the_loop_of_its_paper(name, rate):
    if (name, rate) == ("fedavgm", "server_lr"):
        rate = "delta_lr"  # server_lr multiplies a sum of gradients
    client_lr, steps, rounds, eta, tau, start = 0.1, 4, 30, 0.05, 1e-2, np.array([0.5, 0.5])
    hessians, centers = [np.diag([1.0, 2.0]), np.diag([3.0, 0.5])], [np.array([1.0, -1.0]), np.array([-2.0, 1.0])]
    x, m, v = start, np.zeros(2), np.full(2, tau**2)
    for _ in range(rounds):
        change = np.zeros(2)
        for hessian, center in zip(hessians, centers, strict=True):
            y = x
            for _ in range(steps):
                y = y - client_lr * hessian @ (y - center)
            change += (y - x) / 2
        m = 0.8 * m + (1.0 if name == "fedavgm" else 0.2) * change
        square = change**2
        if name == "fedadagrad":
            m, v = change, v + square
        elif name == "fedadam":
            v = 0.99 * v + 0.01 * square
        else:
            v = v - 0.01 * square * np.sign(v - square)
        x = x + eta * (m if name == "fedavgm" else m / (np.sqrt(v) + tau))
    space = {"client_lr": client_lr, rate: eta, "local_steps": steps}
    server = {"fedavgm": {"momentum": 0.8}, "fedadagrad": {"epsilon": tau}}.get(name, {"epsilon": tau, "beta1": 0.8})
    task = {"name": "quadratic", "hessians": [h.tolist() for h in hessians], "centers": [c.tolist() for c in centers]}
    made = study({"preset": name, "space": space, "server": {"space": server}})
    made = Study.from_json(made.to_json() | {"task": task, "batch_size": None, "objective": {"quality": "loss"}})
    assert made.check() == []
    chosen = {key: parameter.options[0] for key, parameter in made.methods[0].parameters().items()}
    document = trial_document(made, name, [chosen], 0)
    document |= {"init": start.tolist(), "report": ["params"], "rounds": rounds}
    np.testing.assert_allclose(Pack.from_spec(parse(document)).advance()[-1]["params"], x, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"preset": "fedadm"}, 'no preset "fedadm": did you mean fedadam?'),
        ({"preset": "dilco"}, 'no preset "dilco": did you mean diloco?'),
        ({"preset": 3}, "no preset 3"),
        (
            {"preset": "fedadam", "name": "fedavg"},
            'must not be given together with name, got preset "fedadam" and name',
        ),
    ],
)
def test_wrong_presets_say_what_to_do(entry, message):
    with pytest.raises(InvalidSpec, match="preset") as caught:
        study(entry)
    assert message in str(caught.value)
    assert "methods[0].preset" in str(caught.value)


def test_the_example_compares_them_all():
    assert Study.from_yaml(EXAMPLE).labels == ("fedavg", *presets.SERVERS)
    assert Study.from_yaml(EXAMPLE).check() == []


INNER = {
    "diloco": (torch.optim.AdamW, {"betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.001}),
    "snoo": (torch.optim.AdamW, {"betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.001}),
    "lookahead": (torch.optim.Adam, {"betas": (0.9, 0.999), "eps": 1e-8}),
    "local_sgd": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
}
"""The optimizer of a worker in each preset of low-communication training but data-parallel AdamW, which has none."""


@pytest.mark.parametrize("name", INNER)
def test_a_preset_of_few_exchanges_is_a_plain_loop_of_torch(name):
    """100 rounds of 6 local steps: an optimizer of torch a worker, kept over the rounds, and torch's SGD outside."""
    rate, steps, rounds, delta = 0.01 if name == "local_sgd" else 0.03, 6, 100, 1.0 if name == "local_sgd" else 0.6
    outer, scheduled = (0.9 if name in ("diloco", "snoo") else 0.0), name in ("diloco", "snoo")
    clients = 1 if name in ("snoo", "lookahead") else 3
    generator = np.random.default_rng(3)
    factors = generator.normal(size=(clients, 4, 4))
    hessians, centers = factors @ factors.transpose(0, 2, 1) + np.eye(4), generator.normal(size=(clients, 4))
    kind, settings = INNER[name]
    wanted = workers(
        hessians, centers, [2.0] * 4, rounds, steps, partial(kind, lr=rate, **settings),
        partial(torch.optim.SGD, lr=delta, momentum=outer, nesterov=outer > 0),
        warmup=0.1 if scheduled else None, clip=1 if scheduled else None,
    )  # fmt: skip
    space = {"client_lr": rate, "local_steps": steps, **({} if name == "local_sgd" else {"delta_lr": delta})}
    server = {"server": {"space": {"momentum": outer}}} if name == "snoo" else {}
    made = study({"preset": name, "space": space, **server}).to_json()
    task = {"name": "quadratic", "hessians": hessians.tolist(), "centers": centers.tolist()}
    budget = {**made["budget"], "rounds": rounds}
    made = Study.from_json(
        made | {"task": task, "batch_size": None, "objective": {"quality": "loss"}, "budget": budget}
    )
    assert [line for line in made.check() if "one client" not in line] == []
    chosen = {key: parameter.options[0] for key, parameter in made.methods[0].parameters().items()}
    document = trial_document(made, name, [chosen], 0) | {"init": [2.0] * 4, "report": ["params"], "dtype": "float64"}
    lines = Pack.from_spec(parse(document)).advance()
    np.testing.assert_allclose([line["params"] for line in lines[1:]], wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", presets.trainings())
def test_a_preset_of_few_exchanges_keeps_what_the_entry_does_not_name(name):
    whole = study({"preset": name}).methods[0]
    assert whole == study({"preset": name, "space": "default"}).methods[0]
    assert (whole.label, study({"preset": name}).check()) == (name, study({"preset": name}).check())
    given = {"preset": name, "label": "mine", "space": {"server_lr": 0.1}}
    if "schedule" in presets.trainings()[name].entry:
        given["schedule"] = {"space": {"floor": 0.2}}
    if name == "local_sgd":  # has no server_lr
        given |= {"space": {}, "client": {"name": "nesterov", "state": "reset"}}
    own = study(given).methods[0]
    assert "delta_lr" not in own.space
    assert own.space.keys() - {"server_lr"} == whole.space.keys() - {"server_lr", "delta_lr"}
    if name == "local_sgd":
        assert own.client.space["state"].options == ("reset",)
        assert own.client.space["momentum"] == whole.client.space["momentum"]
    if "schedule" in given:
        assert own.schedule.space["floor"].options == (0.2,)
        assert own.schedule.space["warmup"] == whole.schedule.space["warmup"]
    assert study({"preset": name, "server": "yogi"}).methods[0].server.name == "yogi"
    assert study({"preset": name, "schedule": "constant"}).methods[0].schedule.space == {}
