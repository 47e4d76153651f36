"""One store a test, and one Ray for all tests that need it."""

import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.store.store import Store
from tests.driver.stand_ins import StoreClient


@pytest.fixture
def client(tmp_path: Path) -> Iterator[StoreClient]:
    store = Store(tmp_path / "driftline.db")
    yield StoreClient(store)
    store.close()


@pytest.fixture(scope="package")
def ray_started() -> Iterator[None]:
    """A Ray of our own for all tests of this folder, with two CPUs; gone, with its settings, after the last of them."""
    ours = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_CHDIR_TO_TRIAL_DIR": "0"}
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    import ray

    folder = tempfile.mkdtemp(prefix="dlt", dir="/tmp")
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100 * 1024 * 1024,
        _temp_dir=folder,
    )
    yield
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@pytest.fixture
def stop() -> threading.Event:
    return threading.Event()
