"""One round of many methods on two parabolas, in numbers worked out by hand."""

import numpy as np
import pytest

from .four_clients import HAND, models, train

HAND_WORK = {"client_lr": 0.1, "server_lr": 0.1}


@pytest.mark.parametrize(
    ("method", "ends"),
    [
        ({"name": "fedsgd", "server_lr": 0.1}, 1.25),
        ({"name": "gradalign", "server_lr": 0.1, "displacement": 0.05}, 1.2675),
        ({"name": "fedavg", **HAND_WORK}, (1.25, 1.415, 1.5215)),
        ({"name": "fedga", **HAND_WORK, "displacement": 0.05}, (1.2675, 1.443, 1.555275)),
        ({"name": "fedga", **HAND_WORK, "displacement": 0.2}, (1.32, 1.527, 1.6566)),
        ({"name": "scaffold", **HAND_WORK}, (1.25, 1.45, 1.6125)),
        ({"name": "fedprox", **HAND_WORK, "prox": 1.0}, (1.25, 1.39, 1.466)),
        ({"name": "linear_scaling", "server_lr": 0.1}, 1.5),
        ({"name": "aligned_linear_scaling", **HAND_WORK}, 1.485),
    ],
)
def test_numbers_by_hand(method, ends):
    """f1 = x^2 / 2, f2 = 1.5 (x - 3)^2 from x = 1: gradients 1 and -6; ends after 1, 2 and 3 local steps."""
    settings = [{}] if isinstance(ends, float) else [{"local_steps": steps} for steps in (1, 2, 3)]
    lines = train(method, 1, HAND, init=[1.0], members=settings)
    found = [line["params"][0] for line in lines if line["round"] == 1]
    assert found == pytest.approx(np.atleast_1d(ends).tolist(), abs=1e-14)


@pytest.mark.parametrize(
    ("method", "end"),
    [
        # f1 = x^2 / 2, f2 = 1.5 (x - 3)^2 from x = 1: gradients 1 and -6; two steps at 0.1 end at 0.81 and 2.02
        ({"name": "feddyn", "prox": 0.0}, 1 + 2 * 0.415),
        ({"name": "fedexp", "epsilon": 1e-12}, 1 + 0.415 * (0.19**2 + 1.02**2) / 2 / (2 * 0.415**2)),
        ({"name": "fedexp", "epsilon": 10.0}, 1.415),
        ({"name": "scaffold", "variates": "stored"}, 1.415),
        ({"name": "mimelite", "momentum": 0.5}, 1 - 0.1 * 0.5 * (1 + 0.95 - 6 - 6 * 0.85) / 2),
    ],
)
def test_two_local_steps_by_hand(method, end):
    settings = {"client_lr": 0.1, "server_lr": 0.1, "local_steps": 2}
    assert models({**method, **settings}, 1, HAND, init=[1.0])[1] == pytest.approx([end], abs=1e-9)


def test_several_rounds_by_hand():
    """f1 = x^2 / 2, f2 = 1.5 (x - 3)^2 from x = 1: slope of the misalignment -3.5, SGD over both clients 1.485."""

    def end(method, rounds=1, **changes):
        return models({"server_lr": 0.1, **method}, rounds, HAND, init=[1.0], **changes)[-1, 0]

    assert end({"name": "regularized_gd", "misalignment_weight": 0.05}) == pytest.approx(1.25 + 0.1 * 0.05 * 3.5)
    assert [end({"name": "fedsgd"}, rounds) for rounds in (1, 2, 3)] == pytest.approx([1.25, 1.45, 1.61], abs=1e-14)
    # one client a round: the two orders of sequential SGD, by the seeds that draw them
    orders = {end({"name": "fedsgd"}, 2, clients_per_round=1, seed=seed).round(12) for seed in range(40)}
    assert {1.53, 1.44} <= orders
    assert end({"name": "aligned_linear_scaling", "client_lr": 0.1}) == pytest.approx((1.53 + 1.44) / 2, abs=1e-14)
