"""[B] Figure 1: on the continuum of clients the iterates settle around the surrogate's minimizer, not the optimum.

One client a round; the mean over the last half of a run against the minimizer in closed form. Shortened: 20,000 rounds
at server_lr 1e-3 instead of 200,000 at 1e-4.
"""

import numpy as np
import pytest

from trainers.run import run

CLIENTS, ROUNDS = 1000, 20_000
SETTINGS = [(1, 0.5), (5, 0.5), (20, 0.0), (20, 0.1), (20, 0.5)]
PAPER = {(1, 0.5): 0.714286, (5, 0.5): 0.786126, (20, 0.0): 0.714286, (20, 0.1): 0.773941, (20, 0.5): 0.799934}


def surrogate_minimizer(local_steps: int, client_lr: float) -> float:
    """E[phi(i) / i] / E[phi(i)] over the population's curvatures i."""
    curvature = np.sqrt(0.25 + 3.75 * (np.arange(CLIENTS) + 0.5) / CLIENTS)
    powers = (1 - client_lr * curvature)[:, None] ** np.arange(local_steps)
    phi = curvature * powers.sum(1)
    return float((phi / curvature).sum() / phi.sum())


@pytest.mark.papers
def test_iterates_settle_around_the_surrogate_minimizer() -> None:
    document = {
        "task": {"name": "quadratic", "problem": "continuum", "clients": CLIENTS},
        "method": {"name": "fedavg", "server_lr": 1e-3},
        "clients_per_round": 1,
        "rounds": ROUNDS,
        "seed": 0,
        "eval_every": 10,
        "report": ["params"],
        "members": [{"local_steps": steps, "client_lr": rate} for steps, rate in SETTINGS],
    }
    late: dict[int, list[float]] = {member: [] for member in range(len(SETTINGS))}
    for line in run(document):
        if line["round"] > ROUNDS // 2 and "params" in line:
            late[line["member"]].append(line["params"][0])
    for member, (steps, rate) in enumerate(SETTINGS):
        expected = surrogate_minimizer(steps, rate)
        assert expected == pytest.approx(PAPER[steps, rate], abs=1e-5)
        assert np.mean(late[member]) == pytest.approx(expected, abs=0.012)
