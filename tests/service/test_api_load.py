"""Many requests at once, and how large a store becomes."""

import threading
from pathlib import Path

import numpy as np
import pytest

from driftline.wire.curve_codec import encode
from driftline.wire.driver_messages import Report
from driftline.wire.ids import holder
from service.api.rate_limits import Limits
from service.store.store import Store
from tests.waiting import together

from .api_setup import running
from .conftest import SPEC, new_trials


def test_creations_under_one_key_make_one_study(store: Store) -> None:
    """Several clients that send the same creation under one key, all at once."""
    with running(store, limits=Limits(requests_per_second=None)) as service:
        ready = threading.Barrier(20)

        def create() -> list[str]:
            with service.client(patience_s=120, timeout_s=120) as client:
                ready.wait(120)
                return [client.create(SPEC, key="one").id for _ in range(2)]

        made = [study for studies in together([create] * 20) for study in studies]
    assert len(made) == 40
    assert len(set(made)) == len(store.studies.find()) == 1
    assert len(store.audit.find(action="study.submit")) == 1


@pytest.mark.slow
def test_a_hundred_curves_of_1500_rounds_stay_below_10_mb(tmp_path: Path) -> None:
    """Six metrics a round, as a real task reports them: losses and accuracies that carry noise, and counters."""
    trials, rounds = 100, 1500
    store = Store(tmp_path / "large.db")
    study = store.studies.create(SPEC, "f" * 64).id
    store.leases.acquire(study, holder())
    ids = [trial.id for trial in store.trials.create(study, 1, new_trials("fedavg", trials))]
    rng = np.random.default_rng(0)
    number = np.arange(rounds)
    for start in range(0, trials, 10):
        pack = f"p{start}"
        some = ids[start : start + 10]
        store.trials.start_pack(study, 1, pack, some)
        for first in range(0, rounds, 300):
            part = number[first : first + 300]
            reports = {}
            for trial in some:
                loss = np.float32(2.3 / (1 + 0.01 * part) + 0.05 * rng.standard_normal(len(part)))
                columns = {
                    "round": part.tolist(),
                    "train_loss": loss.astype(float).tolist(),
                    "test_loss": (loss + np.float32(0.1)).astype(float).tolist(),
                    "test_accuracy": (rng.integers(0, 10_000, len(part)) / 10_000).tolist(),
                    "update_norm": np.float32(rng.lognormal(size=len(part))).astype(float).tolist(),
                    "bytes_up": (part * 104_000).tolist(),
                    "client_gradients": (part * 500).tolist(),
                }
                reports[trial] = encode(columns)
            last = int(part[-1])
            store.curves.report(study, Report(attempt=1, pack=pack, reports=reports, rounds_done=last))
    curve = store.curves.columns(study, ids[:1])[ids[0]]
    assert len(curve["round"]) == rounds
    store.close()
    size = sum(path.stat().st_size for path in tmp_path.glob("large.db*"))
    assert size < 10e6, f"{size / 1e6:.1f} MB"
