"""The largest client_lr that does not diverge, against what is known in closed form."""

import pytest

from benchmarks.largest_client_lr import SERVER_LRS, Tried, largest_client_lr
from trainers.errors import SpecError

TRIAL = {
    "task": {"name": "quadratic", "hessians": [[[1.0, 0.0], [0.0, 10.0]]], "centers": [[1.0, 1.0]]},
    "method": {"name": "fedavg", "client_lr": 7.0, "server_lr": 7.0, "local_steps": 30},
    "rounds": 200,
}


def test_on_a_quadratic_it_is_below_two_over_smoothness():
    """client_lr above 2 / 10 grows by |1 - 10 client_lr|^30 within a round: no server_lr of the grid tames that."""
    tried = largest_client_lr(TRIAL)
    assert tried[:-1] == [Tried(rate, 9) for rate in (100.0, 10.0, 1.0)]
    assert tried[-1].client_lr == 0.1
    assert tried[-1].train_loss == pytest.approx(0, abs=1e-6)
    assert tried[-1].server_lr in SERVER_LRS


@pytest.mark.parametrize("name", ["local_sgd", "mass", "lookahead"])
def test_methods_that_are_tied_by_nature_need_no_server_lr(name):
    trial = {**TRIAL, "method": {"name": name, "local_steps": 2}, "rounds": 100}
    tried = largest_client_lr(trial, [1.0, 0.1])
    assert tried[0] == Tried(1.0, tried[0].diverged)
    assert tried[-1].client_lr == 0.1
    assert tried[-1].train_loss is not None


def test_bad_input():
    with pytest.raises(SpecError, match="must name a method with a client_lr, got fedsgd"):
        largest_client_lr({**TRIAL, "method": {"name": "fedsgd"}}, [0.1], [0.1])
