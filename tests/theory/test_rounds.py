"""Where round maps of methods settle, and what they refuse.

The rounds of trials are those of these maps: tests/trainers/methods/test_closed_forms.py and test_prediction.py. What
trials do is compared with the papers' algorithms and numbers in tests/trainers/methods.
"""

import numpy as np
import pytest

from trainers.errors import SpecError
from trainers.theory.rounds.methods import affine_round, fixed_point, optimum, round_map
from trainers.theory.surrogate import surrogate
from trainers.theory.weights import last_step

LR, STEPS = 0.05, 6
WORK = {"client_lr": LR, "server_lr": 0.01, "local_steps": STEPS}
FEDAVG, FEDGA = {"name": "fedavg", **WORK}, {"name": "fedga", **WORK, "displacement": 0.03}


@pytest.mark.parametrize("prox", [0.0, 0.7])
def test_maml_without_prox_is_the_last_of_twice_the_steps_and_one(prox, clients):
    """[A] Theorem 2."""
    affine = affine_round({"name": "maml", "client_lr": LR, "local_steps": STEPS, "prox": prox}, clients)
    odd = surrogate(clients, LR, last_step(2 * STEPS + 1), prox)
    assert np.allclose(affine.gradient, odd.hessian, rtol=1e-10) == (prox == 0)


def test_scaffold_and_no_local_work_find_the_optimum(clients):
    assert fixed_point({**FEDAVG, "name": "scaffold"}, clients) == pytest.approx(clients.optimum, abs=1e-13)
    assert fixed_point({**FEDAVG, "name": "fedsgd"}, clients) == pytest.approx(clients.optimum, abs=1e-13)
    assert np.linalg.norm(fixed_point(FEDAVG, clients) - clients.optimum) > 0.01


@pytest.mark.parametrize("server", [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}])
def test_the_server_moves_no_fixed_point_and_no_optimum(server, clients):
    method = {**FEDAVG, "weight_decay": 0.4}
    found = round_map(method, clients, {"name": "sgd", **server})
    assert found.fixed_point == pytest.approx(fixed_point(method, clients), abs=1e-11)
    assert optimum(method, clients) == pytest.approx(clients.optimum)  # of the loss, which has no decay


def test_settings_of_batches_play_no_part(clients):
    extra = {"displacement_form": "each_step", "displacement_source": "batch", "local_epochs": None, "clip_norm": None}
    assert fixed_point({**FEDGA, **extra}, clients) == pytest.approx(fixed_point(FEDGA, clients))
    with pytest.raises(SpecError, match=r"clip_norm must be null for a closed form, got 5"):
        fixed_point({**FEDGA, "clip_norm": 5}, clients)


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ({"name": "fedavgg"}, "did you mean fedavg"),
        ({"name": "fedavg", "client_lr": 0.1, "local_step": 2, "server_lr": 1}, "did you mean local_steps"),
        ({"name": "fedavg", "client_lr": 0.1, "server_lr": 1}, "method.local_steps is missing"),
        ({"name": "fedavg", "client_lr": 0.1, "local_steps": 2}, "one of server_lr and delta_lr, got neither"),
        ({"name": "fedavg", "client_lr": 0, "local_steps": 2, "delta_lr": 1}, "needs client_lr above 0"),
        ({"name": "fedavg", "client_lr": 0.1, "local_steps": 2.5, "server_lr": 1}, "whole number"),
        ({"name": "one_way_transfer", **WORK, "federated_weight": 2}, "federated_weight must be between 0 and 1"),
    ],
)
def test_wrong_methods_say_what_to_do(method, words, clients, central):
    with pytest.raises(SpecError, match=words):
        round_map(method, clients, central=central)
