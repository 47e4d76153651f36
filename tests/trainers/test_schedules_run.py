"""Schedules at work: automatic decay keeps the early speed and removes the bias of local work.

The bound of theory_1_over_t is that of its rates (test_schedules.py), in tests/theory/test_stochastic_rates.py.
"""

from typing import Any

import numpy as np
import pytest

from trainers.run import run
from trainers.trial.document import parse

from .documents import wrong
from .methods.three_clients import WORK, document

OPTIMUM = 1 / 1.4  # of the continuum
BIASED = 0.79993  # where 20 local steps at client_lr 0.5 converge to
FIXED = {"schedule.client_decay": 1.0, "schedule.server_decay": 1.0}


def trained(**changes: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The lines of a decayed and of a fixed trial on the same cohorts."""
    document = {
        "task": {"name": "quadratic", "problem": "continuum"},
        "method": {"name": "fedavg", "client_lr": 0.5, "server_lr": 0.02, "local_steps": 20},
        "clients_per_round": 10,
        "members": [{}, FIXED],
        "report": ["params"],
        **changes,
    }
    document.setdefault("eval_every", document["rounds"])
    lines = list(run(document))
    return [line for line in lines if line["member"] == 0], [line for line in lines if line["member"] == 1]


def models(lines: list[dict[str, Any]]) -> np.ndarray:
    return np.array([line["params"][0] for line in lines])


def decays(lines: list[dict[str, Any]]) -> list[int]:
    """The rounds, from 1, after which the rates fell: the round before the first one with the new rate."""
    rates = [line["server_lr"] for line in lines]
    return [number - 1 for number in range(1, len(rates)) if rates[number] < rates[number - 1]]


@pytest.mark.parametrize("mode", ["paper", "reference"])
def test_all_clients_every_round(mode: str) -> None:
    decayed, fixed = trained(
        task={"name": "quadratic", "problem": "continuum", "clients": 60},
        clients_per_round=None,
        schedule={"name": "plateau", "window": 10, "min_delta": 1e-6, "decay_mode": mode},
        rounds=600,
        eval_every=600,
    )
    assert models(fixed)[-1] == pytest.approx(BIASED, abs=5e-4)  # 60 clients stand for the continuum
    assert models(decayed)[-1] == pytest.approx(OPTIMUM, abs=1e-4)
    first = decays(decayed)[0]
    assert np.array_equal(models(decayed)[: first + 1], models(fixed)[: first + 1])
    ratios = [decayed[-1][f"{kind}_lr"] / decayed[0][f"{kind}_lr"] for kind in ("client", "server")]
    count = len(decays(decayed))
    assert count >= 3
    assert np.log10(ratios[0]) == pytest.approx(-count, abs=1)
    assert np.log(ratios[1]) / np.log(0.9) == pytest.approx(count, abs=1)


def test_sampled_clients_in_short() -> None:
    decayed, fixed = trained(schedule={"name": "plateau", "window": 50}, rounds=1000, seed=0)
    first = decays(decayed)[0]
    assert first >= 100
    assert np.array_equal(models(decayed)[: first + 1], models(fixed)[: first + 1])
    assert models(fixed)[-400:].mean() == pytest.approx(BIASED, abs=0.03)
    assert models(decayed)[-400:].mean() == pytest.approx(OPTIMUM, abs=0.03)


def test_the_theorys_local_steps_are_the_methods() -> None:
    theory = {"name": "theory_1_over_t", "strong_convexity": 0.5, "smoothness": 5.0}
    fedavg = {"name": "fedavg", **WORK, "server_lr": 0.1}
    members = [{}, {"local_steps": 2}]
    assert parse(document(fedavg, schedule=theory, members=members)).schedule.values["local_steps"] == (6, 2)
    assert parse(document({"name": "minibatch_sgd", "server_lr": 1}, schedule=theory)).schedule.values[
        "local_steps"
    ] == (1,)
    assert parse(document(fedavg, schedule=theory)).warnings == ()
    assert parse(document(fedavg, schedule={**theory, "local_steps": 5})).warnings == (
        "schedule.local_steps is 5, but the method's is 6: leave it out to use the method's",
    )
    assert str(wrong(document(fedavg, schedule={**theory, "smoothness": 0.1}))) == (
        "schedule.smoothness must be at least strong_convexity, got smoothness=0.1 and strong_convexity=0.5"
    )
    digits = {"name": "digits", "clients": 4, "partition": "iid"}
    epochs = {"name": "fedavg", "client_lr": 0.1, "server_lr": 0.1, "local_epochs": 1}
    assert str(wrong({"task": digits, "method": epochs, "schedule": theory, "rounds": 1})) == (
        "schedule.local_steps must be given, because the method has no local_steps of its own"
    )


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["paper", "reference"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_sampled_clients_in_full(mode: str, seed: int) -> None:
    decayed, fixed = trained(
        schedule={"name": "plateau", "window": 100, "decay_mode": mode}, rounds=6000, seed=seed, eval_every=6000
    )
    early = models(fixed)[150:200].mean()
    assert early == pytest.approx(BIASED, abs=0.03)
    assert models(decayed)[150:200].mean() == early
    errors = [abs(models(lines)[-500:].mean() - OPTIMUM) for lines in (decayed, fixed)]
    assert 5 * errors[0] < errors[1]
    assert errors[0] < 0.008
    assert models(fixed)[-500:].mean() == pytest.approx(BIASED, abs=0.015)
    assert 200 <= decays(decayed)[0] <= 500
    assert 25 <= len(decays(decayed)) <= 30
