"""Lookahead: FedAvg with one client a round."""

from trainers.trial.document import parse

from ..documents import wrong
from .four_clients import same
from .three_clients import WORK, document


def test_lookahead_is_fedavg_with_one_client():
    work = {"client_lr": 0.1, "server_lr": 0.05, "local_steps": 4}
    same({"name": "lookahead", **work}, {"name": "fedavg", **work}, clients_per_round=1)


def test_lookahead_has_one_client_a_round():
    method = {"name": "lookahead", **WORK, "delta_lr": 0.5}
    assert parse(document(method)).clients_per_round == 1
    assert parse(document(method, clients_per_round=1)).canonical == parse(document(method)).canonical
    message = "clients_per_round must be 1 for lookahead, or left out, got clients_per_round=2"
    assert str(wrong(document(method, clients_per_round=2))) == message
