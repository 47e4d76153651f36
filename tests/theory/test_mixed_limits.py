"""Step sizes of the theorems of mixed federated learning, dissimilarity, and what trials remark on them."""

import numpy as np
import pytest
from scipy.optimize import minimize

from trainers.errors import SpecError
from trainers.run import run
from trainers.theory.clients import client_quadratics
from trainers.theory.mixed_limits import Difficulty, dissimilarity, least_delta_lr, parts, rate_limit, rounds_to
from trainers.theory.rounds.central import central_quadratic
from trainers.trial.document import parse

METHODS = ("parallel_training", "one_way_transfer", "two_way_transfer")
CONVEX = ("strongly_convex", "convex", "non_convex")


def spd(generator, dimension=3, low=0.3, high=3.0):
    basis = np.linalg.qr(generator.standard_normal((dimension, dimension)))[0]
    return basis @ np.diag(generator.uniform(low, high, dimension)) @ basis.T


@pytest.fixture(scope="module")
def losses():
    generator = np.random.default_rng(5)
    clients = client_quadratics([spd(generator) for _ in range(4)], generator.standard_normal((4, 3)))
    return parts(clients, central_quadratic(spd(generator), generator.standard_normal(3)), 0.3)


def test_limits_are_those_of_table_3():
    """In effective_step smoothness, with merge_lr 1 and B 1."""
    table = {
        "parallel_training": (1 / 12, 1 / 12, 1 / 12),
        "one_way_transfer": (1 / 8, 1 / 8, 1 / 18),
        "two_way_transfer": (1 / 81, 1 / 81, 1 / 24),
    }
    for method, row in table.items():
        for convexity, wanted in zip(CONVEX, row, strict=True):
            found = rate_limit(method, 2.5, 7, convexity=convexity, strong_convexity=0.1)
            assert found * 2.5 * 7 == pytest.approx(wanted, rel=1e-14)
    assert rate_limit("two_way_transfer", 1.0, 1, strong_convexity=8.1) == pytest.approx(1 / (15 * 8.1))
    assert rate_limit("two_way_transfer", 1.0, 1, strong_convexity=8.1, convexity="convex") == pytest.approx(1 / 81)
    steep = rate_limit("parallel_training", 1.0, 4, dissimilarity_factor_sq=2.25, merge_lr=2)
    assert steep == pytest.approx(1 / (6 * 3.25 * 4 * 2))
    assert rate_limit("one_way_transfer", 1.0, 4, merge_lr=2) == 1 / 32  # it has no merge
    assert least_delta_lr(8) == pytest.approx(5**0.5)
    assert least_delta_lr(100, convexity="non_convex") == 10
    with pytest.raises(SpecError, match="no theorem for method"):
        rate_limit("fedavg", 1.0, 1)
    with pytest.raises(SpecError, match="convexity must be one of"):
        rate_limit("one_way_transfer", 1.0, 1, convexity="konvex")


def test_rounds_are_those_of_table_1():
    noise = {"client_gradient_variance": 4.0, "central_gradient_variance": 3.0}
    held = Difficulty(
        smoothness=2.0,
        strong_convexity=0.5,
        **noise,
        dissimilarity_offset=1.5,
        dissimilarity_factor=1.2,
        initial_distance_sq=7.0,
        initial_gap=5.0,
    )
    cohort = {"clients_per_round": 10, "local_steps": 4}
    eps = 0.01
    one = {"strongly_convex": 1 / (0.5 * eps), "convex": 7 / eps**2, "non_convex": 2 * 5 / eps**2}
    last = {"strongly_convex": 2 * np.log(1 / eps) / 0.5, "convex": 2 * 7 / eps, "non_convex": 2 * 5 / eps}
    bent = {"strongly_convex": 1.5 * 2**0.5 / (0.5 * eps**0.5)}
    for convexity in CONVEX:
        lead = {
            "parallel_training": (4 + 10 * 3) / 40,
            "one_way_transfer": (4 + 4 * 10 * 3) / 40,
            "two_way_transfer": (4 + 10 * 3) / 40,
        }
        for method in METHODS:
            parallel = method == "parallel_training"
            wanted = lead[method] * one[convexity] + (1.44 if parallel else 1) * last[convexity]
            wanted += bent.get(convexity, 1.5 * 2**0.5 / eps**1.5) if parallel else 0
            assert rounds_to(method, held, eps, convexity=convexity, **cohort) == pytest.approx(wanted, rel=1e-13)
    drifting = Difficulty(smoothness=2.0, client_heterogeneity=6.0)
    found = rounds_to("two_way_transfer", drifting, eps, convexity="convex", **cohort)
    assert found == pytest.approx(4 * 6 / 40 / eps**2 + 2 / eps)
    with pytest.raises(SpecError, match="strong_convexity must be above 0"):
        rounds_to("two_way_transfer", drifting, eps, convexity="strongly_convex", **cohort)


def test_dissimilarity_identities():
    generator = np.random.default_rng(0)
    for weight in (0.5, 0.73):
        a, b = generator.standard_normal((2, 7))
        whole = ((a + b) ** 2).sum()
        offset, factor = dissimilarity(a, b, weight)
        assert offset == pytest.approx(a @ a / weight + b @ b / (1 - weight) - whole, rel=1e-12)
        assert factor == pytest.approx((a @ a / weight + b @ b / (1 - weight)) / whole, rel=1e-12)
        assert factor == pytest.approx(1 + offset / whole, rel=1e-14)
        assert dissimilarity(weight * a, (1 - weight) * a, weight)[0] == pytest.approx(0, abs=1e-30)


def test_the_offset_bounds_the_dissimilarity_everywhere(losses):
    """Definition 4.2 on quadratics, and that no smaller constants do."""
    weight, least = losses.federated_weight, losses.least_factor_sq
    assert least > 1
    generator = np.random.default_rng(1)
    for factor in (1.001 * least, 2 * least):

        def excess(params, factor=factor):
            a, b = losses.gradients(params)
            return a @ a / weight + b @ b / (1 - weight) - factor * ((a + b) ** 2).sum()

        offset = losses.offset_sq(factor)
        for scale in (0.1, 1.0, 10.0, 1e3):
            points = losses.optimum + scale * generator.standard_normal((300, 3))
            assert max(excess(point) for point in points) <= offset * (1 + 1e-9)
        found = minimize(lambda params, excess=excess: -excess(params), losses.optimum, method="BFGS", tol=1e-9)
        assert -found.fun == pytest.approx(offset, rel=1e-6)
    assert losses.offset_sq(2 * least) < losses.offset_sq(1.001 * least)
    rest = losses.gradients(losses.optimum)[0]
    floor = rest @ rest * (1 / weight + 1 / (1 - weight))
    assert losses.offset_sq(1e12) == pytest.approx(floor, rel=1e-9)
    with pytest.raises(SpecError, match="factor_sq must be above"):
        losses.offset_sq(0.999 * least)


def test_equal_curvatures_have_factor_1():
    generator = np.random.default_rng(2)
    hessian = spd(generator)
    held = parts(client_quadratics([hessian], [[1.0, 0, 0]]), central_quadratic(hessian, [0, 1.0, 0]), 0.4)
    assert held.least_factor_sq == pytest.approx(1, abs=1e-12)


TASK = {"name": "quadratic", "hessians": [[[2.0]], [[2.0]]], "centers": [[1.0], [3.0]]}
TASK |= {"central": {"hessian": [[6.0]], "center": [0.0]}}


def remarks(method, task=TASK, **changes):
    document = {"task": task, "method": {"local_steps": 1, **method}, "rounds": 1, **changes}
    return list(parse(document).warnings)


def test_trials_remark_on_rates_beyond_the_theorem():
    # weights 1/2: curvatures 1 and 3, B^2 of at least (1 + 9) 2 / 16
    for name, limit in (
        ("parallel_training", 1 / (6 * 2.25 * 3)),
        ("one_way_transfer", 1 / (8 * 3)),
        ("two_way_transfer", 1 / (81 * 3)),
    ):
        low = {"name": name, "client_lr": limit / 5 * 0.999, "delta_lr": 5}
        assert remarks(low) == []
        high = {"name": name, "client_lr": limit / 5 * 1.001, "delta_lr": 5}
        (line,) = remarks(high)
        assert f"above {limit:.4g}, the limit of theorem B." in line
        (line,) = remarks(low, members=[{}, {"local_steps": 2}])
        assert f"above {limit / 2:.4g}" in line
    small = {"name": "parallel_training", "client_lr": 1e-3, "delta_lr": 1, "central_lr": 1.0, "central_steps": 1}
    assert "server_lr or central_lr is 1, above" in remarks(small)[0]
    (line,) = remarks({"name": "one_way_transfer", "client_lr": 1e-3, "delta_lr": 1.0})
    assert line.startswith("method.delta_lr (server_lr / client_lr) is 1, but theorem B.2")
    assert "holds above 1.118" in line


def test_trials_remark_on_unstable_rounds():
    """Exactly beyond the limits of stability, 2 and 1 over the curvature of the sum for one step."""
    for name, limit in (
        ("parallel_training", 0.5),
        ("one_way_transfer", 0.5),
        ("two_way_transfer", 0.25),
        ("pooled_training", 0.5),
        ("all_on_client", 0.5),
    ):
        for share, unstable in ((0.99, False), (1.01, True)):
            rate = share * limit
            lines = remarks({"name": name, "client_lr": rate, "tied": True})
            assert any(f"make rounds of {name} unstable" in line for line in lines) == unstable, (name, share)
    heavy = remarks({"name": "parallel_training", "client_lr": 0.2, "tied": True, "merge_lr": 5.0})
    assert any("unstable" in line for line in heavy)


BRANCHES = ("parallel_training", "two_way_transfer")
OVERFLOWING = (
    {"client_lr": 10.0, "local_steps": 400},
    {"server_lr": 1e160},
    {"server_lr": 1e308},
    {"weight_decay": 1e200},
    {"weight_decay": 1e308},
    {"central_lr": 1e300},
    {"merge_lr": 1e300},
)


@pytest.mark.parametrize("curvature", [1.0, 1e200, 1e307])
@pytest.mark.parametrize("name", [*METHODS, "pooled_training", "all_on_client"])
def test_trials_whose_rounds_overflow_run_and_diverge(name, curvature):
    task = {"name": "quadratic", "hessians": [[[curvature]], [[curvature / 2]]], "centers": [[1.0], [3.0]]}
    task |= {"central": {"hessian": [[curvature]], "center": [1.0]}}
    taken = [rates for rates in OVERFLOWING if name in BRANCHES or not rates.keys() & {"central_lr", "merge_lr"}]
    members = [{**rates, "server.momentum": (0.0, 0.9)[turn % 2]} for turn, rates in enumerate(taken)]
    method = {"name": name, "client_lr": 0.1, "server_lr": 0.1, "local_steps": 3}
    lines = list(run({"task": task, "method": method, "members": members, "rounds": 10}, device="cpu"))
    assert {line["member"] for line in lines if line["diverged"]} == set(range(len(members)))


def test_rounds_that_overflow_are_called_unstable():
    for name in (*METHODS, "pooled_training", "all_on_client"):
        lines = remarks({"name": name, "client_lr": 10.0, "server_lr": 0.1, "local_steps": 400})
        assert any(f"make rounds of {name} unstable" in line for line in lines), name


def test_the_largest_curvatures_can_be_parsed():
    task = {"name": "quadratic", "hessians": [[[1.7e308]]], "centers": [[1.0]]}
    task |= {"central": {"hessian": [[1.7e308]], "center": [1.0]}}
    assert remarks({"name": "two_way_transfer", "client_lr": 0.1, "server_lr": 0.1}, task)


def test_the_least_factor_does_not_depend_on_the_scale_of_the_losses():
    for scale in (1e-200, 1.0, 1e200):
        clients = client_quadratics([np.diag([1.0, 1.0]) * scale], [[0.0, 0.0]])
        held = parts(clients, central_quadratic(np.diag([3.0, 1.0]) * scale, [0.0, 0.0]), 0.5)
        assert held.least_factor_sq == pytest.approx((1 + 9) * 2 / 16)


@pytest.mark.parametrize(
    "changes",
    [
        {"server": {"name": "adam"}},
        {"schedule": {"name": "theory_1_over_t", "strong_convexity": 1.0, "smoothness": 3.0}},
    ],
)
def test_what_has_no_closed_form_is_not_called_unstable(changes):
    lines = remarks({"name": "one_way_transfer", "client_lr": 3.0, "server_lr": 3.0}, **changes)
    assert not any("unstable" in line for line in lines)


@pytest.mark.parametrize(
    ("own", "changes"),
    [
        ({}, {"server": {"name": "yogi"}}),
        ({}, {"client": {"name": "adam"}}),
        ({"central_lr": 0.1}, {"central": {"name": "adam"}}),
        ({}, {"merge": {"name": "adagrad"}}),
    ],
)
def test_the_theorems_say_nothing_of_other_optimizers(own, changes):
    plain = {"name": "two_way_transfer", "client_lr": 0.1, "server_lr": 0.1}
    assert any("theorem B.3" in line for line in remarks(plain))
    assert not any("theorem" in line for line in remarks({**plain, **own}, **changes))


def test_federated_weight_1_and_other_tasks_have_no_limits():
    rates = {"client_lr": 0.1, "tied": True}
    assert remarks({"name": "one_way_transfer", **rates, "federated_weight": 1.0}) == []
    digits = {"name": "digits", "central": {"fraction": 0.1}}
    assert remarks({"name": "one_way_transfer", "client_lr": 9.0, "tied": True}, digits) == []
