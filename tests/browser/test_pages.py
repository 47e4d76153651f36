"""What people see, in a real browser: frontier.html without a network, and the study's page in the MLflow UI."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import yaml

from tests.ports import free_port

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

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
    "budget": {"trials_per_method": 4, "rounds": 20, "seeds": 3, "confirm": 2},
}


def dom(url: str, profile: Path, wait_ms: int, *switches: str) -> str:
    """The page as it stands in the browser after `wait_ms` of its own time."""
    assert CHROMIUM is not None
    done = subprocess.run(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            "--window-size=1500,1000", f"--user-data-dir={profile}", f"--virtual-time-budget={wait_ms}",
            *switches, "--dump-dom", url,
        ],
        capture_output=True,
        text=True,
        timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


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
        end = time.monotonic() + 120
        while not _up(port):
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.5)
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
        with urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
            return False  # without the token of this start it must refuse
    except HTTPError as error:
        return error.code == 401
    except OSError:
        return False


def test_frontier_page_works_without_a_network(out: Path, tmp_path: Path) -> None:
    text = dom((out / "frontier.html").as_uri(), tmp_path / "profile", 20_000, "--host-resolver-rules=MAP * ~NOTFOUND")
    for chart in ("frontier", "speed", "learning", "parallel"):
        drawn = text.partition(f'id="{chart}"')[2].partition("</div>")[0]
        assert '<path class="curve' in drawn or '<path class="marks' in drawn, chart
    assert "communication rounds" in text
    advice = text.partition('id="advice"')[2].partition("</p>")[0]
    assert re.search(r"For up to 20 rounds: (fedavg|fedsgd), configuration \d+, stopped at round \d+; expect", advice)
    assert '"server_lr": ' in text.partition('id="copied-text"')[2].partition("</pre>")[0]  # a trial, to be run again


def test_mlflow_opens_on_the_trade_off(page: str, tmp_path: Path) -> None:
    text = dom(page, tmp_path / "profile", 90_000)
    for word in ("fedavg", "fedsgd", "frontier", "Trade-off"):
        assert word in text
    assert "s00003" not in text  # trials are in an experiment of their own
