"""The papers' bounds on two thousand random problems per dimension, and their counterexamples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.errors import SpecError
from trainers.theory.clients import client_quadratics
from trainers.theory.condition import exact, mean_extremes
from trainers.theory.counterexamples import COUNTEREXAMPLES
from trainers.theory.distance_bounds import (
    corollary_1,
    corollary_20,
    corollary_22,
    corollary_22_corrected,
    largest_rate_of_corollary_19,
    lemma_5,
    lemma_12,
    theorem_4,
    theorem_16,
    theorem_17,
    theorem_21,
)
from trainers.theory.families import far_apart, random_clients, rotated_pair, steep_coordinates, two_clients, worst_case
from trainers.theory.interval import Curvature, log_condition_number
from trainers.theory.spectrum import phi
from trainers.theory.surrogate import surrogate
from trainers.theory.weights import all_steps, last_step, listed

STEPS = (2, 5, 30, 300, 10**4)
PROBLEMS = 400  # for each number of steps: 2,000 for each dimension


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_sound_bounds_on_two_thousand_random_problems(dimension):
    generator = np.random.default_rng(dimension)
    for index, steps in enumerate(STEPS):
        smoothness = 10 ** generator.uniform(0.1, 2, PROBLEMS)
        clients = random_clients(generator, PROBLEMS, index + 2, dimension, smoothness)
        high = clients.smoothness
        client_lr = generator.uniform(0, 0.999, PROBLEMS) ** 2 / high
        lower_lr = client_lr * generator.uniform(0, 1, PROBLEMS)
        found, lower = surrogate(clients, client_lr, all_steps(steps)), surrogate(clients, lower_lr, all_steps(steps))
        last = surrogate(clients, client_lr / steps, last_step(steps))
        mixed = surrogate(clients, client_lr, listed([1.0, 0.0, 2.0, 0.5]))
        between = np.linalg.norm(found.optimum - lower.optimum, axis=-1)
        slack = 1e-12 * (1 + np.linalg.norm(clients.optimum, axis=-1))

        def kept(distance, bound, slack=slack):
            assert np.isfinite(bound).all()
            assert (distance <= bound * (1 + 1e-9) + slack).all()

        kept(found.distance, theorem_17(clients, client_lr, steps))
        kept(found.distance, theorem_16(clients, client_lr, all_steps(steps)))
        kept(last.distance, theorem_16(clients, client_lr / steps, last_step(steps)))
        kept(mixed.distance, theorem_16(clients, client_lr, listed([1.0, 0.0, 2.0, 0.5])))
        kept(between, theorem_21(clients, lower_lr, client_lr, steps))
        kept(between, corollary_22_corrected(clients, lower_lr, client_lr, steps))
        epsilon = 0.3
        small = surrogate(clients, largest_rate_of_corollary_19(clients, epsilon, steps), all_steps(steps))
        kept(small.distance, corollary_20(clients, epsilon))
        if dimension == 1:
            for distorted in (found, last, mixed, surrogate(clients, client_lr / 2, all_steps(steps), high)):
                kept(distorted.distance, lemma_12(distorted))
        # [A] Lemma 2 and 3: exact <= mean of extremes <= closed form
        closed = phi(high, client_lr, steps) / phi(clients.strong_convexity, client_lr, steps)
        kept(exact(found), mean_extremes(found))
        kept(mean_extremes(found), closed)
        # [A] Lemma 6: cond(Q) <= kappa0 / kappa
        kept(np.exp(found.log_distortion_ratio), clients.condition_number / closed)


def test_recorded_counterexample_to_lemma_5():
    """[A] Lemma 5: 8 C is exceeded from L between 150 and 200 on, the conjectured 2 C at L = 10 already."""
    distorted = surrogate(rotated_pair(10.0, 0.3), 0.05, all_steps(500))
    assert distorted.distance == pytest.approx(1.0949, abs=5e-5)
    assert lemma_12(distorted) == pytest.approx(1.0390, abs=5e-5)
    distorted = surrogate(rotated_pair(1e3, 0.1), 0.5e-3, all_steps(50_000))
    assert distorted.distance == pytest.approx(14.25, abs=5e-3)
    assert lemma_5(distorted) == pytest.approx(7.51, abs=5e-3)
    assert theorem_4(1.0, 1e3, 1.0) == pytest.approx(7.51, abs=5e-3)
    distorted = surrogate(steep_coordinates(1e6, 100), 0.5e-6, all_steps(50 * 10**6))
    assert distorted.distance == pytest.approx(9.90, abs=5e-3)
    assert lemma_5(distorted) == pytest.approx(7.98, abs=5e-3)

    def violated(smoothness):
        angles = np.linspace(0.005, 1.5, 300)
        found = [surrogate(rotated_pair(smoothness, angle), 0.5 / smoothness, all_steps(10**5)) for angle in angles]
        return any(distorted.distance > lemma_5(distorted) for distorted in found)

    assert not violated(150.0)
    assert violated(200.0)


def test_recorded_counterexample_to_corollary_22():
    """Two clients, client_lr 0.01 / 1000: the distance is fourteen times the printed bound."""
    clients = two_clients()
    distance = surrogate(clients, 1e-5, all_steps(1000)).distance
    assert distance == pytest.approx(5.5e-4, abs=5e-6)
    assert corollary_22(clients, 0.0, 1e-5) == pytest.approx(4e-5)
    assert corollary_22_corrected(clients, 0.0, 1e-5, 1000) == pytest.approx(999 * 4e-5)


def test_counterexample_commands_find_what_they_claim():
    rows = {name: entry.rows() for name, entry in COUNTEREXAMPLES.items()}
    assert [row["violates_lemma5"] for row in rows["lemma5"]] == [False, True, True, True]
    assert all(row["violates_conjecture"] for row in rows["lemma5"])
    assert [row["violates_printed"] for row in rows["corollary22"]] == [False, True, True, True]
    assert all(row["distance"] < row["corrected"] for row in rows["corollary22"])
    assert [row["violates"] for row in rows["prox"]] == [False, True, True]
    factors = {(row["server"], row["rounds"]): row["error_over_bound"] for row in rows["momentum"]}
    assert [round(factors["nesterov", T], 2) for T in (10, 50, 199)] == [3.27, 13.41, 51.25]
    assert [round(factors["heavy_ball", T], 1) for T in (10, 50, 199)] == [12.2, 57.2, 225.1]
    assert [round(factors["sgd", T], 6) for T in (10, 50, 199)] == [1.0, 1.0, 1.0]


@given(st.floats(0, 5), st.floats(0, 5), st.integers(1, 10**6), st.floats(0, 1))
def test_prox_lowers_the_condition_number_when_the_last_step_counts(one, other, steps, share):
    curvature, (less, more) = Curvature(1.0, 10.0), sorted((one, other))
    client_lr = share / (10 * steps + more)
    low, high = (log_condition_number(curvature, client_lr, last_step(steps), prox) for prox in (more, less))
    assert low <= high + 1e-9


@given(st.integers(1, 10**5), st.floats(0, 0.999), st.floats(0, 0.999), st.floats(1.01, 1000))
def test_more_local_work_lowers_the_condition_number(steps, one, other, L):
    """All steps counting, no prox: it falls with steps and with the client rate, from kappa0 towards 1."""
    curvature, (less, more) = Curvature(1.0, L), sorted((one, other))
    value = log_condition_number(curvature, less / L, all_steps(steps))
    assert -1e-12 <= value <= np.log(L) + 1e-12
    assert log_condition_number(curvature, more / L, all_steps(steps)) <= value + 1e-10
    assert log_condition_number(curvature, less / L, all_steps(2 * steps)) <= value + 1e-10


def test_limits_of_the_condition_number():
    ten, many = Curvature(1.0, 10.0), 10**6
    for prox in (0.0, 0.7):
        for weights, client_lr in ((all_steps(1), 0.3), (last_step(1), 0.3), (all_steps(50), 0.0), (last_step(9), 0.0)):
            assert log_condition_number(ten, client_lr, weights, prox) == np.log(10.0)
    assert log_condition_number(ten, 0.05, all_steps(many)) == 0.0
    assert np.exp(log_condition_number(ten, 0.05, all_steps(many), 2.0)) == pytest.approx(10 * 3 / 12)
    at_one_over_smoothness = np.exp(log_condition_number(ten, 0.1, all_steps(20)))
    assert at_one_over_smoothness == pytest.approx(1 / (1 - 0.9**20))
    found = np.exp(log_condition_number(ten, 0.3 / (10 * many), last_step(many)))
    assert found == pytest.approx(10 * np.exp(-0.3 * 0.9), rel=1e-6)


def test_last_step_example_tends_to_its_limit():
    """[A] C.2: distance (8 p) / (3 p + 1), near the bound 2 C as p tends to 1."""
    for share in (0.1, 0.5, 0.999999):
        clients = far_apart(share)
        assert clients.optimum[0] == pytest.approx((5 * share - 1) / (3 * share + 1))
        found = surrogate(clients, 0.125, last_step(200))
        assert found.distance == pytest.approx(8 * share / (3 * share + 1))
        assert found.distance <= lemma_12(found)


@pytest.mark.parametrize(("weights", "client_lr"), [(all_steps(20), 0.05), (last_step(10), 0.004)])
@pytest.mark.parametrize("prox", [0.0, 1.0])
def test_worst_case_reaches_lemma_12_in_every_dimension(weights, client_lr, prox):
    clients = worst_case(Curvature(1.0, 10.0), client_lr, weights, prox, center_bound=3.0)
    found = surrogate(clients, client_lr, weights, prox)
    assert found.distance == pytest.approx(float(lemma_12(found)), rel=1e-12)
    kappa = np.exp(log_condition_number(Curvature(1.0, 10.0), client_lr, weights, prox))
    assert exact(found) == pytest.approx(kappa)
    assert 4 * found.distance == pytest.approx(theorem_4(3.0, 10.0, kappa))


def test_corollary_1_and_its_range():
    assert corollary_1(0.5, 3, 8.0, 0.25) == pytest.approx(1.25)
    clients = two_clients()
    assert largest_rate_of_corollary_19(clients, 0.5, 10) == pytest.approx(np.log(2) / 20)
    with pytest.raises(SpecError, match="epsilon must be in"):
        largest_rate_of_corollary_19(clients, 0.9, 1)


def test_equal_clients_have_no_bias():
    clients = client_quadratics([np.eye(2)] * 3, [[1.0, 2.0]] * 3)
    found = surrogate(clients, 0.5, all_steps(10))
    assert found.distance == pytest.approx(0.0, abs=1e-15)
    assert theorem_17(clients, 0.5, 10) == 0.0
