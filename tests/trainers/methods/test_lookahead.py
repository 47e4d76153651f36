"""Lookahead: FedAvg with one client a round, whose slow weights move part of the way."""

import numpy as np
import pytest

from trainers.trial.document import parse

from ..documents import wrong
from .four_clients import same
from .three_clients import START, WORK, clients_of, document, trained
from .trials import train


def test_lookahead_is_fedavg_with_one_client():
    work = {"client_lr": 0.1, "server_lr": 0.05, "local_steps": 4}
    same({"name": "lookahead", **work}, {"name": "fedavg", **work}, clients_per_round=1)


@pytest.mark.parametrize("delta_lr", [0.25, 1.0])
def test_lookahead_moves_the_slow_weights_part_of_the_way(delta_lr):
    lines = train(document({"name": "lookahead", **WORK, "delta_lr": delta_lr}))
    x = np.array(START)
    for number, line in enumerate(lines[1:]):
        (client,) = clients_of(number, 1)
        x = x + delta_lr * (trained(client, x) - x)
        np.testing.assert_allclose(line["params"], x, rtol=0, atol=1e-12)


def test_lookahead_has_one_client_a_round():
    method = {"name": "lookahead", **WORK, "delta_lr": 0.5}
    assert parse(document(method)).clients_per_round == 1
    assert parse(document(method, clients_per_round=1)).canonical == parse(document(method)).canonical
    message = "clients_per_round must be 1 for lookahead, or left out, got clients_per_round=2"
    assert str(wrong(document(method, clients_per_round=2))) == message
