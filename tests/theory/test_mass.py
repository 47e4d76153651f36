import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.errors import SpecError
from trainers.theory.mass_constants import (
    SampleConstants,
    batch_constants,
    best_hyperparameters,
    common_constants,
    expected_distance_bound,
    from_three_sequences,
    from_two_sequences,
    gaussian_constants,
    keeps_rate,
    sample_constants,
)

# the measured constants behind the printed parameters: L_1 3.94, kappa~ 12.88, eigenvalues about 1e-3 to 1


def test_constants_of_two_points_by_hand():
    """Points (2, 0) and (0, 1): H = diag(2, 1/2), E |x|^2 x x' = diag(8, 1/2), x' H^-1 x = 2."""
    found = sample_constants([[2.0, 0.0], [0.0, 1.0]])
    assert found.smoothness == pytest.approx(2.0)
    assert found.strong_convexity == pytest.approx(0.5)
    assert found.sample_smoothness == pytest.approx(4.0)
    assert found.statistical_condition_number == pytest.approx(2.0)


def test_gaussian_closed_forms():
    generator = np.random.default_rng(0)
    eigenvalues = np.array([0.2, 0.5, 1.0])
    exact = gaussian_constants(np.diag(eigenvalues))
    assert exact.sample_smoothness == pytest.approx(1.7 + 2.0)
    assert exact.statistical_condition_number == 5.0
    found = sample_constants(generator.standard_normal((200_000, 3)) * np.sqrt(eigenvalues))
    assert found.sample_smoothness == pytest.approx(exact.sample_smoothness, rel=0.02)
    assert found.statistical_condition_number == pytest.approx(5.0, rel=0.02)
    ten = gaussian_constants(np.diag(np.geomspace(1e-3, 1, 10)))
    assert ten.sample_smoothness == pytest.approx(3.87, abs=0.005)
    assert ten.statistical_condition_number == 12


def test_singular_features_use_their_range():
    generator = np.random.default_rng(1)
    flat = generator.standard_normal((50, 2)) @ generator.standard_normal((2, 5))
    found = sample_constants(flat)
    assert found.strong_convexity > 1e-6
    assert found.sample_smoothness <= np.max(np.sum(flat**2, axis=1)) * (1 + 1e-12)
    kappa_1 = found.sample_smoothness / found.strong_convexity
    assert found.statistical_condition_number <= kappa_1 * (1 + 1e-12)


@pytest.mark.parametrize(
    ("batch", "kappa_m", "statistical", "alpha", "gamma", "eta2"),
    [
        (1, 4086, 12.88, 0.00436, 0.9913, 0.2328),
        (8, None, None, 0.0167, 0.9671, 0.4235),
        (64, None, None, 0.0276, 0.9463, 0.1426),
    ],
)
def test_printed_parameters(batch, kappa_m, statistical, alpha, gamma, eta2):
    # L from eta1 = 0.7205 at batch 8: L_8 = 1 / 0.7205 = L_1 / 8 + 7 L / 8
    largest = (1 / 0.7205 - 3.94 / 8) * 8 / 7
    sample = SampleConstants(largest, 3.94 / 4086, 3.94, 12.88)
    constants = batch_constants(sample, batch)
    if kappa_m is not None:
        assert constants.batch_condition_number == pytest.approx(kappa_m)
        assert constants.batch_statistical_condition_number == pytest.approx(statistical)
    found = best_hyperparameters(constants)
    assert found.mixing == pytest.approx(alpha, abs=6e-5)
    assert found.momentum == pytest.approx(gamma, abs=1.5e-4)
    assert found.compensation_lr == pytest.approx(eta2, abs=1.1e-3)
    assert keeps_rate(found, constants)
    assert found.auxiliary_lr / found.mixing == pytest.approx(1 / constants.strong_convexity)
    root = 1 / found.mixing
    assert found.momentum == pytest.approx((root - 1) / (root + 1))
    statistical = constants.batch_statistical_condition_number
    assert found.compensation_lr == pytest.approx(found.client_lr * root / (root + 1) * (1 - 1 / statistical))


def test_full_batch_is_nesterov():
    constants = batch_constants(SampleConstants(2.0, 0.02, 9.0, 5.0), np.inf)
    assert constants.batch_statistical_condition_number == 1.0
    found = best_hyperparameters(constants)
    assert found.mixing == pytest.approx(0.1)
    assert found.compensation_lr == pytest.approx(0.0, abs=1e-15)
    assert found.auxiliary_lr == pytest.approx(found.client_lr / found.mixing)


@given(st.floats(1e-4, 2), st.floats(0, 0.999), st.floats(0, 0.5))
def test_both_forms_are_the_same_numbers(client_lr, momentum, share):
    two = from_two_sequences(client_lr, momentum, share * client_lr)
    three = from_three_sequences(two.client_lr, two.mixing, two.auxiliary_lr)
    assert three.momentum == pytest.approx(momentum, abs=1e-12)
    assert three.compensation_lr == pytest.approx(share * client_lr, abs=1e-12)


def test_both_forms_take_the_same_steps():
    form = from_three_sequences(0.1, 0.3, 0.2)
    hessian = np.diag([1.0, 5.0])
    w = u = v = before = np.array([1.0, -1.0])
    w2 = u2 = w
    for _ in range(20):
        gradient, gradient2 = hessian @ u, hessian @ u2
        v = (1 - form.mixing) * v + form.mixing * u - form.auxiliary_lr * gradient
        w = u - form.client_lr * gradient
        u = (form.mixing * v + w) / (1 + form.mixing)
        before, w2 = w2, u2 - form.client_lr * gradient2
        u2 = w2 + form.momentum * (w2 - before) + form.compensation_lr * gradient2
        assert w2 == pytest.approx(w, abs=1e-14)
        assert u2 == pytest.approx(u, abs=1e-14)


def test_expected_distance_stays_within_the_bound():
    """Exact second moments of mini-batch MaSS on three interpolating points, all 3 batches of one example."""
    data = np.array([[1.0, 0.2], [0.1, 0.8], [0.5, -0.6]])
    constants = batch_constants(sample_constants(data), 1)
    form = best_hyperparameters(constants)
    second = [np.outer(x, x) for x in data]
    state = np.kron(np.ones((2, 2)), np.outer([1.0, -2.0], [1.0, -2.0]))  # second moment of (v, w), v = w
    alpha, identity = form.mixing, np.eye(2)
    for step in range(200):
        error = np.trace(state[2:, 2:])
        assert error <= expected_distance_bound(alpha, step, 5.0) * (1 + 1e-9)
        nxt = np.zeros_like(state)
        for hessian in second:
            look = np.hstack([alpha * identity, identity]) / (1 + alpha)  # u from (v, w)
            v_row = np.hstack([(1 - alpha) * identity, np.zeros((2, 2))]) + alpha * look
            move = np.vstack([v_row - form.auxiliary_lr * hessian @ look, look - form.client_lr * hessian @ look])
            nxt += move @ state @ move.T / 3
        state = nxt
    assert np.trace(state[2:, 2:]) < 0.1


def test_common_constants_are_safe_for_every_device():
    devices = [
        batch_constants(SampleConstants(2.0, 0.1, 6.0, 4.0), 2),
        batch_constants(SampleConstants(1.0, 0.05, 9.0, 3.0), 4),
    ]
    common = common_constants(devices)
    assert common.strong_convexity == 0.05
    form = best_hyperparameters(common)
    assert all(keeps_rate(form, device) for device in devices)
    assert not keeps_rate(from_three_sequences(form.client_lr, 3 * form.mixing, form.auxiliary_lr), common)


def test_wrong_input():
    with pytest.raises(SpecError, match="batch_size must be at least 1"):
        batch_constants(SampleConstants(1.0, 1.0, 1.0, 1.0), 0)
    with pytest.raises(SpecError, match="features must not all be 0"):
        sample_constants(np.zeros((3, 2)))
    with pytest.raises(SpecError, match="features must be a finite matrix"):
        sample_constants([1.0, 2.0])
    with pytest.raises(SpecError, match="covariance must be positive definite"):
        gaussian_constants(np.zeros((2, 2)))
    with pytest.raises(SpecError, match=r"mixing must be in \(0, 1\]"):
        from_three_sequences(0.1, 0.0, 0.1)
    with pytest.raises(SpecError, match=r"momentum must be in \[0, 1\)"):
        from_two_sequences(0.1, 1.0, 0.1)
