"""MaSS: every way to synchronise against its definition, its limit cases, its settings and what it sends and keeps."""

import itertools

import numpy as np
import pytest
import torch

from trainers.engine.packs.pack import Pack
from trainers.errors import SpecError
from trainers.models import linear
from trainers.tasks import linear_regression
from trainers.theory.mass_constants import batch_constants, from_three_sequences, keeps_rate, sample_constants
from trainers.trial.document import parse

SYNCS = ("lyapunov", "momentum_half", "momentum_literal", "momentum_wu", "avg_v", "reset")
WEIGHTS = [0.3, 0.15, 0.25, 0.2, 0.1]
TASK = {
    "name": "linear_regression",
    "clients": 5,
    "examples": 40,
    "eigenvalues": (np.linspace(0.3, 1.5, 6) ** 2).tolist(),
    "orientation": "random",
    "client_weights": WEIGHTS,
    "data_seed": 1,
}
FORM = {"client_lr": 0.08, "mixing": 0.3, "batch_statistical_condition_number": 2.0}
CONDITION = "batch_statistical_condition_number"
LISTS = {
    "client_lr": 0.08,
    "rate_share_by_client": [0.5, 1.0, 0.8, 0.25, 0.9],
    "mixing_by_client": [0.3, 0.2, 0.6, 1.0, 0.4],
    "condition_by_client": [2.0, 1.0, 1.5, 1.0, 3.0],
}


def document(method=None, **changes):
    given = {"task": TASK, "method": {"name": "mass", "local_steps": 5, **(method or FORM)}, "batch_size": 4}
    return {**given, "rounds": 8, "eval_every": 1, "report": ["params"], "seed": 3, **changes}


def models(given):
    """The models of all rounds, (rounds + 1, d)."""
    return np.array([line["params"] for line in Pack.from_spec(parse(given)).advance()])


def by_definition(sync, mixing, auxiliary_lr, client_lr, local_steps, rounds=8, seed=3, batch_size=4):
    """The mean models after every round, by the formulas as they are printed, in numpy."""
    momentum = (1 - mixing) / (1 + mixing)
    compensation = (client_lr - mixing * auxiliary_lr) / (1 + mixing)
    problem = linear_regression.build(linear_regression.parse(TASK, "task"), "float64")
    model = linear.build(problem, torch.float64, torch.device("cpu"))
    source = model.source(seed, batch_size, "with_replacement")
    clients, dimension, p = 5, 6, np.array(WEIGHTS)
    w, u, v = (np.zeros((clients, dimension)) for _ in range(3))
    found = [p @ w]
    for number, step in itertools.product(range(rounds), range(local_steps)):
        batches = source.round(number, np.arange(clients))
        group = batches.batch(step, clients)[0]
        g = np.zeros_like(w)
        for place, client in enumerate(batches.clients):
            x, z = group.data["inputs"][place, :, :dimension].numpy(), group.data["wanted"][place, 0].numpy()
            g[client] = x.T @ (x @ u[client] - z) / len(x)
        y = u - client_lr * g
        last = step == local_steps - 1
        w_next = np.tile(p @ y, (clients, 1)) if last else y
        if sync.startswith("momentum"):
            u_next = w_next + momentum * (w_next - w) + compensation * g
            if sync == "momentum_half":
                u_next = (1 + momentum) / 2 * (w_next + y) - momentum * w + compensation * g
            if sync == "momentum_wu" and last:
                u_next = np.tile(p @ (y + momentum * (y - w) + compensation * g), (clients, 1))
        else:
            v = (1 - mixing) * v + mixing * u - auxiliary_lr * g
            if last and sync == "avg_v":
                v = np.tile(p @ v, (clients, 1))
            if last and sync == "reset":
                v = w_next
            u_next = (mixing * v + w_next) / (1 + mixing)
        w, u = w_next, u_next
        if last:
            found.append(p @ w)
    return np.array(found)


def of_clients(settings):
    """mixing, auxiliary_lr and client_lr, (clients, 1) each, of settings by client."""
    shares, mixing, condition = (
        np.array(settings[name])[:, None]
        for name in ("rate_share_by_client", "mixing_by_client", "condition_by_client")
    )
    client_lr = settings["client_lr"] * shares
    return mixing, client_lr / (mixing * condition), client_lr


@pytest.mark.parametrize("local_steps", [1, 5])
@pytest.mark.parametrize("sync", SYNCS)
@pytest.mark.parametrize("form", [FORM, LISTS], ids=["common", "by client"])
def test_every_way_to_synchronise_is_its_definition(sync, local_steps, form):
    found = models(document({**form, "sync": sync, "local_steps": local_steps}))
    numbers = (0.3, 0.08 / (0.3 * 2.0), 0.08) if form is FORM else of_clients(form)
    wanted = by_definition(sync, *numbers, local_steps)
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-13)
    assert np.linalg.norm(found[-1]) > 0.5


def test_settings_by_client_follow_their_clients_into_cohorts_and_unequal_steps():
    """Section 1.2 of the specification client by client, where the engine orders them by their numbers of steps."""
    sizes, rounds, p = [8, 24, 16, 40, 12], 6, np.array(WEIGHTS)
    task = {**TASK, "examples": sizes}
    method = {**LISTS, "local_steps": None, "local_epochs": 2}
    given = document(method, task=task, rounds=rounds, clients_per_round=3, batching="shuffled")
    found = models(given)
    mixing, auxiliary_lr, client_lr = of_clients(LISTS)
    setting = Pack.from_spec(parse(given))._setting
    x, kept, wanted = np.zeros(6), {}, [np.zeros(6)]
    for number in range(rounds):
        batches = setting.draw(number).batches
        steps, ends = batches.epoch_steps(2), []
        batches.prepare(int(steps.max()), steps)
        for place, k in enumerate(batches.clients):
            v = kept.get(k, x)
            u = (mixing[k] * v + x) / (1 + mixing[k])
            for step in range(steps[place]):
                group = batches.batch(step, place + 1)[-1]
                row = place - group.start
                a, z = group.data["inputs"][row, :, :6].numpy(), group.data["wanted"][row, 0].numpy()
                g = a.T @ (a @ u - z) / 4
                w, v = u - client_lr[k] * g, (1 - mixing[k]) * v + mixing[k] * u - auxiliary_lr[k] * g
                u = (mixing[k] * v + w) / (1 + mixing[k])
            ends.append(w)
            kept[k] = v
        assert list(steps) == sorted(steps, reverse=True)
        chosen = p[batches.clients] / p[batches.clients].sum()
        x = chosen @ ends
        wanted.append(x)
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-13)
    assert len(kept) > 3
    assert np.linalg.norm(found[-1]) > 0.5


@pytest.mark.parametrize("sync", SYNCS)
def test_equal_numbers_for_all_clients_are_the_common_ones_to_the_bit(sync):
    lists = {**LISTS, "rate_share_by_client": [1] * 5, "mixing_by_client": [0.3] * 5, "condition_by_client": [2] * 5}
    centers = [[1, 0], [0, 1], [2, 2], [0, 0]]
    task = {"name": "quadratic", "hessians": [np.diag([1.0, 0.3]).tolist()] * 4, "centers": centers}
    for own, other, changes in (
        (lists, FORM, {}),
        ({"constants": "estimate_by_client"}, {"constants": "estimate"}, {"task": task}),
    ):
        by_client, common = (models(document({**one, "sync": sync}, **changes)) for one in (own, other))
        assert np.array_equal(by_client, common)
    assert parse(document({"constants": "estimate_by_client"}, task=task)).method.member(0)["mixing"] is None


def test_without_compensation_it_is_nesterov_on_the_clients():
    """One client, whose look-ahead model is what fedavg with the client optimizer nesterov returns."""
    task = {**TASK, "clients": 1, "client_weights": None}
    nesterov = {"client_lr": 0.1, "momentum": 0.8, "sync": "momentum_wu", "local_steps": 6}
    spec = parse(document(nesterov, task=task, rounds=1))
    assert spec.method.member(0)["compensation_lr"] == 0.0
    pack = Pack.from_spec(spec)
    pack.advance()
    lookahead = pack._lanes[0].now.state.memory["lookahead"][0, 0, :6]
    other = {"name": "local_sgd", "client_lr": 0.1, "local_steps": 6}
    found = models(document(other, task=task, rounds=1, client={"name": "nesterov", "momentum": 0.8}))[-1]
    np.testing.assert_allclose(lookahead.numpy(), found, rtol=0, atol=1e-14)


def test_all_numbers_follow_from_any_of_the_three_ways():
    three = parse(document({"client_lr": 0.1, "mixing": 0.25, "auxiliary_lr": 0.1})).method.member(0)
    assert three["momentum"] == pytest.approx(0.6)
    assert three["compensation_lr"] == pytest.approx((0.1 - 0.025) / 1.25)
    assert three[CONDITION] == pytest.approx(4.0)
    for names in (("momentum", "compensation_lr"), ("mixing", CONDITION)):
        again = parse(document({"client_lr": 0.1, **{name: three[name] for name in names}})).method.member(0)
        assert again == pytest.approx(three)
    for given in (FORM, {"constants": "estimate_by_client"}):
        canonical = dict(parse(document(given)).canonical)
        assert parse(canonical).canonical == canonical
    default = parse(document({"client_lr": 0.1})).method.member(0)
    assert (default["momentum"], default["compensation_lr"], default[CONDITION]) == (0.9, 0.0, pytest.approx(1.0))
    assert parse(document({"client_lr": 0.1, "mixing": 0.2})).method.member(0)[CONDITION] == 1.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mixing": 0.2, "momentum": 0.5}, r"method\.mixing must not be given beside momentum: give client_lr with"),
        ({"mixing": 0.2, "auxiliary_lr": 0.1, CONDITION: 2}, r"number must not be given beside auxiliary_lr"),
        ({"auxiliary_lr": 0.1}, r"method\.mixing must be given beside auxiliary_lr"),
        ({"mixing": 0.2, "auxiliary_lr": 0.6}, r"auxiliary_lr must be at most client_lr / mixing = 0\.5"),
        ({"momentum": 0.0, "compensation_lr": 0.05}, r"must be below client_lr / \(1 \+ mixing\) = 0\.05"),
        ({"constants": "estimate"}, r"method\.constants must not be given beside client_lr, got both"),
        ({"constants": "guess", "client_lr": None}, r'constants must be "estimate", "estimate_by_client" or an object'),
        ({"constants": "estimate", "client_lr": None, "mixing": 0.1}, "mixing must be left out if constants are"),
        ({"client_lr": None}, r"method\.client_lr must be given \(above 0, or constants in its place\)"),
        ({"mixing_by_client": [1] * 5}, r"method\.rate_share_by_client must be given beside mixing_by_client: give"),
        ({**LISTS, "mixing": 0.5}, r"method\.mixing must be left out beside condition_by_client: give rate_share"),
        ({**LISTS, "mixing_by_client": [1] * 4}, r"mixing_by_client must have one number for each of 5 clients, got 4"),
        ({"server_lr": 0.1}, r"method\.server_lr must be left out: mass ties server_lr to client_lr"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(given, message):
    with pytest.raises(SpecError, match=message):
        parse(document({"client_lr": 0.1, **given}))


def test_every_client_gets_the_settings_of_its_own_constants():
    task = {**TASK, "examples": [8, 20, 40, 80, 400]}
    train, _ = linear_regression.parse(task, "task").drawn
    devices = [
        batch_constants(sample_constants(train.inputs[first : first + size]), 4)
        for first, size in zip(train.offsets, train.sizes, strict=True)
    ]
    mu = min(device.strong_convexity for device in devices)
    mixing, auxiliary_lr, client_lr = of_clients(
        parse(document({"constants": "estimate_by_client"}, task=task)).method.member(0)
    )
    for client, device in enumerate(devices):
        statistical = device.batch_statistical_condition_number
        assert client_lr[client] == pytest.approx(1 / device.batch_smoothness, rel=1e-12)
        assert mixing[client] == pytest.approx((device.batch_smoothness / mu * statistical) ** -0.5, rel=1e-12)
        assert auxiliary_lr[client] == pytest.approx(mixing[client] / mu, rel=1e-12)
        form = from_three_sequences(*(values[client].item() for values in (client_lr, mixing, auxiliary_lr)))
        assert keeps_rate(form, device)
    assert np.ptp(client_lr) > 0.3 * client_lr.max()


def test_one_changed_number_of_a_whole_set_is_refused():
    whole = dict(parse(document()).canonical)
    whole["method"] = {**whole["method"], "momentum": 0.7}
    with pytest.raises(SpecError, match=r"method\.momentum must be 0\.538462 beside mixing=0\.3"):
        parse(whole)


def test_schedules_of_client_lr_move_the_other_rates_with_it():
    """A round at half the client_lr is a round with all three rates halved."""
    schedule = {"name": "plateau", "window": 1, "patience": 1, "cooldown": 0, "client_decay": 0.5, "min_delta": 1e6}
    given = document({**FORM, "sync": "reset"}, rounds=3)
    spec = parse({**given, "schedule": schedule, "task": {**TASK, "label_noise": 1.0}})
    lines = Pack.from_spec(spec).advance()
    assert [line["client_lr"] for line in lines[1:]] == [0.08, 0.08, 0.04]
    halved = document({**FORM, "sync": "reset", "client_lr": 0.04}, rounds=3, init=lines[2]["params"])
    task = {**TASK, "label_noise": 1.0}
    source = Pack.from_spec(parse({**halved, "task": task}))
    source._round = 2
    source._opened = True
    assert source.advance()[-1]["params"] == pytest.approx(lines[3]["params"], rel=1e-12)


def test_it_runs_on_digits_with_estimated_constants():
    task = {"name": "digits", "clients": 5, "partition": {"dirichlet": 0.3}}
    method = {"constants": "estimate", "weight_decay": 0.1, "local_steps": 10}
    given = {"task": task, "method": {"name": "mass", **method}, "batch_size": 8, "rounds": 15, "eval_every": 15}
    spec = parse(given)
    values = spec.method.member(0)
    assert values["constants"] is None
    assert values["mixing"] * values[CONDITION] <= 1
    lines = Pack.from_spec(spec).advance()
    assert lines[-1]["test_accuracy"] > 0.6
    assert lines[-1]["test_loss"] < 0.8 * lines[0]["test_loss"]


@pytest.mark.parametrize(
    ("constants", "task", "message"),
    [
        ("estimate", {"name": "digits"}, r"weight_decay must be above 0 for .*strong convexity, which must be"),
        ({"smoothness": 1.0}, TASK, r"method\.constants\.strong_convexity must be given \(above 0\)"),
        ({"smoothness": 1.0, "strong_convexity": 2.0}, TASK, r"\.smoothness must be at least strong_convexity=2"),
        (
            {"smoothness": 1.0, "strong_convexity": 0.5},
            TASK,
            r"constants\.sample_smoothness must be given with batch_size=4, which makes mini-batches",
        ),
    ],
)
def test_constants_that_cannot_be_had_are_refused_before_training(constants, task, message):
    with pytest.raises(SpecError, match=message):
        parse(document({"constants": constants}, task=task))


def test_constants_are_not_estimated_for_networks():
    task = {"name": "digits", "model": "mlp"}
    with pytest.raises(SpecError, match=r"method\.constants must be left out, or numbers, for the model mlp"):
        parse(document({"constants": "estimate", "weight_decay": 0.1}, task=task))


@pytest.mark.parametrize("sync", ["lyapunov", "momentum_half", "momentum_literal"])
def test_a_client_that_keeps_0_has_kept_it(sync):
    """The first client starts in its optimum, 0, where its v stays while the others move x: 0 is not "never there"."""
    client_lr, momentum, mixing = 0.3, 0.6, 0.25
    slopes, centers = [1.0, 0.5], [0.0, 1.0]
    x, kept, wanted = 0.0, [0.0, 0.0], [0.0]
    for number in range(6):
        ends = []
        for client in range(2):
            share = {"lyapunov": 0.8, "momentum_half": 0.8, "momentum_literal": 1.6}[sync]
            u = share * x + (0.2 * kept[client] if sync == "lyapunov" else kept[client])
            u, w = (u if number else x), x
            for _ in range(3):
                before, w = w, u - client_lr * slopes[client] * (u - centers[client])
                u = w + momentum * (w - before)
            ends.append(w)
            kept[client] = ((1 + mixing) * u - w) / mixing if sync == "lyapunov" else u - share * w
        x = sum(ends) / 2
        wanted.append(x)
    task = {"name": "quadratic", "hessians": [[[1.0]], [[0.5]]], "centers": [[0.0], [1.0]]}
    method = {"name": "mass", "client_lr": client_lr, "momentum": momentum, "local_steps": 3, "sync": sync}
    document = {"task": task, "method": method, "rounds": 6, "init": [0.0], "report": ["params"]}
    found = [line["params"][0] for line in Pack.from_spec(parse(document)).advance()]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-14)
