"""The local loop against the definition, step by step in numpy."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers.engine.local.loop import run_local_steps
from trainers.engine.local.step_plan import StepPlan, last_step_only
from trainers.engine.local.work import LocalWork
from trainers.engine.rounds.role_optimizer import RoleOptimizer
from trainers.methods import fedavg
from trainers.models import quadratic
from trainers.problem import Problem, Quadratics
from trainers.registry import optimizers

CLIENTS, DIMENSION = 4, 3


def quadratics(noise=0.0):
    generator = np.random.default_rng(5)
    factors = generator.normal(size=(CLIENTS, DIMENSION, DIMENSION))
    hessians = factors @ factors.transpose(0, 2, 1) + np.eye(DIMENSION)
    losses = Quadratics(hessians, generator.normal(size=(CLIENTS, DIMENSION)), np.zeros(CLIENTS), noise)
    return quadratic.build(Problem("quadratic", losses), torch.float64, torch.device("cpu"))


def column(values):
    return torch.tensor(values, dtype=torch.float64).view(-1, 1, 1)


def steps(values):
    return torch.tensor(values).view(-1, 1, 1)


def start(model, trials):
    vectors = torch.randn(trials, 1, DIMENSION, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return model.layout.row(vectors)


def run(model, params, work, alive=None):
    batches = model.source(0, None, "with_replacement").round(0, np.arange(CLIENTS))
    alive = np.ones(len(params), dtype=bool) if alive is None else alive
    return run_local_steps(model.oracles["closed_form"], batches, params, work, alive)


def by_definition(model, x, client, client_lr, count, terms):
    """The weighted sum of one client's gradients as the docstring of LocalWork has them; terms are of this client."""
    hessian, center = model.hessians[client].numpy(), model.centers[client].numpy()

    def gradient(at):
        return hessian @ (at - center) + terms.get("weight_decay", 0.0) * at

    y, total = x + terms.get("displacement", 0.0), np.zeros(DIMENSION)
    weights, relative = terms.get("gradient_weights", np.ones(count)), terms.get("relative_rates", np.ones(9))
    for rate, weight in zip(relative, np.trim_zeros(weights, "b"), strict=False):
        step = gradient(y + terms.get("evaluation_offset", 0.0))
        step = step - gradient(terms["anchor"]) if "anchor" in terms else step
        step = terms.get("gradient_scale", 1.0) * step + terms.get("prox", 0.0) * (y - x) + terms.get("correction", 0.0)
        step = step * min(1.0, terms.get("clip_norm", np.inf) / np.linalg.norm(step))
        total, y = total + weight * rate * step, y - client_lr * rate * step
    return total


ROWS = st.tuples(
    st.floats(0, 0.2),
    st.lists(st.floats(0, 3), min_size=1, max_size=6).filter(lambda weights: weights[-1] > 0),
    st.sampled_from([0.0, 0.3, 2.0]),
)


@given(rows=st.lists(ROWS, min_size=1, max_size=7), counted=st.booleans())
def test_any_steps_or_weights_at_any_rates(rows, counted):
    model = quadratics()
    rates, families, prox = zip(*rows, strict=True)
    counts = [len(weights) for weights in families]
    padded = torch.zeros(len(rows), 9, dtype=torch.float64)
    for trial, weights in enumerate(families):
        padded[trial, : len(weights)] = torch.tensor([1.0] * len(weights) if counted else weights, dtype=torch.float64)
    plan = StepPlan(column(rates), **({"local_steps": steps(counts)} if counted else {"gradient_weights": padded}))
    params = start(model, len(rows))
    done = run(model, params, LocalWork(plan, prox=column(prox)))
    assert done.steps.tolist() == [[count] * CLIENTS for count in counts]
    for trial, client in itertools.product(range(len(rows)), range(CLIENTS)):
        terms = {"prox": prox[trial], "gradient_weights": padded[trial].numpy()}
        x = params[trial, 0, :DIMENSION].numpy()
        wanted = by_definition(model, x, client, rates[trial], counts[trial], terms)
        found = done.pseudo_gradient[trial, client, :DIMENSION].numpy()
        np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-11)


def test_trials_that_are_not_alive_take_no_steps():
    model = quadratics()
    params = start(model, 3)
    params[1] = float("nan")
    work = LocalWork(StepPlan(column([0.1, 0.1, 0.1]), steps([5, 5, 2])))
    done = run(model, params, work, alive=np.array([True, False, True]))
    assert done.steps.sum(1).tolist() == [20, 0, 8]
    whole = run(model, start(model, 3), work)
    assert torch.equal(done.pseudo_gradient[[0, 2]], whole.pseudo_gradient[[0, 2]])


def test_trials_without_steps_have_no_loss():
    model = quadratics()
    done = run(model, start(model, 6), LocalWork(StepPlan(column([0.1] * 6), steps([2, 1, 0, 0, 0, 0]))))
    assert done.first_loss.shape == (6, CLIENTS)
    assert done.first_loss[:2].isfinite().all()
    assert done.first_loss[4:].isnan().all()
    assert run(model, start(model, 2), LocalWork(StepPlan(column([0.1] * 2), steps([0, 0])))).first_loss.isnan().all()


def test_settings_give_the_same_work_until_a_term_is_added():
    hyper = fedavg.Hyper(
        client_lr=column([0.1]), server_lr=column([0.5]), local_steps=steps([2]), weight_decay=column([0.0])
    )
    work = hyper.work()
    assert hyper.work() is work
    assert (work.plan.moves, work.decays, work.plan.largest_rate) == (True, False, pytest.approx(0.1))
    other = hyper.work(weight_decay=column([1.0]))
    assert (other.decays, other.plan) == (True, work.plan)
    falling = replace(work.plan, relative_rates=torch.tensor([[0.5, 2.0]]))
    assert (falling.moves, falling.largest_rate) == (True, pytest.approx(0.2))


def test_what_to_do_must_be_said_once():
    model = quadratics()
    with pytest.raises(ValueError, match="one of local_steps, gradient_weights and local_epochs must be given"):
        run(model, start(model, 1), LocalWork(StepPlan(column([0.1]))))
    with pytest.raises(ValueError, match="local_epochs must be the only one"):
        run(model, start(model, 1), LocalWork(StepPlan(column([0.1]), steps([2]), local_epochs=1)))


def test_the_last_step_only():
    assert last_step_only(steps([1, 3])).tolist() == [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]


TERMS = {
    "displacement": lambda held: held,
    "evaluation_offset": lambda held: -0.5 * held,
    "anchor": lambda held: 1.5 * held[:, :1],
    "gradient_scale": lambda held: column([0.7, 0.0, 1.5]),
    "weight_decay": lambda held: column([0.3, 0.2, 0.0]),
    "prox": lambda held: column([0.0, 0.5, 0.4]),
    "correction": lambda held: 2 * held,
    "clip_norm": lambda held: column([1.0, np.inf, 0.4]),
}
PLANNED = {
    "gradient_weights": torch.tensor(
        [[1.0, 0.0, 2.0, 0.0], [0.5, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 3.0]], dtype=torch.float64
    ),
    "relative_rates": torch.tensor(
        [[0.0, 1.0, 2.0, 0.5], [1.5, 0.2, 0.0, 0.0], [1.0, 1.0, 0.5, 1.0]], dtype=torch.float64
    ),
}


@pytest.mark.parametrize(
    "names",
    [
        *([name] for name in (*TERMS, *PLANNED)),
        ["gradient_scale", "correction"],
        ["gradient_scale", "weight_decay", "anchor", "correction"],
        ["gradient_scale", "weight_decay", "prox", "displacement"],
        ["gradient_scale", "gradient_weights", "correction"],
        ["evaluation_offset", "weight_decay", "anchor"],
        ["relative_rates", "gradient_scale", "correction"],
        ["relative_rates", "gradient_weights", "prox", "displacement"],
        [name for name in (*TERMS, *PLANNED) if name != "clip_norm"],
        [*TERMS, "gradient_weights"],
        [*TERMS, *PLANNED],
    ],
    ids="+".join,
)
def test_every_term_of_local_work_is_as_defined(names):
    model, rates, counts = quadratics(), [0.1, 0.05, 0.02], [4, 1, 3]
    params = start(model, 3)
    held = torch.randn(3, CLIENTS, DIMENSION, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    terms = {name: TERMS[name](model.layout.row(held)) for name in names if name in TERMS}
    planned = {name: PLANNED[name] for name in names if name in PLANNED}
    given = (params, *terms.values())
    before = [tensor.clone() for tensor in given]
    done = run(model, params, LocalWork(StepPlan(column(rates), steps(counts), **planned), **terms))
    assert all(torch.equal(tensor, copy) for tensor, copy in zip(given, before, strict=True))
    for trial, (rate, count) in enumerate(zip(rates, counts, strict=True)):
        for client in range(CLIENTS):
            own = {}
            for name, value in {**terms, **planned}.items():
                if value.dim() == 2:
                    own[name] = value[trial].numpy()
                elif value.shape[-1] == 1:
                    own[name] = value[trial].item()
                else:
                    own[name] = value[trial, client % value.shape[1], :DIMENSION].numpy()
            wanted = by_definition(model, params[trial, 0, :DIMENSION].numpy(), client, rate, count, own)
            found = done.pseudo_gradient[trial, client, :DIMENSION].numpy()
            np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-11)


def test_the_sums_of_gradients_are_of_what_an_optimizer_was_given():
    model = quadratics()
    params, work = start(model, 2), LocalWork(StepPlan(column([0.1, 0.0]), steps([3, 2])), sum_gradients=True)
    plain = run(model, params, work)
    assert plain.gradient_sum is plain.pseudo_gradient
    torch.testing.assert_close(plain.mean_gradient, plain.pseudo_gradient / torch.tensor([3.0, 2.0]).view(-1, 1, 1))
    momentum = optimizers()["momentum"]
    heavy = RoleOptimizer(momentum, momentum.Hyper(momentum=column([0.9, 0.9])))
    done = run(model, params, replace(work, optimizer=heavy))
    assert (done.gradient_sum - done.pseudo_gradient).abs().max() > 0.1
    torch.testing.assert_close(done.gradient_sum[1], plain.gradient_sum[1])  # at rate 0 the gradients are the same
    falling = replace(work.plan, relative_rates=torch.tensor([[1.0, 0.5, 0.2], [1.0, 0.5, 0.2]]))
    done = run(model, params, replace(work, plan=falling))
    torch.testing.assert_close(done.gradient_sum[1], plain.gradient_sum[1])
    torch.testing.assert_close(done.pseudo_gradient[1], 0.75 * plain.gradient_sum[1])
