"""PostgreSQL killed and started again under a writer: it hears of it, goes on, and nothing acknowledged is lost."""

import os
import signal
import threading
from contextlib import closing
from typing import Any

import pytest

from driftline.errors import Unavailable
from driftline.wire.curve_codec import encode
from driftline.wire.driver_messages import Report
from driftline.wire.ids import holder
from service.store.store import Store
from tests.postgresql import postgresql_server
from tests.waiting import until

from .api_setup import running
from .conftest import SPEC, new_trials

ROUNDS = 400


@pytest.mark.slow
def test_postgresql_is_killed_and_comes_back() -> None:
    with postgresql_server() as server, closing(Store(server.get_uri())) as store:
        study = store.studies.create(SPEC, "f" * 64).id
        acknowledged: list[int] = []
        ended: list[Any] = []

        with running(store) as service, service.client(patience_s=120) as driver:

            def drive() -> None:
                attempt = driver.acquire(study, holder()).attempt
                (trial,) = driver.create_trials(study, attempt, new_trials("fedavg", 1))
                driver.start_pack(study, attempt, "p", [trial.id])
                for number in range(ROUNDS):
                    columns = {"round": [number], "train_loss": [1 / (1 + number)]}
                    driver.report(
                        study,
                        Report(attempt=attempt, pack="p", reports={trial.id: encode(columns)}, rounds_done=number),
                    )
                    acknowledged.append(number)
                ended.append(trial.id)

            thread = threading.Thread(target=drive)
            thread.start()
            until(lambda: len(acknowledged) > 20)
            killed = server.get_pid()
            os.kill(killed, signal.SIGKILL)
            until(lambda: not _ready(store))
            with service.client() as probe:
                assert not probe.ready()
            until(lambda: not _exists(killed))  # as long as it is not reaped, a start is refused
            before = len(acknowledged)
            server.ensure_postgres_running()
            thread.join(120)
            assert ended
            assert before < ROUNDS
            assert acknowledged == list(range(ROUNDS))
            assert store.curves.columns(study)[ended[0]] == {
                "round": list(range(ROUNDS)),
                "train_loss": [1 / (1 + number) for number in range(ROUNDS)],
            }


def _ready(store: Store) -> bool:
    try:
        store.ready()
    except Unavailable:
        return False
    return True


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
