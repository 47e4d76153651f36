"""FedAvg: models are averaged where the rates are equal, weight decay, and where training ends on known problems."""

import numpy as np
import pytest

from .trials import train


def test_two_clients_move_with_client_lr_and_local_steps():
    rates, steps = (0.0, 0.2, 0.5, 0.9, 1.1), (1, 2, 3, 10, 30)
    members = [{"client_lr": rate, "server_lr": 0.3, "local_steps": 2} for rate in rates]
    members += [{"client_lr": 0.5, "server_lr": 0.5, "local_steps": number} for number in steps]
    given = {
        "task": {"name": "quadratic", "problem": "two_clients"},
        "method": {"name": "fedavg", **members[0]},
        "members": members,
        "rounds": 400,
        "eval_every": 400,
        "report": ["params"],
    }
    lines = train(given)[-len(members) :]
    wanted = [(4 - 3 * rate) / (6 - 5 * rate) for rate in rates]
    wanted += [(3 * 2**number - 2) / (2 ** (number + 2) - 2) for number in steps]
    assert [line["params"][0] for line in lines] == pytest.approx(wanted, abs=1e-10)
    distances = [rate / (3 * (6 - 5 * rate)) for rate in rates]
    assert [line["distance"] for line in lines[: len(rates)]] == pytest.approx(distances, abs=1e-10)


def test_continuum_stops_at_its_surrogate_minimizer():
    clients = 1000
    curvature = np.sqrt(0.25 + 3.75 * (np.arange(clients) + 0.5) / clients)
    table = {(0.5, 1): 0.714286, (0.5, 3): 0.767426, (0.5, 20): 0.799934, (0.0, 20): 0.714286, (0.1, 20): 0.773941}
    phis = [sum((1 - rate * curvature) ** power * curvature for power in range(steps)) for rate, steps in table]
    settings = [{"client_lr": client_lr, "local_steps": local_steps} for client_lr, local_steps in table]
    given = {
        "task": {"name": "quadratic", "problem": "continuum", "clients": clients},
        "method": {"name": "fedavg", **settings[0]},
        "members": [{**one, "server_lr": 0.5 / phi.mean()} for one, phi in zip(settings, phis, strict=True)],
        "rounds": 50,
        "eval_every": 50,
        "report": ["params"],
    }
    lines = train(given)[-len(table) :]
    for line, phi, printed in zip(lines, phis, table.values(), strict=True):
        assert line["params"][0] == pytest.approx((phi / curvature).mean() / phi.mean(), abs=1e-10)
        assert line["params"][0] == pytest.approx(printed, abs=2e-5)  # the table is of the continuum
