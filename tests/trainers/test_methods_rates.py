"""Methods whose rates hang together (local SGD, `tied`, Lookahead), and mini-batch SGD, against explicit arithmetic."""

import numpy as np
import pytest

from trainers.engine import randomness
from trainers.engine.packs.pack import Pack
from trainers.errors import SpecError
from trainers.trial.document import parse, structure_key

HESSIANS = np.array([[[2.0, 0.0], [0.0, 1.0]], [[1.0, 0.5], [0.5, 3.0]], [[4.0, 1.0], [1.0, 2.0]]])
CENTERS = np.array([[1.0, 0.0], [0.0, 2.0], [-1.0, 1.0]])
START, SEED = [2.0, -3.0], 4
WORK = {"client_lr": 0.1, "local_steps": 6}
PLATEAU = {"name": "plateau", "window": 2, "patience": 1, "cooldown": 3, "min_delta": 0.05}


def document(method, **changes):
    return {
        "task": {"name": "quadratic", "hessians": HESSIANS.tolist(), "centers": CENTERS.tolist()},
        "method": method,
        "init": START,
        "seed": SEED,
        "rounds": 12,
        "eval_every": 1,
        "report": ["params"],
        **changes,
    }


def train(given):
    return Pack.from_spec(parse(given)).advance()


def models(lines):
    return np.array([line["params"] for line in lines])


def trained(client, x, rate=0.1, steps=6):
    """The model of a client after its local steps."""
    for _ in range(steps):
        x = x - rate * HESSIANS[client] @ (x - CENTERS[client])
    return x


def clients_of(number, size):
    return randomness.cohort(SEED, number, 3, size).tolist()


def wrong(given):
    with pytest.raises(SpecError) as caught:
        parse(given)
    return str(caught.value)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_local_sgd_averages_locally_trained_models(size):
    lines = train(document({"name": "local_sgd", **WORK}, clients_per_round=size))
    x = np.array(START)
    for number, line in enumerate(lines[1:]):
        x = np.mean([trained(client, x) for client in clients_of(number, size)], 0)
        np.testing.assert_allclose(line["params"], x, rtol=0, atol=1e-12)
    assert all(line["server_lr"] == line["client_lr"] == 0.1 for line in lines)


def test_local_sgd_averages_with_the_weights_of_the_clients():
    weights = [0.5, 0.2, 0.3]
    given = document({"name": "local_sgd", **WORK})
    given["task"]["client_weights"] = weights
    x = np.array(START)
    for line in train(given)[1:]:
        x = np.average([trained(client, x) for client in range(3)], 0, weights)
        np.testing.assert_allclose(line["params"], x, rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", [{"name": "local_sgd", **WORK}, {"name": "fedavg", "tied": True, **WORK}])
@pytest.mark.parametrize("mode", ["paper", "reference"])
def test_tied_rates_follow_the_clients_through_a_decay(method, mode):
    plateau = {**PLATEAU, "decay_mode": mode, "client_decay": 0.5}
    lines = train(document(method, rounds=30, schedule={**plateau, "server_decay": 0.9}))
    assert all(line["server_lr"] == line["client_lr"] for line in lines)
    assert lines[-1]["client_lr"] <= 0.1 / 4
    both = document({"name": "fedavg", **WORK, "server_lr": 0.1}, rounds=30)
    free = train({**both, "schedule": {**plateau, "server_decay": 0.5}})
    np.testing.assert_allclose(models(lines), models(free), rtol=0, atol=1e-12)
    assert [line["client_lr"] for line in lines] == [line["client_lr"] for line in free]


def test_tied_rates_follow_the_theory_too():
    constants = {"strong_convexity": 0.5, "smoothness": 5.0}
    lines = train(document({"name": "local_sgd", **WORK}, schedule={"name": "theory_1_over_t", **constants}))
    wanted = [min(1 / (5.0 * (300 + t)), np.log(2) / (6 * 0.5)) for t in range(1, 13)]
    assert [line["client_lr"] for line in lines[1:]] == pytest.approx(wanted, rel=1e-12)
    assert all(line["server_lr"] == line["client_lr"] for line in lines)
    x = np.array(START)
    for line, rate in zip(lines[1:], wanted, strict=True):
        x = np.mean([trained(client, x, rate) for client in range(3)], 0)
        np.testing.assert_allclose(line["params"], x, rtol=0, atol=1e-12)


def test_tied_members_have_rates_of_their_own():
    members = [{"client_lr": 0.1}, {"client_lr": 0.02}]
    given = document({"name": "local_sgd", "local_steps": 6}, members=members)
    lines = train(given)
    for number, member in enumerate(members):
        mine = [line for line in lines if line["member"] == number]
        alone = train(document({"name": "local_sgd", "local_steps": 6, **member}))
        np.testing.assert_allclose(models(mine), models(alone), rtol=0, atol=1e-12)
        assert {line["server_lr"] for line in mine} == {member["client_lr"]}


def test_a_restored_tied_pack_goes_on_to_the_bit():
    spec = parse(document({"name": "fedavg", "tied": True, **WORK}, schedule=PLATEAU))
    whole = models(Pack.from_spec(spec).advance())
    pack = Pack.from_spec(spec)
    lines = pack.advance(5)
    lines += Pack.restore(spec, pack.to_bytes()).advance()
    assert np.array_equal(models(lines), whole)


def test_documents_with_tied_rates():
    spec = parse(document({"name": "fedavg", "tied": True, **WORK}))
    assert spec.method.tied
    assert spec.canonical["method"]["tied"] is True
    assert "server_lr" not in spec.canonical["method"]
    assert parse(spec.canonical).canonical == spec.canonical
    free = parse(document({"name": "fedavg", "tied": False, "server_lr": 0.1, **WORK}))
    assert not free.method.tied
    assert "tied" not in free.canonical["method"]
    keys = [
        structure_key(document({"name": "fedavg", **WORK, **more}))
        for more in ({"tied": True}, {"tied": True, "client_lr": 0.3}, {"server_lr": 0.1})
    ]
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize(
    ("method", "members", "message"),
    [
        (
            {"name": "local_sgd", **WORK, "server_lr": 0.1},
            None,
            "method.server_lr must be left out: local_sgd ties server_lr to client_lr",
        ),
        (
            {"name": "local_sgd", **WORK},
            [{"delta_lr": 1}],
            "members.0.delta_lr must be left out: local_sgd ties server_lr to client_lr",
        ),
        ({"name": "local_sgd", **WORK, "client_lr": 0}, None, "method.client_lr must be above 0, got client_lr=0"),
        (
            {"name": "fedavg", **WORK, "tied": True},
            [{}, {"server_lr": 1}],
            "members.1.server_lr must be left out: tied: true ties server_lr to client_lr",
        ),
        (
            {"name": "fedavg", **WORK, "tied": True},
            [{"client_lr": 0}],
            "members.0.client_lr must be above 0 where server_lr is tied to it, got client_lr=0",
        ),
        (
            {"name": "fedavg", **WORK, "tied": True},
            [{"tied": False}],
            "members.0.tied must be the same for all members: give it once, outside members",
        ),
        ({"name": "fedavg", **WORK, "tied": "yes"}, None, 'method.tied must be true or false, got tied="yes"'),
    ],
)
def test_wrong_rates(method, members, message):
    given = document(method) if members is None else document(method, members=members)
    assert wrong(given) == message


@pytest.mark.parametrize("delta_lr", [0.25, 1.0])
def test_lookahead_moves_the_slow_weights_part_of_the_way(delta_lr):
    lines = train(document({"name": "lookahead", **WORK, "delta_lr": delta_lr}))
    x = np.array(START)
    for number, line in enumerate(lines[1:]):
        (client,) = clients_of(number, 1)
        x = x + delta_lr * (trained(client, x) - x)
        np.testing.assert_allclose(line["params"], x, rtol=0, atol=1e-12)


def test_lookahead_has_one_client_a_round():
    method = {"name": "lookahead", **WORK, "delta_lr": 0.5}
    assert parse(document(method)).clients_per_round == 1
    assert parse(document(method, clients_per_round=1)).canonical == parse(document(method)).canonical
    message = "clients_per_round must be 1 for lookahead, or left out, got clients_per_round=2"
    assert wrong(document(method, clients_per_round=2)) == message


def test_minibatch_sgd_takes_one_gradient_a_client():
    lines = train(document({"name": "minibatch_sgd", "server_lr": 0.2}, clients_per_round=2))
    x = np.array(START)
    for number, line in enumerate(lines[1:]):
        x = x - 0.2 * np.mean([HESSIANS[c] @ (x - CENTERS[c]) for c in clients_of(number, 2)], 0)
        np.testing.assert_allclose(line["params"], x, rtol=0, atol=1e-12)
    assert lines[-1]["client_gradients"] == 12 * 2


def test_the_theorys_local_steps_are_the_methods():
    theory = {"name": "theory_1_over_t", "strong_convexity": 0.5, "smoothness": 5.0}
    fedavg = {"name": "fedavg", **WORK, "server_lr": 0.1}
    members = [{}, {"local_steps": 2}]
    assert parse(document(fedavg, schedule=theory, members=members)).schedule.values["local_steps"] == (6, 2)
    assert parse(document({"name": "minibatch_sgd", "server_lr": 1}, schedule=theory)).schedule.values[
        "local_steps"
    ] == (1,)
    assert parse(document(fedavg, schedule=theory)).warnings == ()
    assert parse(document(fedavg, schedule={**theory, "local_steps": 5})).warnings == (
        "schedule.local_steps is 5, but the method's is 6: left out it is the same",
    )
    assert wrong(document(fedavg, schedule={**theory, "smoothness": 0.1})) == (
        "schedule.smoothness must be at least strong_convexity, got smoothness=0.1 and strong_convexity=0.5"
    )
    digits = {"name": "digits", "clients": 4, "partition": "iid"}
    epochs = {"name": "fedavg", "client_lr": 0.1, "server_lr": 0.1, "local_epochs": 1}
    assert wrong({"task": digits, "method": epochs, "schedule": theory, "rounds": 1}) == (
        "schedule.local_steps must be given, because the method has no local_steps of its own"
    )
