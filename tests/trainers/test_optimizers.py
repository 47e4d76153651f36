"""The contract of an optimizer, over all that are found and over every role in which they serve."""

import inspect
import itertools

import numpy as np
import pytest
import torch

from trainers.engine.packs.build import hyper_of
from trainers.engine.packs.pack import Pack
from trainers.engine.rounds.role_optimizer import RoleOptimizer
from trainers.errors import SpecError
from trainers.registry import methods, optimizers
from trainers.trial.document import parse, structure_of
from trainers.trial.parts import Given, parse_part
from trainers.trial.roles import ROLES, serving, settings

from .documents import wrong
from .methods.trials import document as usual

SERVING = [(role, name) for role in ROLES for name in serving(role)]
STEPPING = [(role, name) for role, name in SERVING if (role, name) != ("client", "sgd")]  # plain steps have no memory
FORMULAS = ("sgd", "momentum", "nesterov", "adam", "adamw", "yogi", "adagrad", "rmsprop")
OTHER = {"momentum": 0.6, "beta1": 0.5, "beta2": 0.8, "epsilon": 0.1, "initial_accumulator": 0.2}
TRIALS, CLIENTS_PER_ROUND, NUMBERS, SIZE = 3, 4, 5, 16
RATE, STEPS = 0.05, 6


def document(role, name, **own):
    """A trial in which an optimizer serves in a role."""
    method = "parallel_training" if role in ("central", "merge") else "fedavg"
    given = usual(method, rounds=5, init=[1.0, -2.0, 0.5], report=["params"])
    given["method"] |= {"client_lr": RATE, "server_lr": RATE}
    if method == "parallel_training":
        given["method"] |= {"central_lr": 0.02, "merge_lr": 0.3}
    return given | {role: {"name": name, **own}}


def others(role, name):
    """Another value of every traced setting: of `OTHER`, or the middle of its range."""
    return {
        item.name: OTHER.get(item.name) or middle(item) for item in settings(optimizers()[name], role) if item.traced
    }


def middle(item):
    low = 0.0 if item.low is None else item.low
    return (low + (low + 1 if item.high is None else item.high)) / 2


def bound(role, name, members=({}, {}, {})):
    """The optimizer with settings of three trials."""
    part = parse_part(role, optimizers(), {"name": name}, [parse_member(role, member) for member in members])
    like = torch.empty(0, dtype=torch.float64)
    return RoleOptimizer(part.module, hyper_of(part, np.arange(len(members)), (1, 1), like))


def parse_member(role, member):
    return {key: Given(value, f"{role}.{key}") for key, value in member.items()}


def gradients(clients=1):
    """A gradient for every step, with padding behind the numbers."""
    generator = torch.Generator().manual_seed(1)
    found = torch.randn(STEPS, TRIALS, clients, SIZE, generator=generator, dtype=torch.float64)
    found[..., NUMBERS:] = 0
    return found


def walked(optimizer, given):
    """The directions of all steps along given gradients, (STEPS, T, M, P)."""
    memory, found = optimizer.init(torch.zeros_like(given[0])), []
    for step, gradient in enumerate(given):
        total = torch.zeros_like(gradient)
        optimizer.step_(total, memory, gradient.clone(), step)
        found.append(total)
    return torch.stack(found)


def test_every_optimizer_describes_itself():
    assert set(FORMULAS) <= set(optimizers())
    for name, module in optimizers().items():
        assert inspect.getdoc(module.Hyper)
        assert "Source:" in module.__doc__
        known = {item.name for item in settings(module, "merge")} | {"momentum", "nesterov"}
        for role, named in (*module.DEFAULTS.items(), *module.ABSENT.items()):
            assert role in ROLES
            assert set(named) <= known, name


def test_every_role_has_its_settings_and_their_defaults():
    """Which these are is compared with docs/methods.md in test_catalogue.py."""
    for role, name in SERVING:
        declared = {item.name: item.default for item in settings(optimizers()[name], role)}
        assert parse(document(role, name)).optimizers[role].member(0) == declared, (role, name)


@pytest.mark.parametrize(("role", "name"), STEPPING)
def test_steps_are_those_of_each_client_and_each_trial_alone_and_padding_stays_zero(role, name):
    optimizer, given = bound(role, name, ({}, others(role, name), {})), gradients(CLIENTS_PER_ROUND)
    whole = walked(optimizer, given)
    assert whole.isfinite().all()
    assert (whole[..., NUMBERS:] == 0).all()
    assert (whole[..., :NUMBERS] != 0).all()
    assert not torch.equal(whole[-1, 0], whole[-1, 1])
    assert torch.equal(walked(optimizer, given[:, :, 2:3]), whole[:, :, 2:3])
    for row in (slice(number, number + 1) for number in range(TRIALS)):
        torch.testing.assert_close(walked(optimizer.rows(row), given[:, row]), whole[:, row], rtol=1e-12, atol=1e-14)


FUSED = [name for name, module in optimizers().items() if module.descend_ is not None]


@pytest.mark.parametrize("clients", [1, CLIENTS_PER_ROUND])
@pytest.mark.parametrize("name", FUSED)
def test_fused_steps_move_models_along_the_same_directions(name, clients):
    """Of all trials, of the first ones only and of one in the middle, whose memory is not contiguous."""
    for rows in (slice(TRIALS), slice(TRIALS - 1), slice(1, 2)):
        every = bound("client", name, ({},) * TRIALS)
        optimizer = every.rows(rows)
        assert optimizer.shared is not None
        like = torch.zeros(clients, TRIALS, SIZE, dtype=torch.float64).transpose(0, 1)
        memories = [{key: held[rows] for key, held in every.init(like).items()} for _ in range(2)]
        models = torch.ones_like(like)[rows]
        for step, gradient in enumerate(gradients(clients)):
            before = models.clone()
            direction = optimizer.module.direction_(optimizer.hyper, memories[0], gradient[rows].clone(), step)
            added = optimizer.accumulator_(memories[1]) if step % 2 else None
            given = gradient[rows].clone() if added is None else added.add_(gradient[rows])
            optimizer.step_(models, memories[1], given, step, 0.3)
            torch.testing.assert_close(models, before - 0.3 * direction, rtol=1e-12, atol=1e-14)
    assert {"momentum", "nesterov", "adam", "adamw", "rmsprop", "adagrad"} <= set(FUSED)


@pytest.mark.parametrize(("role", "name"), STEPPING)
def test_steps_of_the_server_leave_their_arguments_alone_and_are_those_of_clients(role, name):
    optimizer = bound(role, name, ({}, others(role, name), {}))
    directions = walked(optimizer, gradients())
    params = torch.zeros(TRIALS, 1, SIZE, dtype=torch.float64)
    rate = torch.full((TRIALS, 1, 1), RATE, dtype=torch.float64)
    memory = optimizer.begin(params)
    for step, gradient in enumerate(gradients()):
        given = (params, gradient, rate, *memory.values())
        copies = [tensor.clone() for tensor in given]
        moved, fresh = optimizer.step(memory, params, gradient, rate)
        assert all(torch.equal(tensor, copy) for tensor, copy in zip(given, copies, strict=True))
        decay = optimizer.hyper.weight_decay * params if optimizer.decoupled else 0
        torch.testing.assert_close(moved, params - RATE * (directions[step] + decay), rtol=1e-14, atol=1e-14)
        assert all(tensor.shape[:2] == (TRIALS, 1) for tensor in fresh.values())
        params, memory = moved, fresh


def by_definition(name, own, gradient_path):
    """The directions that the module's docstring states, in plain numpy, for one trial."""
    beta1, beta2, epsilon = own.get("beta1") or 0.0, own.get("beta2"), own.get("epsilon")
    mean, square = 0.0, own.get("initial_accumulator", 0.0)
    for t, g in enumerate(gradient_path, 1):
        if name in ("sgd", "momentum", "nesterov"):
            mean = own["momentum"] * mean + g
            yield g + own["momentum"] * mean if name == "nesterov" or own.get("nesterov") else mean
            continue
        mean = beta1 * mean + (1 - beta1) * g
        if name == "adagrad":
            square = square + g**2
        elif name == "yogi":
            square = square + (1 - beta2) * np.sign(g**2 - square) * g**2
        else:
            square = beta2 * square + (1 - beta2) * g**2
        first, second = (1 - beta1**t, 1 - beta2**t) if own.get("bias_correction") else (1.0, 1.0)
        if name == "yogi":
            yield np.sqrt(second) / first * mean / (np.sqrt(square) + epsilon)
        else:
            yield mean / first / (np.sqrt(square / second) + epsilon)


@pytest.mark.parametrize(("role", "name"), [(role, name) for role, name in STEPPING if name in FORMULAS])
def test_directions_are_those_of_the_formulas(role, name):
    module = optimizers()[name]
    structural = [item.name for item in settings(module, role) if not item.traced]
    for switched in itertools.product((False, True), repeat=len(structural)):
        fixed = dict(zip(structural, switched, strict=True))
        members = [{}, others(role, name), {}]
        part = parse_part(
            role, optimizers(), {"name": name, **fixed}, [parse_member(role, member) for member in members]
        )
        like = torch.empty(0, dtype=torch.float64)
        found = walked(RoleOptimizer(module, hyper_of(part, np.arange(3), (1, 1), like)), gradients())[..., :NUMBERS]
        for trial, member in enumerate(members):
            own = {item.name: item.default for item in settings(module, role)} | fixed | member
            wanted = list(by_definition(name, own, gradients()[:, trial, 0, :NUMBERS].numpy()))
            np.testing.assert_allclose(found[:, trial, 0].numpy(), wanted, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", [name for name in serving("client") if name != "sgd"])
def test_clients_begin_afresh_in_every_round(name):
    """One client and one step a round: with memory of other rounds the second round would be another one."""
    given = document("client", name) | {"clients_per_round": None, "batch_size": None, "rounds": 2}
    given["method"] |= {"local_steps": 1}
    given["task"] |= {"gradient_noise": 0.0}
    twice = Pack.from_spec(parse(given)).advance()
    again = Pack.from_spec(parse({**given, "init": twice[1]["params"], "rounds": 1})).advance()
    assert again[-1]["params"] == twice[-1]["params"]


def test_linear_optimizers_are_declared():
    for name, module in optimizers().items():
        if name == "sgd":
            continue
        once, twice = (walked(bound("client", name), factor * gradients()) for factor in (1, 2))
        assert torch.allclose(twice, 2 * once, rtol=1e-12, atol=1e-12) == module.LINEAR, name
    assert set(serving("client", "linear")) >= {"momentum", "nesterov", "sgd"}


def test_optimizers_and_their_structure_separate_packs_and_other_settings_do_not():
    one = structure_of(parse(document("client", "adam", beta1=0.5)))
    assert one == structure_of(parse(document("client", "adam", beta2=0.9)))
    assert one != structure_of(parse(document("client", "adamw", beta1=0.5)))
    assert one != structure_of(parse(document("client", "adam", bias_correction=False)))
    assert structure_of(parse(document("merge", "adam"))) != structure_of(parse(document("central", "adam")))


def test_documents_are_filled_in_and_read_again_as_they_are():
    for role, name in SERVING:
        spec = parse({**document(role, name), "members": [{}, {"client_lr": 0.1}]})
        assert spec.canonical[role]["name"] == name
        assert parse(dict(spec.canonical)).canonical == spec.canonical
    spec = parse(document("server", "sgd"))
    assert set(spec.optimizers) == {"client", "server"}
    assert spec.canonical["client"] == {"name": "sgd"}
    assert "merge" not in spec.canonical


REFUSED = [
    (document("client", "adamw", weight_decay=0.1),
     "client.weight_decay must be left out for adamw: on clients it is the method's setting"),
    (document("client", "nestrov"), 'client.name: no optimizer "nestrov": did you mean nesterov?'),
    (document("client", "sgd", momentum=0.5),
     "client.momentum must be left out for sgd: it is a setting of "),
    (document("client", "adam", momentum=0.5),
     "client.momentum must be left out for adam: it is a setting of "),
    (document("server", "sgd", beta1=0.5),
     "server.beta1 must be left out for sgd: it is a setting of adagrad, adam, "),
    (document("client", "adam", beta=0.5), 'unknown key "beta" in client: did you mean beta'),
    (document("merge", "adam", beta1=1.0), "merge.beta1 must be in [0, 1), got beta1=1"),
    ({**document("client", "sgd"), "members": [{"client.beta2": 0.5}]},
     "members.0.client.beta2 must be left out for sgd: it is a setting of adam, "),
    ({**document("client", "adam"), "members": [{"client.bias_correction": False}]},
     "members.0.client.bias_correction must be the same for all members"),
    ({**document("server", "sgd"), "merge": {"name": "sgd"}},
     "method fedavg takes no merge optimizer, got merge.name=sgd: it has no branches to merge; leave merge out"),
    ({**document("server", "sgd"), "central": {}}, "central.name must be given: one of adagrad, adam"),
    ({**document("server", "sgd"), "client": "adam"}, "client must be an object"),
    ({**document("server", "sgd"), "members": [{"merge.momentum": 0.5}]},
     "members.0.merge.momentum must be left out: method fedavg takes no merge optimizer: it has no branches to merge"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "message"), REFUSED)
def test_what_cannot_be_is_refused_with_the_reason(given, message):
    assert str(wrong(given)).startswith(message)


def test_methods_without_local_optimizers_refuse_them_by_name():
    task = document("merge", "sgd")["task"]
    named = {"mass": "its local steps are those of MaSS", "mime": "its local steps apply the server's momentum"}
    named |= {"fedsgd": "its clients take no steps of their own", "maml": "its local steps are plain gradient descent"}
    for method in methods():
        given = {"task": task, "method": {"name": method}, "client": {"name": "adam"}, "rounds": 1}
        with pytest.raises(SpecError) as caught:
            parse(given)
        refused = str(caught.value).startswith(f"method {method} takes no client optimizer, got client.name=adam: ")
        assert refused == ("client" not in methods()[method].ROLES
                           or methods()[method].ROLES["client"].startswith("none")), method  # fmt: skip
        if method in named:
            assert named[method] in str(caught.value)
