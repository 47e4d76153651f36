"""What a service says of a study's cost: its trials, packs and rounds; nothing is trained."""

import pytest

from service.api import study_checks
from service.store.store import Store
from trainers.engine.packs.pack import Pack

from .api_setup import POINTS, running


def test_trials_packs_and_rounds_follow_from_the_budget(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a pack was made in the API's process")

    monkeypatch.setattr(Pack, "from_spec", fail)
    space = {"client_lr": {"float": [0.01, 0.1]}, "server_lr": 1, "local_steps": {"choice": [2, 4]}}
    methods = [{"name": name, "space": space} for name in ("fedavg", "scaffold")]
    document = POINTS | {
        "methods": methods,
        "budget": {"trials_per_method": 8, "rounds": 5, "seeds": 2, "confirm": 3},
    }
    with running(sqlite_store, check=study_checks.check) as service, service.client("all") as client:
        found = client.validate(document).estimate
    assert found is not None
    assert (found.trials, found.rounds) == (2 * (8 + 3 * 2), 2 * (8 + 3 * 2) * 5)
    assert found.packs == 2 * (4 + 2)  # of 2 search trials, and of 3 confirmation trials for each seed
    assert found.seconds is None
