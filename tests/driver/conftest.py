"""One store a test, and one Ray for all tests that need it."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.driver.ray import lean_ray
from service.driver.ray.environment import environment
from service.store.store import Store
from tests.driver import small_ray
from tests.driver.shell_programs import started as started
from tests.driver.store_client import StoreClient
from tests.new_stores import empty_database


@pytest.fixture
def client(tmp_path: Path) -> Iterator[StoreClient]:
    store = Store(empty_database(tmp_path / "driftline.db"))
    yield StoreClient(store)
    store.close()


@pytest.fixture(scope="package")
def ray_started() -> Iterator[None]:
    """A Ray of our own for all tests of this folder, with two CPUs; gone, with its settings, after the last of them."""
    ours = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_CHDIR_TO_TRIAL_DIR": "0"}
    with environment(ours):
        import ray

        folder = tempfile.mkdtemp(prefix="dlt", dir="/tmp")
        with lean_ray.fewer_processes():
            small_ray.start(folder, 2)
        yield
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
