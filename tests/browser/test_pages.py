"""What people see of a study in the MLflow UI, in a real browser."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from tests.ports import free_port
from tests.waiting import until

from .chromium import CHROMIUM, Chromium

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.ray,
    pytest.mark.timeout(900),  # the first test trains the study, too
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
]

STUDY = {
    "name": "pages",
    "task": {"name": "digits", "clients": 5, "partition": "iid"},
    "methods": [
        {
            "name": "fedavg",
            "space": {"client_lr": {"float": [0.05, 0.5], "log": True}, "server_lr": 0.2, "local_steps": 5},
        },
        {"name": "fedsgd", "space": {"server_lr": {"float": [0.1, 1.0], "log": True}}},
    ],
    "sampler": "quasi_random",
    "objective": {"quality": "test_loss", "cost": "rounds"},
    "budget": {"trials_per_method": 2, "rounds": 20, "seeds": 2, "confirm": 1},
}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished study."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "study.yaml").write_text(yaml.safe_dump(STUDY))
    subprocess.run(
        [sys.executable, "-m", "service.cli", "run", str(folder / "study.yaml"), "--out", str(folder / "out")],
        check=True,
        timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return folder / "out"


@pytest.fixture
def page(out: Path, tmp_path: Path) -> Iterator[str]:
    """Address of the study's page in the MLflow UI, served by `driftline ui`."""
    port = free_port()
    log = tmp_path / "ui.log"
    with log.open("w") as stream:
        server = subprocess.Popen(
            [sys.executable, "-m", "service.cli", "ui", str(out), "--port", str(port), "--no-browser", "--json"],
            stdout=stream,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    try:
        until(lambda: _up(port) or server.poll() is not None, why=log.read_text)
        told = json.loads(next(line for line in log.read_text().splitlines() if line.startswith("{")))
        assert told["tracking_uri"] == f"sqlite:///{(out / 'mlflow.db').resolve()}"
        assert told["url"].startswith(f"http://127.0.0.1:{port}/?token=")
        yield told["url"]
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)
    assert not _up(port), "the server must be gone when the command has ended"


def _up(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", timeout=2).status_code == 401  # without this start's token
    except httpx.TransportError:
        return False


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chromium]:
    with Chromium(tmp_path / "profile", 1500, 1000) as started:
        yield started


def test_mlflow_opens_on_the_trade_off(page: str, browser: Chromium) -> None:
    browser.send("Page.navigate", url=page)
    for word in ("fedavg", "fedsgd", "frontier", "Trade-off"):
        browser.wait(f"document.documentElement.outerHTML.includes('{word}')")
    assert "s00001" not in browser.run("document.documentElement.outerHTML")  # trials have an experiment of their own
