"""FedGA: its two forms are equal, limits, theorem 4, and mean gradients that are used again."""

import numpy as np
import pytest

from trainers.methods import fedavg, fedga

from . import client_gradients
from .alignment import RATES, column, slope, third_order
from .client_gradients import OPTIMIZERS, ROUNDS, SERVER_LR
from .four_clients import DIGITS, INIT, WORK, same, task


@pytest.mark.parametrize("more", [{}, {"displacement_form": "each_step"}, {"reuse_mean_gradient": True}])
def test_fedga_without_displacement_is_fedavg(more):
    same({"name": "fedga", **WORK, "displacement": 0.0, **more}, {"name": "fedavg", **WORK})


def test_fedga_without_displacement_and_with_prox_is_fedprox():
    same({"name": "fedga", **WORK, "displacement": 0.0, "prox": 0.4}, {"name": "fedprox", **WORK, "prox": 0.4})


@pytest.mark.parametrize("source", ["full", "batch"])
def test_one_step_of_fedga_is_gradalign(source):
    shared = {"server_lr": 0.1, "displacement": 0.3, "displacement_source": source, "weight_decay": 0.1}
    same({"name": "fedga", "client_lr": 0.3, "local_steps": 1, **shared}, {"name": "gradalign", **shared})


DECAYED = {"weight_decay": 0.3, "prox": 0.2}
NOISY = {"given": task(noise=0.3), "init": INIT}
PULLS = [{}, {"weight_decay": 0.2}, {"client_lr": 0.0}]
FORMS = [
    *(({**pull, **own}, {}) for pull in PULLS for own in ({}, {"displacement_source": "batch"}, {"prox": 0.7})),
    ({"local_steps": None, "local_epochs": 2}, {"given": DIGITS}),
    ({"prox": 0.7, "reuse_mean_gradient": True}, {}),
    ({}, {"client": {"name": "momentum"}}),
    ({"client_lr": 0.01}, {"client": {"name": "adam"}}),
    ({**DECAYED, "reuse_mean_gradient": False}, {**NOISY, "client": {"name": "adamw"}}),
    ({**DECAYED, "reuse_mean_gradient": True}, {**NOISY, "client": {"name": "adamw"}}),
    ({"clip_norm": 0.05}, {}),
    ({"prox": 0.5, "clip_norm": 0.2}, {"client": {"name": "nesterov"}}),
    # the mean of the cohort, not of all clients: with reuse the displacements do not add up, and are undone
    ({"reuse_mean_gradient": True}, NOISY),
]


@pytest.mark.parametrize(("more", "changes"), FORMS)
def test_both_forms_of_fedga_are_equal(more, changes):
    work = {"name": "fedga", **WORK, "displacement": 0.3, **more}
    apart = "client" in changes or {"prox", "clip_norm", "reuse_mean_gradient"} & more.keys()
    metrics = ("train_loss", "update_norm") if apart else ()  # else the loss of `once` is of displaced models
    same(work, {**work, "displacement_form": "each_step"}, tolerance=1e-13, metrics=metrics, **changes)


@pytest.mark.parametrize("form", ["once", "each_step"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_reused_mean_is_of_gradients_whatever_the_client_optimizer(name, form):
    direction, settings = OPTIMIZERS[name]
    x, mean = np.array([3.0, -2.0]), np.zeros(2)
    wanted = [x]
    for _ in range(ROUNDS):
        done = [
            client_gradients.local(client, x + 0.2 * (client_gradients.gradient(client, x) - mean), direction)
            for client in range(3)
        ]
        mean = np.mean([own for _, own in done], 0)
        x = x - SERVER_LR * np.mean([total for total, _ in done], 0)
        wanted.append(x)
    method = {
        "name": "fedga",
        **client_gradients.WORK,
        "displacement": 0.2,
        "reuse_mean_gradient": True,
        "displacement_form": form,
    }
    found, last = client_gradients.models(method, **settings)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)
    assert last["bytes_up"] == ROUNDS * 3 * 2 * 2 * 8  # the pseudo-gradient does not tell the mean of the gradients
    assert client_gradients.models(method)[1]["bytes_up"] == ROUNDS * 3 * 2 * 8


@pytest.mark.parametrize("steps", [1, 2, 5, 10])
@pytest.mark.parametrize("form", ["once", "each_step"])
def test_a_round_of_fedga_aligns_for_every_local_step(clients, steps, form):
    """Theorem 4, with displacement equal to the rate: terms of order client_lr^2 displacement are there too."""
    work = {"local_steps": steps, "displacement": RATES, "displacement_form": form}
    gain = clients.round(fedga, RATES, **work) - clients.round(fedavg, RATES, local_steps=steps)
    remainder = gain + steps * column(RATES, 4) ** 2 * clients.slope_of_misalignment(clients.start)
    assert third_order(clients, remainder, exact=steps == 1)
    assert slope(gain) == pytest.approx(2, abs=0.25)
