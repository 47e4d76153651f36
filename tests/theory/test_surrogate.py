import warnings

import numpy as np
import pytest

from trainers.errors import SpecError
from trainers.problem import Examples, Problem, Quadratics
from trainers.theory.clients import client_quadratics, clients_of
from trainers.theory.condition import exact, mean_extremes, surrogate_condition_number
from trainers.theory.distance_bounds import theorem_16, theorem_17
from trainers.theory.families import continuum, continuum_optimum, far_apart, tight_condition, two_clients
from trainers.theory.interval import Curvature
from trainers.theory.spectrum import phi, psi
from trainers.theory.surrogate import surrogate
from trainers.theory.tradeoff import suboptimality_from_distortion
from trainers.theory.warning import TheoryWarning
from trainers.theory.weights import all_steps, last_step, listed

SIX = 5.1e-7


@pytest.fixture
def golden():
    hessians = [np.diag([1.0, 10.0]), [[5.5, 4.5], [4.5, 5.5]]]
    return client_quadratics(hessians, [[1.0, 0.0], [0.0, 1.0]], [0.5, 0.5])


def test_the_golden_problem_itself(golden):
    assert golden.optimum == pytest.approx([0.7515528, 0.1366460], abs=5.1e-8)
    assert float(np.linalg.cond(golden.hessian)) == pytest.approx(3.745430, abs=SIX)
    assert golden.hessian_spread == pytest.approx(3.181981, abs=SIX)
    assert golden.center_spread == pytest.approx(0.707107, abs=SIX)
    assert (golden.strong_convexity, golden.smoothness, golden.center_bound) == pytest.approx((1.0, 10.0, 1.0))


@pytest.mark.parametrize(
    ("steps", "optimum", "kappa", "kappa_9", "delta", "distance", "bound_17"),
    [
        (2, (0.710613, 0.163504), 3.389909, 7.692308, 0.065497, 0.048964, 7.582325),
        (10, (0.550125, 0.315285), 1.864725, 2.489697, 0.334251, 0.269231, 29.485183),
        (100, (0.500002, 0.498518), 1.004208, 1.005956, 0.518409, 0.440714, 145.761),
    ],
)
def test_golden_all_steps(golden, steps, optimum, kappa, kappa_9, delta, distance, bound_17):
    found = surrogate(golden, 0.05, all_steps(steps))
    assert found.optimum == pytest.approx(optimum, abs=SIX)
    assert exact(found) == pytest.approx(kappa, abs=SIX)
    assert mean_extremes(found) == pytest.approx(kappa_9, abs=SIX)
    closed = surrogate_condition_number(golden, 0.05, all_steps(steps), kind="closed_form")
    assert closed == pytest.approx(kappa_9, abs=SIX)
    ratio = suboptimality_from_distortion(found.distortion_min, found.distortion_max)
    assert ratio == pytest.approx(delta, abs=SIX)
    assert found.distance == pytest.approx(distance, abs=SIX)
    assert theorem_17(golden, 0.05, steps) == pytest.approx(bound_17, abs=5.1e-4 if steps == 100 else SIX)
    assert found.distance <= theorem_16(golden, 0.05, all_steps(steps))


def test_golden_with_prox_and_with_the_last_step(golden):
    found = surrogate(golden, 0.05, all_steps(10), 1.0)
    assert found.optimum == pytest.approx([0.562790, 0.296942], abs=SIX)
    assert exact(found) == pytest.approx(2.003094, abs=SIX)
    assert surrogate_condition_number(golden, 0.05, all_steps(10), 1.0, "closed_form") == pytest.approx(
        2.790577, abs=SIX
    )
    assert found.distance == pytest.approx(0.247641, abs=SIX)
    found = surrogate(golden, 0.5 / 100, last_step(10))
    assert found.optimum == pytest.approx([0.686151, 0.180725], abs=SIX)
    assert exact(found) == pytest.approx(3.174168, abs=SIX)
    assert surrogate_condition_number(golden, 0.005, last_step(10), kind="closed_form") == pytest.approx(
        6.593329, abs=SIX
    )
    assert found.distance == pytest.approx(0.078869, abs=SIX)


def test_no_local_work_leaves_the_loss_as_it_is(golden):
    for weights, client_lr in ((all_steps(7), 0.0), (all_steps(1), 0.03), (last_step(9), 0.0)):
        found = surrogate(golden, client_lr, weights)
        assert found.optimum == pytest.approx(golden.optimum, abs=1e-14)
        assert found.hessian == pytest.approx(weights.total * golden.hessian)
        assert found.loss([1.0, 2.0]) == pytest.approx(weights.total * golden.loss([1.0, 2.0]))


def test_a_scaled_list_of_weights_scales_the_surrogate_alone(golden):
    one, three = (surrogate(golden, 0.05, listed([factor] * 4)) for factor in (1.0, 3.0))
    assert three.hessian == pytest.approx(3 * one.hessian)
    assert three.optimum == pytest.approx(one.optimum)


def test_half_the_rate_on_the_second_step_alone_equals_two_steps(golden):
    """1:2 at a rate and twice the second step at half of it return the same."""
    both = surrogate(golden, 0.05, all_steps(2))
    second = surrogate(golden, 0.025, listed([0.0, 2.0]))
    assert both.hessian == pytest.approx(second.hessian, abs=1e-13)


def test_bounds_of_the_condition_number_are_reached():
    curvature = Curvature(1.0, 10.0)
    clients = tight_condition(curvature)
    for steps in (2, 10, 100):
        found = surrogate_condition_number(clients, 0.03, all_steps(steps), 0.5)
        assert found == pytest.approx(float(phi(10, 0.03, steps, 0.5) / phi(1, 0.03, steps, 0.5)))
        found = surrogate_condition_number(clients, 0.5 / (10 * steps), last_step(steps), 0.5)
        ends = psi(np.array([1.0, 10.0]), 0.05 / steps, steps, 0.5)
        assert found == pytest.approx(float(ends[1] / ends[0]))


@pytest.mark.parametrize("client_lr", [0.0, 0.1, 0.25, 0.45])
def test_two_clients_two_steps(client_lr):
    found = surrogate(two_clients(), client_lr, all_steps(2))
    assert found.optimum[0] == pytest.approx((4 - 3 * client_lr) / (6 - 5 * client_lr), abs=1e-15)
    assert found.distance == pytest.approx(client_lr / (3 * (6 - 5 * client_lr)), abs=1e-15)


@pytest.mark.parametrize("steps", [1, 2, 5, 20, 60])
def test_two_clients_at_rate_one_half(steps):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TheoryWarning)
        found = surrogate(two_clients(), 0.5, all_steps(steps))
    assert found.distance == pytest.approx((2**steps - 2) / (6 * (2 ** (steps + 1) - 1)), abs=1e-15)


def test_beyond_the_range_it_is_computed_and_the_client_is_named():
    with pytest.warns(TheoryWarning, match=r"got client 1 \(client_lr \* \(smoothness \+ prox\) = 1.8\)"):
        found = surrogate(two_clients(), 0.9, all_steps(2))
    assert found.optimum[0] == pytest.approx((4 - 2.7) / (6 - 4.5))
    with pytest.warns(
        TheoryWarning, match=r"client 0 \(.* = 1.1\); client 1 \(.* = 2.2, its surrogate is not convex\)"
    ):
        found = surrogate(two_clients(), 1.1, all_steps(2))
    assert found.optimum[0] == pytest.approx((4 - 3.3) / (6 - 5.5))
    assert np.isnan(found.log_distortion_ratio)
    with pytest.warns(TheoryWarning):
        assert surrogate_condition_number(client_quadratics([[[2.0]]], [[1.0]]), 1.2, all_steps(2)) == np.inf


def test_a_surrogate_without_an_optimum_is_an_error():
    clients = client_quadratics([[[2.0]]], [[1.0]])
    with pytest.warns(TheoryWarning), pytest.raises(SpecError, match="must be invertible"):
        _ = surrogate(clients, 0.5, last_step(3)).optimum


def test_a_million_steps_neither_vanish_nor_overflow():
    found = surrogate(far_apart(0.25), 0.125, last_step(10**6))
    assert found.optimum[0] == pytest.approx(-1.0)  # only the flat client is left
    assert found.distance == pytest.approx(8 * 0.25 / (3 * 0.25 + 1))
    found = surrogate(far_apart(0.25), 1e-300, all_steps(10**6))
    assert found.distance == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize(
    ("client_lr", "steps", "optimum"),
    [
        (0.5, 1, 0.714286), (0.5, 2, 0.748201), (0.5, 3, 0.767426), (0.5, 5, 0.786126), (0.5, 10, 0.797947),
        (0.5, 20, 0.799934), (0.5, 50, 0.8), (0, 20, 0.714286), (0.001, 20, 0.715084), (0.01, 20, 0.722157),
        (0.05, 20, 0.749970), (0.1, 20, 0.773941), (0.2, 20, 0.793875), (0.75, 20, 0.799999), (1.0, 20, 0.815062),
        (1.05, 20, 0.954606),
    ],
)  # fmt: skip
def test_the_continuum(client_lr, steps, optimum):
    assert continuum_optimum(client_lr, all_steps(steps)) == pytest.approx(optimum, abs=SIX)
    if client_lr < 0.5:
        assert surrogate(continuum(), client_lr, all_steps(steps)).optimum[0] == pytest.approx(optimum, abs=2e-6)


def test_many_problems_and_many_rates_at_once(golden):
    many = surrogate(golden, [0.0, 0.01, 0.05], all_steps(10))
    for index, client_lr in enumerate((0.0, 0.01, 0.05)):
        single = surrogate(golden, client_lr, all_steps(10))
        assert many.optimum[index] == pytest.approx(single.optimum)
        assert many.hessian[index] == pytest.approx(single.hessian)
        assert exact(many)[index] == pytest.approx(exact(single))
        assert many.distance[index] == pytest.approx(single.distance)
    stacked = client_quadratics(np.stack([golden.hessians] * 2), np.stack([golden.centers, 2 * golden.centers]))
    assert stacked.optimum[1] == pytest.approx(2 * golden.optimum)


def test_clients_of_a_problem(golden):
    data = Quadratics(golden.hessians, golden.centers, np.zeros(2))
    assert clients_of(data).optimum == pytest.approx(golden.optimum)
    weighted = clients_of(Problem("quadratic", data, client_weights=np.array([3.0, 1.0])))
    assert weighted.weights == pytest.approx([0.75, 0.25])
    assert clients_of(golden) is golden
    examples = Examples(np.zeros((2, 1)), np.zeros(2), np.array([0]), np.array([2]))
    with pytest.raises(SpecError, match="task must be quadratic"):
        clients_of(Problem("softmax", examples))


@pytest.mark.parametrize(
    ("hessians", "centers", "weights", "words"),
    [
        ([[[1.0, 2.0], [2.0, 1.0]]], [[0, 0]], None, "positive definite, got client 0 with smallest eigenvalue -1"),
        ([[[1.0, 0.0], [0.5, 1.0]]], [[0, 0]], None, "hessians must be symmetric, got client 0"),
        ([[[0.0]]], [[0.0]], None, "positive definite"),
        ([[1.0, 2.0]], [[0.0]], None, r"shape \(clients, d, d\)"),
        ([[[1.0]]], [[0.0, 1.0]], None, "centers must have shape"),
        ([[[float("nan")]]], [[0.0]], None, "hessians must be finite"),
        ([[["x"]]], [[0.0]], None, "hessians must be an array of numbers"),
        (np.zeros((0, 1, 1)), np.zeros((0, 1)), None, "at least one client"),
        ([[[1.0]]] * 2, [[0.0]] * 2, [1.0, -1.0], "client_weights must not be negative"),
        ([[[1.0]]] * 2, [[0.0]] * 2, [0.0, 0.0], "client_weights must have one above 0"),
        ([[[1.0]]] * 2, [[0.0]] * 2, [1.0], "one number for each of 2 clients"),
    ],
)
def test_wrong_clients(hessians, centers, weights, words):
    with pytest.raises(SpecError, match=words):
        client_quadratics(hessians, centers, weights)
