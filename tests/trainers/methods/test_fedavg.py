"""FedAvg: where training on two clients ends; its rounds are in test_closed_forms.py."""

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
