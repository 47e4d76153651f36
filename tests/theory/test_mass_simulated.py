"""The theory of MaSS met by simulation: printed constants, hyperparameters and numbers of iterations, and the bound.

The first tests draw their batches as the scripts did from which the numbers were printed, so that the paths are the
same to rounding; synchronised models alone are reported, so that a number of iterations is rounded up to whole rounds.
"""

import numpy as np
import pytest

from trainers.engine import randomness
from trainers.engine.packs.pack import Pack
from trainers.engine.packs.plan import Plan
from trainers.errors import SpecError
from trainers.tasks import linear_regression
from trainers.theory.mass_constants import batch_constants, common_constants, expected_distance_bound, sample_constants
from trainers.theory.mass_settings import estimate
from trainers.trial.document import parse

SHARED = {"name": "linear_regression", "clients": 5, "examples": 2000, "dimension": 10, "data_seed": 11}
PLAN = Plan("stacked", 1, 1, "cpu", "float64", 1)
TOLERANCE = 1e-4
# what a script of the theory printed: iterations until the squared error is 1e-4 of the first, by (batch, local steps)
ITERATIONS = {
    "mass": {(1, 5): 869, (1, 20): 885, (8, 5): 236, (8, 20): 234, (64, 5): 145, (64, 20): 145},
    "sgd": {(1, 5): 7219, (8, 5): 2528, (64, 5): 1944},
    "nesterov": {(1, 1): 1131, (8, 5): 221, (64, 5): 135},
    "reset": {(1, 5): 6300, (8, 5): 1470, (64, 5): 778},
}


@pytest.fixture
def printed_draws(monkeypatch):
    """Batches as the scripts drew them: one generator, step by step and client by client."""
    generator = np.random.default_rng(0)

    def drawn(base, clients, sizes, local_steps, batch_size):
        steps = [[generator.integers(0, size, batch_size) for size in sizes] for _ in range(local_steps)]
        return np.array(steps).transpose(1, 0, 2)

    monkeypatch.setattr(randomness, "with_replacement", drawn)


def settings_of(what, batch_size):
    """The method that a row of the table stands for, with the theorem's numbers for MaSS."""
    task = linear_regression.parse(SHARED, "task")
    common = estimate(linear_regression.build(task, "float64"), batch_size)
    if what == "sgd":
        return {"name": "local_sgd", "client_lr": 1 / common.batch_smoothness}
    if what == "nesterov":
        mixing = (common.batch_condition_number * common.batch_statistical_condition_number) ** -0.5
        return {"name": "mass", "client_lr": 1 / common.batch_smoothness, "mixing": mixing, "sync": "momentum_wu"}
    return {"name": "mass", "constants": "estimate", "sync": {"mass": "lyapunov"}.get(what, what)}


def iterations(what, batch_size, local_steps, most):
    """Iterations to the tolerance, in whole rounds; None where `most` are not enough."""
    given = {
        "task": SHARED,
        "method": {**settings_of(what, batch_size), "local_steps": local_steps},
        "batch_size": batch_size,
        "rounds": -(-most // local_steps),
        "eval_every": 1,
    }
    pack = Pack.from_spec(parse(given), plan=PLAN)
    start = pack.advance(0)[0]["distance"]
    while not pack.done:
        for line in pack.advance(50):
            if line["distance"] ** 2 < TOLERANCE * start**2:
                return line["round"] * local_steps
    return None


@pytest.mark.parametrize(
    ("batch", "values"),
    [
        (1, {"client_lr": 0.2535, "mixing": 0.00436, "momentum": 0.9913, "compensation_lr": 0.2328}),
        (8, {"client_lr": 0.7205, "mixing": 0.0167, "momentum": 0.9671, "compensation_lr": 0.4235}),
        (64, {"client_lr": 0.9359, "mixing": 0.0276, "momentum": 0.9463, "compensation_lr": 0.1426}),
    ],
)
def test_printed_hyperparameters_are_estimated_from_the_data(batch, values):
    method = {"name": "mass", "constants": "estimate", "local_steps": 5}
    found = parse({"task": SHARED, "method": method, "batch_size": batch, "rounds": 1}).method.member(0)
    for name, value in values.items():
        digits = 5 if name == "mixing" and batch == 1 else 4
        assert round(found[name], digits) == pytest.approx(value, abs=1e-12), name
    if batch == 1:
        assert round(found["batch_statistical_condition_number"], 2) == 12.88
        task = linear_regression.build(linear_regression.parse(SHARED, "task"), "float64")
        common = estimate(task, 1)
        assert (round(common.batch_smoothness, 2), round(common.batch_condition_number)) == (3.94, 4086)


def table(*rows, slow):
    marks = [pytest.mark.slow] if slow else []
    return [pytest.param(what, *key, ITERATIONS[what][key], marks=marks) for what, key in rows]


@pytest.mark.parametrize(
    ("what", "batch", "local_steps", "printed"),
    [
        *table(("mass", (8, 5)), ("mass", (64, 20)), ("nesterov", (64, 5)), slow=False),
        *table(("mass", (1, 5)), ("mass", (1, 20)), ("mass", (8, 20)), ("mass", (64, 5)), slow=True),
        *table(*(("sgd", key) for key in ITERATIONS["sgd"]), slow=True),
        *table(*(("reset", key) for key in ITERATIONS["reset"]), slow=True),
        *table(*(("nesterov", key) for key in ((1, 1), (8, 5))), slow=True),
    ],
)
def test_iterations_to_the_tolerance_are_the_printed_ones(printed_draws, what, batch, local_steps, printed):
    assert iterations(what, batch, local_steps, 3 * printed) == -(-printed // local_steps) * local_steps


@pytest.mark.slow
def test_nesterov_never_comes_there_with_single_examples(printed_draws):
    assert iterations("nesterov", 1, 5, 20000) is None


HETEROGENEOUS = {
    "name": "linear_regression",
    "clients": 5,
    "examples": 40,
    "eigenvalues": (np.linspace(0.3, 1.5, 6) ** 2).tolist(),
    "orientation": "random",
    "data_seed": 1,
}


def heterogeneous():
    """The scripts' heterogeneous problem; its weights are the next numbers of its generator."""
    generator = np.random.default_rng(1)
    generator.normal(size=6)
    features = []
    for _ in range(5):
        rotation = np.linalg.qr(generator.normal(size=(6, 6)))[0]
        features.append(generator.normal(size=(40, 6)) @ np.diag(np.linspace(0.3, 1.5, 6)) @ rotation)
    weights = generator.dirichlet(np.ones(5) * 5).tolist()
    return {**HETEROGENEOUS, "client_weights": weights}, features


def test_the_task_draws_the_problem_of_the_scripts():
    given, features = heterogeneous()
    train, _ = linear_regression.parse(given, "task").drawn
    np.testing.assert_allclose(train.inputs, np.concatenate(features), rtol=0, atol=1e-14)


def squared(task, batch_size, local_steps, iterations, seeds, report=(), **settings):
    """(mean squared distance after every round, (seeds, rounds) values of a report or None)."""
    method = {"name": "mass", "constants": "estimate", "local_steps": local_steps, **settings}
    given = {"task": task, "method": method, "batch_size": batch_size, "rounds": iterations // local_steps}
    runs = [
        Pack.from_spec(parse({**given, "seed": seed, "eval_every": 1, "report": list(report)})).advance()
        for seed in range(seeds)
    ]
    return np.mean([[line["distance"] ** 2 for line in lines] for lines in runs], 0), runs


@pytest.mark.parametrize(
    ("batch", "local_steps", "seeds"),
    [
        (4, 5, 8),
        *(pytest.param(batch, steps, 15, marks=pytest.mark.slow) for batch in (1, 4, 16) for steps in (1, 5, 10)),
    ],
)
def test_the_mean_squared_distance_stays_within_the_bound(batch, local_steps, seeds):
    task, features = heterogeneous()
    common = common_constants([batch_constants(sample_constants(own), batch) for own in features])
    mixing = (common.batch_condition_number * common.batch_statistical_condition_number) ** -0.5
    error, _ = squared(task, batch, local_steps, 120, seeds)
    steps = np.arange(len(error)) * local_steps
    assert np.all(error <= expected_distance_bound(mixing, steps, error[0]))
    # before its last step the bound is |w - w*|^2 + mu sum of p |v - w*|^2 in the norms of the inverse Hessians: 0.867
    solution = linear_regression.parse(task, "task").drawn[1]
    inverse = [np.linalg.inv(own.T @ own / 40) for own in features]
    of_auxiliary = sum(p * solution @ one @ solution for p, one in zip(task["client_weights"], inverse, strict=True))
    tight = error[0] + common.strong_convexity * of_auxiliary
    ratio = error / (tight * (1 - mixing) ** steps)
    assert ratio.max() == ratio[0] == pytest.approx(0.867, abs=5e-4)


def lyapunov_by_hand(task, features, line, form, auxiliary):
    """Of one round's report line, with the clients' auxiliaries."""
    solution = linear_regression.parse(task, "task").drawn[1]
    inverse = [np.linalg.inv(own.T @ own / len(own)) for own in features]
    gaps = np.array(auxiliary) - solution
    total = sum(p * gap @ one @ gap for p, gap, one in zip(task["client_weights"], gaps, inverse, strict=True))
    ratio = task["client_weights"] @ np.broadcast_to(form["auxiliary_lr"] / form["mixing"], (5, 1))
    return total + ratio.item() * np.sum((line["params"] - solution) ** 2)


@pytest.mark.parametrize("constants", ["estimate", "estimate_by_client"])
@pytest.mark.parametrize("sync", ["lyapunov", "momentum_half", "avg_v", "momentum_wu", "reset"])
def test_the_reported_lyapunov_value_is_its_definition(sync, constants):
    task, features = heterogeneous()
    method = {"name": "mass", "constants": constants, "local_steps": 5, "sync": sync}
    given = {"task": task, "method": method, "batch_size": 4, "rounds": 6, "report": ["lyapunov", "params"]}
    spec = parse({**given, "eval_every": 1})
    pack, form = Pack.from_spec(spec), spec.method.member(0)
    line = pack.advance()[-1]
    if constants != "estimate":
        mixing, condition = (np.array(form[f"{name}_by_client"])[:, None] for name in ("mixing", "condition"))
        rates = form["client_lr"] * np.array(form["rate_share_by_client"])[:, None]
        auxiliary_lr = rates / (mixing * condition)
        form = {"mixing": mixing, "momentum": (1 - mixing) / (1 + mixing), "auxiliary_lr": auxiliary_lr}
    state, x = pack._lanes[0].now.state, np.array(line["params"])
    if sync == "reset":
        auxiliary = [x] * 5
    elif sync == "avg_v":
        auxiliary = [state.memory["auxiliary"][0, 0, :6].numpy()] * 5
    else:
        kept = pack._lanes[0].now.clients.gather(np.arange(5)).of() if sync != "momentum_wu" else {}
        rest = (1 + form["momentum"]) / 2 * x + kept["rest"][0, :, :6].numpy() if "rest" in kept else None
        looks = rest if rest is not None else [state.memory.get("lookahead", state.params)[0, 0, :6].numpy()] * 5
        auxiliary = ((1 + form["mixing"]) * np.array(looks) - x) / form["mixing"]
        if sync == "lyapunov":
            auxiliary = kept["auxiliary"][0, :, :6].numpy()
    assert line["lyapunov"] == pytest.approx(lyapunov_by_hand(task, features, line, form, auxiliary), rel=1e-9)


def test_lyapunov_is_refused_without_mass_and_without_an_optimum():
    mass = {"name": "mass", "client_lr": 0.1, "local_steps": 2}
    with pytest.raises(SpecError, match=r"report\.0 must not be lyapunov for a task that does not report distance"):
        parse({"task": {"name": "digits"}, "method": mass, "rounds": 1, "report": ["lyapunov"]})
    with pytest.raises(SpecError, match=r"report\.0 must not be lyapunov with the method local_sgd, which has no"):
        parse({"task": SHARED, "method": {**mass, "name": "local_sgd"}, "rounds": 1, "report": ["lyapunov"]})


@pytest.mark.slow
@pytest.mark.parametrize("constants", ["estimate", "estimate_by_client"])
def test_the_mean_lyapunov_value_falls_by_1_minus_the_smallest_mixing_a_step(constants):
    task, _ = heterogeneous()
    _, runs = squared(task, 4, 5, 100, 60, report=["lyapunov"], constants=constants)
    mean = np.mean([[line["lyapunov"] for line in lines[1:]] for lines in runs], 0)
    spec = parse(
        {
            "task": task,
            "method": {"name": "mass", "constants": constants, "local_steps": 5},
            "batch_size": 4,
            "rounds": 1,
        }
    )
    form = spec.method.member(0)
    factor = (1 - (form["mixing"] or min(form["mixing_by_client"]))) ** 5
    assert np.all(mean[1:] <= factor * mean[:-1])


@pytest.mark.slow
def test_the_literal_form_diverges_from_three_local_steps_on():
    task, _ = heterogeneous()
    for local_steps, stable in ((1, True), (2, True), (3, False), (5, False)):
        _, runs = squared(task, 4, local_steps, 720, 1, sync="momentum_literal")
        assert runs[0][-1]["diverged"] is not stable, local_steps
    for sync in ("lyapunov", "momentum_half", "momentum_wu", "avg_v", "reset"):
        error, runs = squared(task, 4, 5, 700, 1, sync=sync)
        assert not runs[0][-1]["diverged"]
        assert error[-1] < 1e-12 * error[0], sync


@pytest.mark.slow
def test_the_rate_does_not_depend_on_the_local_steps_and_the_decay_is_linear():
    slopes = []
    for local_steps in (1, 5, 20):
        error, _ = squared(SHARED, 8, local_steps, 600, 3)
        steps = np.arange(len(error)) * local_steps
        kept = steps >= 100
        slope, offset = np.polyfit(steps[kept], np.log(error[kept]), 1)
        slopes.append(slope)
        assert np.abs(np.log(error[kept]) - slope * steps[kept] - offset).max() < 2.5
    assert max(slopes) < -0.0167  # of the bound
    assert np.ptp(slopes) < 0.2 * abs(np.mean(slopes))


def test_with_label_noise_there_is_a_floor():
    task = {**HETEROGENEOUS, "label_noise": 0.5}
    errors = [squared(own, 4, 5, 400, 1)[0] for own in (HETEROGENEOUS, task)]
    assert errors[0][-1] < 1e-10
    assert errors[1][-20:].min() > 1e-4


@pytest.mark.slow
def test_few_clients_without_memory_come_nearer_by_the_bound_of_the_extension():
    """local_steps with 2 (1 - mixing)^K just below 1/2: the mean ratio of a round was 0.02 to 0.32 in the script."""
    common = estimate(linear_regression.build(linear_regression.parse(SHARED, "task"), "float64"), 8)
    mixing = (common.batch_condition_number * common.batch_statistical_condition_number) ** -0.5
    local_steps = int(2 * np.log(2) / mixing) + 1
    method = {"name": "mass", "constants": "estimate", "sync": "reset", "local_steps": local_steps}
    given = {"task": SHARED, "method": method, "batch_size": 8, "clients_per_round": 2, "rounds": 6, "eval_every": 1}
    runs = [Pack.from_spec(parse({**given, "seed": seed})).advance() for seed in range(20)]
    error = np.mean([[line["distance"] ** 2 for line in lines] for lines in runs], 0)
    bound = 2 * (1 - mixing) ** local_steps
    assert bound == pytest.approx(0.49, abs=0.01)
    assert np.all(error[1:] <= bound * error[:-1])
