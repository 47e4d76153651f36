"""Descent on the loss plus the misalignment: its limit, GradAlign, and the mean of SGD over the clients."""

import pytest

from trainers.methods import regularized_gd

from .alignment import CLIENTS, ORDERS, RATES, slope
from .four_clients import INIT, WEIGHTS, same, task


def test_regularized_gd_without_misalignment_is_fedsgd():
    same({"name": "regularized_gd", "server_lr": 0.1, "misalignment_weight": 0.0}, {"name": "fedsgd", "server_lr": 0.1})


@pytest.mark.parametrize("source", ["full", "batch"])
def test_regularized_descent_is_gradalign_on_quadratics(source):
    one = {"name": "regularized_gd", "server_lr": 0.1, "misalignment_weight": 0.3, "displacement_source": source}
    two = {"name": "gradalign", "server_lr": 0.1, "displacement": 0.3, "displacement_source": source}
    for weights in (None, WEIGHTS):
        same(one, two, task(weights), init=INIT, batch_size=None)


def test_descent_on_the_loss_plus_alignment_is_the_mean_sgd_to_second_order(clients):
    """Appendix A.4: as many steps on the loss plus half the rate times the misalignment, with Hessian products."""
    params = clients.start.repeat(4, 1, 1)
    for _ in range(CLIENTS):
        params = clients.round(regularized_gd, RATES, misalignment_weight=RATES / 2, start=params)
    assert slope(params - clients.sequential(RATES, ORDERS)) == pytest.approx(3, abs=0.15)
