"""A store and an MLflow database for each test; MLflow's migrations run once."""

import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.recorder import study_recorder
from service.recorder.tracking import connect
from service.store.store import Store
from tests.new_stores import empty_database


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow database without experiments of ours, made by MLflow alone."""
    file = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as environment:
        warnings.simplefilter("ignore")  # MLflow's own
        environment.setenv("DRIFTLINE_CACHE_GIB", "0")  # its migrations, not their kept end
        connect(f"sqlite:///{file}").search_experiments()
    return file


@pytest.fixture
def uri(tmp_path: Path, migrated: Path) -> str:
    shutil.copy(migrated, tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path / 'mlflow.db'}"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(empty_database(tmp_path / "driftline.db"))
    yield made
    made.close()


@pytest.fixture
def client(uri: str) -> Any:
    return connect(uri)


@pytest.fixture
def one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pictures, which take their time."""
    monkeypatch.setattr(study_recorder, "FILES", ("frontier.json",))


@pytest.fixture(autouse=True)
def refreshed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels are written as soon as they are due."""
    monkeypatch.setattr(study_recorder, "REFRESH_S", 0.0)
