"""A server_lr that is tied to client_lr (`tied`, local SGD): schedules, packs, restarts, and refused values."""

import numpy as np
import pytest

from trainers.trial.document import parse, structure_of

from ..documents import wrong
from .three_clients import WORK, document, models
from .trials import train

PLATEAU = {"name": "plateau", "window": 2, "patience": 1, "cooldown": 3, "min_delta": 0.05}
TIES = "must be left out: local_sgd ties server_lr to client_lr"


@pytest.mark.parametrize("method", [{"name": "local_sgd", **WORK}, {"name": "fedavg", "tied": True, **WORK}])
@pytest.mark.parametrize("mode", ["paper", "reference"])
def test_tied_rates_follow_the_clients_through_a_decay(method, mode):
    plateau = {**PLATEAU, "decay_mode": mode, "client_decay": 0.5}
    lines = train(document(method, rounds=30, schedule={**plateau, "server_decay": 0.9}))
    assert all(line["server_lr"] == line["client_lr"] for line in lines)
    assert lines[-1]["client_lr"] <= 0.1 / 4
    both = document({"name": "fedavg", **WORK, "server_lr": 0.1}, rounds=30)
    free = train({**both, "schedule": {**plateau, "server_decay": 0.5}})
    np.testing.assert_allclose(models(lines), models(free), rtol=0, atol=1e-12)
    assert [line["client_lr"] for line in lines] == [line["client_lr"] for line in free]


def test_documents_with_tied_rates():
    spec = parse(document({"name": "fedavg", "tied": True, **WORK}))
    assert spec.method.tied
    assert spec.canonical["method"]["tied"] is True
    assert "server_lr" not in spec.canonical["method"]
    assert parse(spec.canonical).canonical == spec.canonical
    free = parse(document({"name": "fedavg", "tied": False, "server_lr": 0.1, **WORK}))
    assert not free.method.tied
    assert "tied" not in free.canonical["method"]
    keys = [
        structure_of(parse(document({"name": "fedavg", **WORK, **more})))
        for more in ({"tied": True}, {"tied": True, "client_lr": 0.3}, {"server_lr": 0.1})
    ]
    assert keys[0] == keys[1] != keys[2]


LOCAL_SGD, TIED = {"name": "local_sgd", **WORK}, {"name": "fedavg", **WORK, "tied": True}


@pytest.mark.parametrize(
    ("method", "members", "message"),
    [
        ({**LOCAL_SGD, "server_lr": 0.1}, None, f"method.server_lr {TIES}"),
        (LOCAL_SGD, [{"delta_lr": 1}], f"members.0.delta_lr {TIES}"),
        ({**LOCAL_SGD, "client_lr": 0}, None, "method.client_lr must be above 0, got client_lr=0"),
        (TIED, [{}, {"server_lr": 1}], "members.1.server_lr must be left out: tied: true ties server_lr to client_lr"),
        (TIED, [{"client_lr": 0}], "members.0.client_lr must be above 0 if server_lr is tied to it, got client_lr=0"),
        (TIED, [{"tied": False}], "members.0.tied must be the same for all members: give it once, outside members"),
        ({**TIED, "tied": "yes"}, None, 'method.tied must be true or false, got tied="yes"'),
    ],
)
def test_wrong_rates(method, members, message):
    given = document(method) if members is None else document(method, members=members)
    assert str(wrong(given)) == message
