"""Client optimizers whose memory stays with each client: against torch's AdamW, in packs, in oracles, and refusals."""

from functools import partial

import numpy as np
import pytest
import torch

from trainers.engine import randomness
from trainers.engine.packs.pack import Pack
from trainers.engine.packs.plan import Plan
from trainers.trial.document import parse
from trainers.trial.inactive import inactive, inactive_rules

from .documents import wrong
from .members import timeless
from .methods.trials import same
from .plain_loops import workers

WORK = {"client_lr": 0.05, "server_lr": 0.02, "local_steps": 3}
GENERATOR = np.random.default_rng(5)
FACTORS = GENERATOR.normal(size=(5, 3, 3))
HESSIANS, CENTERS = FACTORS @ FACTORS.transpose(0, 2, 1) + np.eye(3), GENERATOR.normal(size=(5, 3))
FIVE = {"clients_per_round": None, "batch_size": 5}
QUADRATIC = {"name": "quadratic", "hessians": HESSIANS.tolist(), "centers": CENTERS.tolist()}


def digits(name, state="keep", **changes):
    return {
        "task": {"name": "digits", "clients": 6, "partition": {"dirichlet": 0.3}},
        "method": {"name": "fedavg", **WORK},
        "client": {"name": name, "state": state},
        "clients_per_round": 3,
        "batch_size": 4,
        "rounds": 6,
        "dtype": "float64",
        **changes,
    }


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
@pytest.mark.parametrize("client_lr", [0.02, 5e-4])  # moves models, and sums of directions
@pytest.mark.parametrize("state", ["keep", "reset"])
def test_kept_adamw_is_torchs_kept_by_each_client(state, client_lr, schedule):
    """2 of 5 clients a round: those that return after rounds away go on with their moments and counts."""
    method = {"client_lr": client_lr, "server_lr": client_lr / 2, "local_steps": 4, "weight_decay": 0.1, "clip_norm": 2}
    given = {
        "task": QUADRATIC,
        "method": {"name": "fedavg", **method},
        "client": {"name": "adamw", "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3, "state": state},
        "server": {"name": "sgd", "momentum": 0.9, "nesterov": True},
        "schedule": {"name": schedule, **({"warmup": 0.05, "floor": 0.05} if schedule == "cosine" else {})},
        "clients_per_round": 2,
        "rounds": 40,
        "seed": 7,
        "report": ["params"],
        "dtype": "float64",
    }
    wanted = workers(
        HESSIANS, CENTERS, [0.0] * 3, 40, 4, clip=2, keep=state == "keep",
        inner=partial(torch.optim.AdamW, lr=client_lr, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1),
        outer=partial(torch.optim.SGD, lr=0.5, momentum=0.9, nesterov=True),
        cohort=lambda number: randomness.cohort(7, number, 5, 2).tolist(),
        warmup=0.05 if schedule == "cosine" else None,
    )  # fmt: skip
    lines = Pack.from_spec(parse(given)).advance()[1:]
    np.testing.assert_allclose([line["params"] for line in lines], wanted, rtol=0, atol=1e-10)


def begun(spec, oracle="stacked", **changes):
    """A pack whose plan is given, not measured."""
    plan = Plan(oracle, spec.members, torch.get_num_threads(), "cpu", spec.dtype, 1, **changes)
    return Pack.from_spec(spec, plan=plan)


@pytest.mark.parametrize("separate", [False, True])
def test_clients_with_unequal_steps_keep_counts_of_their_own(separate):
    """19 clients of 75 or 76 examples pass over them in 15 or 16 steps."""
    method = {"name": "fedprox", "client_lr": 0.05, "server_lr": 0.05, "local_epochs": 1, "prox": 0.1}
    task = {"name": "digits", "clients": 19, "partition": {"dirichlet": 0.3}}
    members = [{"client.epsilon": 0.01}, {"client.epsilon": 0.1}]
    spec = parse(digits("adam", task=task, method=method, members=members, rounds=3, **FIVE))
    lines, steps = [], []
    for oracle in ("stacked", "autograd"):
        pack = begun(spec, oracle, separate=separate)
        lines.append(timeless(pack.advance()))
        kept = pack._lanes[0].now.clients.gather(np.arange(19)).of("client")
        steps.append(kept["steps"][0].flatten().tolist())
        assert (kept["square"][0].sum(-1) > 0).all()
    same(*lines)
    assert steps[0] == steps[1] == [3 * -(-int(count) // 5) for count in spec.task.examples]
    assert set(steps[0]) == {3 * 15, 3 * 16}


@pytest.mark.parametrize("method", ["scaffold", "fedga", "two_way_transfer", "all_on_client"])
def test_methods_with_more_than_local_steps_keep_the_optimizers_memory_too(method):
    more = {"scaffold": {"variates": "stored"}, "fedga": {"displacement": 0.05}}.get(method, {})
    task = {**digits("adam")["task"], **({"central": {"fraction": 0.1}} if "on" in method or "way" in method else {})}
    given = digits("adam", task=task, method={"name": method, **WORK, **more}, report=["drift"])
    spec = parse(given)
    whole = begun(spec).advance()
    pack = begun(spec)
    early = pack.advance(4)
    assert timeless(early + Pack.restore(spec, pack.to_bytes()).advance()) == timeless(whole)
    given["report"] = []  # measuring the drift runs the steps again, from the memory before them
    unmeasured = begun(parse(given)).advance()
    assert [line["train_loss"] for line in whole] == [line["train_loss"] for line in unmeasured]
    fresh = begun(parse({**given, "client": {"name": "adam"}})).advance()
    assert fresh[-1]["train_loss"] != pytest.approx(whole[-1]["train_loss"], rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "path", "text"),
    [
        ({"client": {"name": "sgd", "state": "keep"}}, "client.state", "must be left out for sgd: it is a setting of"),
        ({"client": {"name": "adam", "state": "kept"}}, "client.state", "must be one of reset, keep, got state="),
        ({"server": {"name": "adam", "state": "keep"}}, "server.state", 'unknown key "state" in server'),
        (
            {"method": {"name": "fednova", **WORK}, "client": {"name": "momentum", "state": "keep"}},
            "client.state",
            "must be reset for fednova, got client.state=keep: its clients' steps must be linear",
        ),
        ({"members": [{"client.state": "keep"}]}, "members.0.client.state", "must be the same for all members"),
    ],
)
def test_what_cannot_keep_is_refused_in_one_line(changes, path, text):
    error = wrong({**digits("adam", "reset"), **changes})
    assert error.path == path
    assert text in str(error)


def test_reset_is_the_default_and_is_not_written():
    plain = digits("adam")
    del plain["client"]["state"]
    assert parse(digits("adam", "reset")).canonical == parse(plain).canonical
    kept = parse(digits("adam"))
    assert kept.canonical["client"]["state"] == "keep"
    assert parse(kept.canonical).canonical == kept.canonical
    pack = Pack.from_spec(kept)
    with pytest.raises(Exception, match="of the same trials"):
        Pack.restore(parse(plain), pack.to_bytes())


def test_momentum_of_one_step_matters_if_it_is_kept():
    names = {"method": "fedavg", "client": "momentum", "server": "sgd", "schedule": "constant"}
    values = {"local_steps": 1, "client.momentum": 0.9}
    rules = inactive_rules(names, values)
    assert "client.momentum" in inactive(rules, values)
    for state, free in (("reset", True), ("keep", False)):
        given = {**values, "client.state": state}
        assert ("client.momentum" in inactive(inactive_rules(names, given), given)) == free
