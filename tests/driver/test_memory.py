"""What a driver keeps of a trial that has ended: no curve, and a kilobyte or two beside what its sampler needs."""

import gc
import tracemalloc
from base64 import b64encode
from pathlib import Path

from driftline.wire.curve_codec import encode
from service.driver.search.search import Search
from tests.driver.store_client import StoreClient, quadratic

ROUNDS, FIRST, LAST = 200, 48, 144
SPACE = {"client_lr": {"float": [1e-3, 0.5], "log": True}, "server_lr": {"float": [1e-3, 1.0], "log": True}}


def curve(number: int) -> list[str]:
    """What a worker reports of one trial: a curve that falls to an end of its own."""
    rounds = list(range(ROUNDS + 1))
    losses = [0.01 * number + 3.0 * 0.9**done for done in rounds]
    columns = {"round": rounds, "loss": losses, "bytes_up": [16.0 * done for done in rounds]}
    return [b64encode(block).decode() for block in encode(columns)]


def test_a_driver_keeps_little_of_a_trial_that_has_ended(client: StoreClient, tmp_path: Path) -> None:
    entry = {"name": "fedavg", "space": {**SPACE, "local_steps": {"choice": [1, 2]}}}
    budget = {"trials_per_method": LAST, "rounds": ROUNDS, "seeds": 0}
    study = quadratic(methods=[entry], budget=budget, sampler="tpe")
    study_id = client.submit(study)
    attempt = client.acquire(study_id, "stand-in/0").attempt
    search = Search(client, study_id, study, attempt, folder=str(tmp_path), slots=lambda: 2)  # type: ignore[arg-type]  # a stand-in
    search.load()
    facts = {"pid": 1, "host": "h", "done": True, "stopped": False, "error": None, "out_of_memory": False}
    facts |= {"remark": None, "checkpoint": None, "plan": {"oracle": "x"}, "rounds_done": ROUNDS}
    held: dict[int, int] = {}
    tracemalloc.start()
    try:
        while (job := search.next_job()) is not None:
            reports = [curve(number) for number in range(len(job.document["members"]))]
            search.report({**facts, "pack": job.pack, "reports": reports})
            client.calls.clear()
            client.finished.clear()
            ended = sum(trial.finished for trial in search.table.trials.values())
            if ended == LAST or (ended >= FIRST and not held):
                gc.collect()
                held[ended] = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    early, last = held
    assert (held[last] - held[early]) / (last - early) < 6500
