"""Client optimizers and clipped gradients: against torch's own optimizers, in packs, in all oracles, at client_lr 0."""

import itertools
from functools import cache

import numpy as np
import pytest
import torch

from trainers.engine.local.loop import run_local_steps
from trainers.engine.local.step_plan import StepPlan
from trainers.engine.local.work import LocalWork
from trainers.engine.oracles.oracle import example_weights
from trainers.engine.packs.pack import Pack
from trainers.engine.rounds.role_optimizer import RoleOptimizer
from trainers.models import linear
from trainers.problem import Examples, Problem
from trainers.registry import methods, optimizers
from trainers.trial.document import parse
from trainers.trial.parts import offered
from trainers.trial.roles import lacks, settings

from .methods import trials

SIZES = np.array([7, 20, 1, 12])
COLUMNS = 4
TORCH = {
    "sgd": (torch.optim.SGD, {}),
    "momentum": (torch.optim.SGD, {"momentum": "momentum"}),
    "nesterov": (torch.optim.SGD, {"momentum": "momentum", "nesterov": True}),
    "adam": (torch.optim.Adam, {"betas": ("beta1", "beta2"), "eps": "epsilon"}),
    "adamw": (torch.optim.AdamW, {"betas": ("beta1", "beta2"), "eps": "epsilon"}),
    "adagrad": (torch.optim.Adagrad, {"eps": "epsilon"}),
    "rmsprop": (torch.optim.RMSprop, {"alpha": "beta2", "eps": "epsilon"}),
}
SETTINGS = {"momentum": 0.7, "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3}


def own_settings(name):
    """Settings of an optimizer on clients that torch has too."""
    return {item.name: SETTINGS[item.name] for item in settings(optimizers()[name], "client") if item.name in SETTINGS}


def optimizer_of(name, trials=1, dtype=torch.float64, **changes):
    """The optimizer with a number, or one for each trial, for every setting; None for sgd."""
    module = optimizers()[name]
    given = {item.name: item.default for item in settings(module, "client")} | own_settings(name) | changes
    given |= {"beta1": None} if name == "adagrad" else {}
    values = {
        key: column(value if isinstance(value, list) else [value] * trials, dtype)
        if isinstance(value, float | list)
        else value
        for key, value in given.items()
    }
    return None if name == "sgd" else RoleOptimizer(module, module.Hyper(**values))


def column(values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype).view(-1, 1, 1)


def regression(dtype=torch.float64):
    generator = np.random.default_rng(3)
    offsets = np.cumsum(SIZES) - SIZES
    data = Examples(generator.normal(size=(40, COLUMNS - 1)), generator.normal(size=40), offsets, SIZES)
    return linear.build(Problem("linear", data), dtype, torch.device("cpu"))


def batches_of(model, batch_size=5):
    return model.source(0, batch_size, "shuffled").round(0, np.arange(len(SIZES)))


def torch_run(name, batches, client, client_lr, steps, weight_decay=0.0, clip_norm=None, changes=(), relative=None):
    """The end of one client's local work by torch's optimizer, from 0.3 everywhere."""
    maker, names = TORCH[name]
    values = {**SETTINGS, **dict(changes)}
    given = {
        key: tuple(values[n] for n in named) if isinstance(named, tuple) else values.get(named, named)
        for key, named in names.items()
    }
    point = torch.full((COLUMNS,), 0.3, dtype=torch.float64, requires_grad=True)
    optimizer = maker([point], lr=client_lr, weight_decay=0.0 if clip_norm else weight_decay, **given)
    for step in range(steps):
        group = batches.batch(step, len(SIZES))[0]
        inputs, wanted = group.data["inputs"][client, :, :COLUMNS], group.data["wanted"][client, 0]
        if relative is not None:
            optimizer.param_groups[0]["lr"] = client_lr * relative[step]
        optimizer.zero_grad()
        weights = example_weights(group, group.data["inputs"].shape[1], point)[client]
        (0.5 * (inputs @ point - wanted).square() @ weights).backward()
        if clip_norm:
            gradient = point.grad + weight_decay * point.detach()
            point.grad = gradient * min(1.0, clip_norm / float(gradient.norm()))
        optimizer.step()
    return point.detach().numpy()


def done(model, work, oracle="stacked", batch_size=5):
    trials = work.plan.client_lr.shape[0]
    params = model.layout.row(torch.full((trials, 1, COLUMNS), 0.3, dtype=work.plan.client_lr.dtype))
    return run_local_steps(
        model.oracles[oracle], batches_of(model, batch_size), params, work, np.ones(trials, dtype=bool)
    )


@pytest.mark.parametrize(("weight_decay", "clip_norm"), [(0.0, None), (0.2, None), (0.3, 0.4)])
@pytest.mark.parametrize("relative", [None, torch.tensor([[1.0, 2, 0.5, 0.25, 0, 1], [1, 0.1, 0, 0, 0, 0], [0.5] * 6])])
@pytest.mark.parametrize("name", TORCH)
def test_local_work_is_that_of_torchs_optimizer(name, weight_decay, clip_norm, relative):
    """Three trials of different steps, rates and settings in one loop, each against torch alone."""
    model = regression()
    if name == "adamw" and clip_norm:
        weight_decay = 0.0  # which is beside the clipped gradient
    rates, counts, epsilons, momenta = [0.05, 0.2, 0.01], [6, 2, 4], [1e-3, 1e-1, 1e-2], [0.7, 0.2, 0.9]
    has = own_settings(name)
    changes = {"epsilon": epsilons, "momentum": momenta}
    optimizer = optimizer_of(name, 3, **{key: values for key, values in changes.items() if key in has})
    steps = torch.tensor(counts).view(-1, 1, 1)
    plan = StepPlan(column(rates), steps, relative_rates=relative)
    bound = column([clip_norm] * 3) if clip_norm else None
    work = LocalWork(plan, weight_decay=column([weight_decay] * 3), optimizer=optimizer, clip_norm=bound)
    found = done(model, work).pseudo_gradient
    batches = batches_of(model)
    for trial, client in itertools.product(range(3), range(len(SIZES))):
        own = {key: values[trial] for key, values in changes.items() if key in has}
        factors = None if relative is None else relative[trial].tolist()
        given = rates[trial], counts[trial], weight_decay, clip_norm
        end = torch_run(name, batches, client, *given, changes=own.items(), relative=factors)
        mine = 0.3 - rates[trial] * found[trial, client, :COLUMNS].numpy()
        np.testing.assert_allclose(mine, end, rtol=1e-10, atol=1e-12)
    assert (found[..., COLUMNS:] == 0).all()


def test_gradients_of_zero_are_not_divided_by_zero():
    offsets = np.array([0, 2])
    data = Examples(np.ones((4, 3)), np.zeros(4), offsets, np.array([2, 2]))
    model = linear.build(Problem("linear", data), torch.float64, torch.device("cpu"))
    batches = model.source(0, None, "shuffled").round(0, np.arange(2))
    params = model.layout.row(torch.zeros(1, 1, COLUMNS, dtype=torch.float64))
    for name in TORCH:
        work = LocalWork(
            StepPlan(column([0.1]), torch.tensor([[[3]]])), optimizer=optimizer_of(name), clip_norm=column([1.0])
        )
        found = run_local_steps(model.oracles["stacked"], batches, params, work, np.array([True]))
        assert (found.pseudo_gradient == 0).all()


@pytest.mark.parametrize("name", TORCH)
def test_single_precision_keeps_its_digits_however_small_client_lr(name):
    for client_lr in (1e-2, 1e-6, 1e-9, 0.0):
        found = {}
        for dtype in (torch.float32, torch.float64):
            optimizer = optimizer_of(name, dtype=dtype)
            work = LocalWork(StepPlan(column([client_lr], dtype), torch.tensor([[[8]]])), optimizer=optimizer)
            found[dtype] = done(regression(dtype), work).pseudo_gradient.double()
        error = (found[torch.float32] - found[torch.float64]).norm() / found[torch.float64].norm()
        assert error < 2e-5, client_lr  # a difference of models divided by 1e-6 would be wrong by more than 0.01


@pytest.mark.parametrize("name", TORCH)
def test_all_oracles_do_the_same_local_work(name):
    model = regression()
    optimizer = optimizer_of(name, 2)
    work = LocalWork(
        StepPlan(column([0.1, 0.0]), torch.tensor([3, 5]).view(-1, 1, 1)),
        prox=column([0.5, 0.1]),
        optimizer=optimizer,
        clip_norm=column([0.7, 2.0]),
    )
    answers = [done(model, work, oracle, None).pseudo_gradient for oracle in model.oracles]
    for answer in answers[1:]:
        torch.testing.assert_close(answer, answers[0], rtol=1e-10, atol=1e-10)


WITH_OPTIMIZER = [name for name, module in methods().items() if lacks(module, "client") is None]
WITH_CLIPPING = [name for name in methods() if "clip_norm" in {item.name for item in offered(methods()[name])}]
TASK = {"name": "digits", "clients": 6, "partition": {"dirichlet": 0.3}}


def document(method, client=None, **settings):
    given = trials.document(method, task=TASK, batch_size=4, rounds=2, client=client)
    return {**given, "method": given["method"] | settings}


def curve(given, **changes):
    keys = ("round", "train_loss", "update_norm", "test_loss")
    lines = Pack.from_spec(parse({**given, **changes})).advance()
    return [[line[key] for key in keys] for line in lines if line.get("member", 0) == 0]


@cache
def plain_curve(method):
    return curve(document(method))


def near(lines, others, tolerance=1e-10):
    for line, other in zip(lines, others, strict=True):
        for one, two in zip(line, other, strict=True):
            assert one == (two if two is None else pytest.approx(two, rel=tolerance, abs=tolerance))


def test_methods_with_local_work_offer_client_optimizers():
    assert set(WITH_OPTIMIZER) >= {"fedavg", "fedprox", "reptile", "local_sgd", "lookahead", "minibatch_prox"}
    assert set(WITH_CLIPPING) >= {*WITH_OPTIMIZER, "fedsgd", "local_update", "fomaml"}


@pytest.mark.parametrize("method", WITH_CLIPPING)
def test_clipping_bounds_every_methods_update(method):
    plain, clipped = plain_curve(method), curve(document(method, clip_norm=1e-3))
    assert plain[1][2] > 0.02
    most = 4.0 if "scaling" in method else 3.5 if method == "local_update" else 3.0  # clients summed, weights, steps
    assert clipped[1][2] <= 1e-3 * most * (1 + 1e-9)
    near(curve(document(method, clip_norm=1e9)), plain)


@pytest.mark.parametrize("method", WITH_OPTIMIZER)
def test_momentum_0_is_sgd_and_one_step_is_too(method):
    plain = plain_curve(method)
    near(curve(document(method, client={"name": "momentum", "momentum": 0.0})), plain)
    near(curve(document(method, client={"name": "nesterov", "momentum": 0.0})), plain)
    once = document(method, local_steps=1)
    near(curve(document(method, client={"name": "momentum"}, local_steps=1)), curve(once))
    assert curve(document(method, client={"name": "momentum"}))[-1][1] != pytest.approx(plain[-1][1], rel=1e-6)
