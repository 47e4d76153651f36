"""The oldest allowed versions of libraries whose newest one is tested everywhere else: a study, and the store."""

import csv
import os
import re
import sqlite3
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(600)]
ROOT = Path(__file__).parent.parent
PARTS = {
    "ray": ("ray",),
    "optuna": ("optuna",),
    "mlflow": ("mlflow", "mlflow-skinny", "mlflow-tracing"),
    "psycopg": ("psycopg", "psycopg-binary"),
    "sqlalchemy": ("sqlalchemy",),
}
STUDY = """
name: smoke
task: {name: digits, clients: 20}
methods:
  - name: fedavg
    space: {client_lr: {float: [0.01, 1], log: true}, server_lr: {float: [0.01, 1], log: true}, local_steps: 4}
clients_per_round: 5
batch_size: 20
budget: {trials_per_method: 8, rounds: 12, rungs: auto, confirm: 2, seeds: 2}
"""


def oldest() -> dict[str, str]:
    """Library -> the oldest version that is allowed, if another one is installed."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    bounds = dict(
        re.findall(r"(\w+)(?:\[\w+\])?>=([\d.]+)", "\n".join(line for extra in extras.values() for line in extra))
    )
    found = {library: bounds[library] + ".0" * (2 - bounds[library].count(".")) for library in PARTS}
    return {library: low for library, low in found.items() if low != version(library)}


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment variables of a Python that has the oldest versions."""
    folder = str(tmp_path_factory.mktemp("oldest"))
    asked = [f"{part}=={low}" for library, low in oldest().items() for part in PARTS[library]]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-deps", "--target", folder]
    subprocess.run([*pip, *asked], check=True, timeout=300)
    env = {**os.environ, "PYTHONPATH": folder, "OMP_NUM_THREADS": "1"}
    show = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
    have = subprocess.run([sys.executable, "-c", show, *oldest()], env=env, check=True, capture_output=True, text=True)
    assert have.stdout.split() == list(oldest().values())
    return env


def trials(folder: Path, env: dict[str, str]) -> list[dict[str, str]]:
    """The table of a study that was run there, without what differs from run to run."""
    (folder / "study.yaml").write_text(STUDY, encoding="utf-8")
    driftline = str(Path(sys.executable).with_name("driftline"))
    subprocess.run([driftline, "run", "study.yaml", "--out", "out"], cwd=folder, env=env, check=True, timeout=400)
    with (folder / "out" / "trials.csv").open(encoding="utf-8", newline="") as table:
        return [
            {name: row[name] for name in row if name not in ("trial", "wall_seconds")} for row in csv.DictReader(table)
        ]


def test_a_study_has_the_same_trials(old, tmp_path):
    folders = [tmp_path / name for name in ("old", "new")]
    for folder in folders:
        folder.mkdir()
    assert trials(folders[0], old) == trials(folders[1], dict(os.environ)) != []
    assert "used without shortcuts" in (folders[0] / "out" / "driver.log").read_text(encoding="utf-8")
    with sqlite3.connect(folders[0] / "out" / "mlflow.db") as database:
        assert database.execute("SELECT count(*) FROM runs").fetchone()[0] > 8


def test_the_store_holds_its_contract_on_postgresql(old):
    file = "tests/service/test_store_trials.py"
    subprocess.run([sys.executable, "-m", "pytest", "-q", "-k", "postgresql", file], cwd=ROOT, env=old, check=True)
