"""Real processes, killed one after the other under one study: API, scheduler, driver, workers, PostgreSQL, MLflow.

Once under a study that the engine trains, once under one of a program, whose processes die too. With `make test-chaos
MINUTES=60`, random ones are killed for so long under a study with rungs, over SQLite and then
over PostgreSQL.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from driftline.study.spec import Study
from driftline.wire.records import StudyRecord, TrialRecord
from service.recorder.tracking import KEY, connect
from service.server.home import ADMIN_TOKEN
from service.store.store import Store
from tests.clients import EveryClient
from tests.commands.processes import running
from tests.conftest import TESTS
from tests.driver.store_client import quadratic
from tests.ports import free_port
from tests.postgresql import postgresql_server
from tests.uninterrupted import in_one_go, plain
from tests.waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.slow]
ROUNDS = 2000
TRIALS = 10
ENOUGH = 8
"""Trials that must be left when something is to die: seconds of work on a fast machine too."""

MORE = 8
"""Trials by which the study is extended if it nears its end before every component was killed.

Deaths come by the clock and rounds by the machine's speed: no fixed budget is long enough for a fast machine and short
enough for a slow one.
"""

CALM = {"client_lr": {"float": [1e-3, 1e-2]}, "server_lr": {"float": [1e-3, 1e-2]}, "local_steps": {"int": [1, 5]}}
KILLS = (
    ("worker",),
    ("api",),
    ("postgresql",),
    ("mlflow",),
    ("scheduler",),
    ("driver",),
    ("api", "postgresql"),
    ("scheduler", "driver"),
    ("mlflow", "api", "scheduler"),
)
"""What dies together; each time after the study has come further. 13 SIGKILLs in all."""

KILLS_OF_PROGRAMS = (("program",), ("worker",), ("driver",))
"""What a program's processes die with, or of; the other parts know nothing of it."""

PROGRAM_ROUNDS = 250
PROGRAM = f"""
import time
from driftline import trial

t = trial.current()
x = 1.0
t.report(0, loss=x)
for r in t.rounds():
    time.sleep({1 / 50})
    x -= t["rate"] * x
    t.report(r, loss=x)
"""

TOGETHER = "shared_gradients"
"""A column that tells the packs of two runs apart."""
MINUTES = float(os.environ.get("MINUTES") or 0)
SEED = int(os.environ.get("SEED") or 0)


RUNGS = [ROUNDS // 4, ROUNDS // 2] if MINUTES else []
"""Rounds at which trials are compared, and after which most of them end."""


def study() -> Study:
    """Trials of one method, one a pack, none of which diverges."""
    return quadratic(
        methods=[{"label": "one", "name": "fedavg", "space": CALM}],
        task={"name": "quadratic", "problem": "continuum", "clients": 50},
        budget={"trials_per_method": TRIALS, "rounds": ROUNDS, "seeds": 0, **({"rungs": RUNGS} if RUNGS else {})},
        resources={"gpu": 0, "packs": 1},
        clients_per_round=5,
    )


def study_of_program(home: Path) -> Study:
    """As `study`, of a program, which knows the stack's folder so that its processes are found."""
    env = {"PYTHONPATH": str(TESTS.parent), "STACK": str(home)}
    document = {
        "name": "program",
        "program": {"command": ["python", "-S", "-c", PROGRAM], "metrics": {"loss": "falls"}, "env": env},
        "methods": [{"label": "one", "space": {"rate": {"float": [0.001, 0.01]}}}],
        "budget": {"trials_per_method": TRIALS, "rounds": PROGRAM_ROUNDS, "seeds": 0},
        "sampler": "quasi_random",
        "resources": {"gpu": 0},
    }
    return Study.from_json(document)


class Stack:
    """A service as its processes, each of which can be killed and started again."""

    def __init__(self, folder: Path, database: Any, ports: list[int]) -> None:
        self._folder = folder
        self._database = database
        self._api, self._probes, self._mlflow = ports
        self.home = folder / "home"
        self.home.mkdir()
        (folder / "launcher.yaml").write_text(yaml.safe_dump({"num_cpus": 2}))
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("DRIFTLINE_", "RAY_"))}
        self._environment = {
            **plain,
            "OMP_NUM_THREADS": "1",
            "RAY_AUTH_MODE": "disabled",
            "RAY_worker_niceness": "0",  # see tests/conftest.py
            "DRIFTLINE_HOME": str(self.home),
            "DRIFTLINE_DATABASE_URL": database.get_uri() if database else f"sqlite:///{self.home / 'driftline.db'}",
            "DRIFTLINE_API_URL": self.url,
            "DRIFTLINE_LAUNCHER_CONFIG": str(folder / "launcher.yaml"),
            "DRIFTLINE_MLFLOW_URL": self.mlflow,
            "DRIFTLINE_PROGRAMS": "true",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # as in the chart: a dozen processes for nothing
        }
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.killed = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._api}"

    @property
    def mlflow(self) -> str:
        return f"http://127.0.0.1:{self._mlflow}"

    def start(self, part: str) -> None:
        serve = ["-m", "service.cli", "serve"]
        store = f"sqlite:///{self._folder / 'mlflow.db'}"
        options = {
            "api": [*serve, "--only", "api", "--port", str(self._api)],
            "scheduler": [*serve, "--only", "scheduler", "--port", str(self._probes)],
            "mlflow": [
                *("-m", "mlflow", "server", "--port", str(self._mlflow), "--workers", "1"),
                *("--backend-store-uri", store, "--artifacts-destination", str(self._folder / "artifacts")),
            ],
        }
        with (self._folder / f"{part}.log").open("ab") as log:
            self._running[part] = subprocess.Popen(
                [sys.executable, *options[part]], env=self._environment, stdout=log, stderr=log, start_new_session=True
            )

    def client(self) -> EveryClient:
        return EveryClient(self.url, (self.home / ADMIN_TOKEN).read_text().strip(), patience_s=90.0)

    def kill(self, part: str, study_id: str) -> None:
        """SIGKILL, and a fresh start of what nothing else starts again."""
        if part == "postgresql":
            if self._database is None:
                return
            pid = self._database.get_pid()
            os.kill(pid, signal.SIGKILL)
            until(lambda: not Path(f"/proc/{pid}").exists())
            until(self._database_starts)
        elif part == "driver":
            until(lambda: killed(running(self.home, f"--study={study_id}")), 180)
        elif part == "worker":
            until(lambda: killed(running(self.home, "ray::Worker")), 180)
        elif part == "program":
            until(lambda: killed(running(self.home, "driftline", "STACK")), 180)
        else:
            os.killpg(self._running[part].pid, signal.SIGKILL)
            self._running[part].wait()
            self.start(part)
        self.killed += 1

    def drivers_lost(self) -> int:
        """Drivers lost in a row, as the scheduler counts them."""
        store = Store(self._environment["DRIFTLINE_DATABASE_URL"])
        try:
            return max((study.deaths for study in store.leases.driven()), default=0)
        finally:
            store.close()

    def end(self) -> None:
        """Ends all that is left, drivers with their Ray included."""
        for process in self._running.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in self._running.values():
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        while left := running(self.home, ""):  # one that is about to die may just have started another
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)

    def logs(self) -> str:
        """The end of every log, to be read when something went wrong."""
        files = [*self._folder.glob("*.log"), *self.home.glob("logs/*.log")]
        return "\n".join(f"== {file.name}\n{file.read_text(errors='replace')[-2000:]}" for file in files)

    def _database_starts(self) -> bool:
        try:
            self._database.ensure_postgres_running()
        except Exception:  # it sees that its last run was not ended
            return False
        return True


@pytest.fixture(params=["sqlite", "postgresql"] if MINUTES else ["postgresql"])
def stack(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stack]:
    with postgresql_server() if request.param == "postgresql" else contextlib.nullcontext() as database:
        made = Stack(tmp_path, database, [free_port() for _ in range(3)])
        try:
            yield made
        finally:
            made.end()


def kills(own: bool) -> Iterator[tuple[str, ...]]:
    """What dies together, time after time."""
    if not MINUTES:
        yield from KILLS_OF_PROGRAMS if own else KILLS
        return
    draw, end = random.Random(SEED), time.monotonic() + 60 * MINUTES
    while time.monotonic() < end:
        yield draw.choice((*KILLS, *KILLS_OF_PROGRAMS) if own else KILLS)


@pytest.mark.timeout(1800 + 300 * MINUTES)
@pytest.mark.parametrize("own", [False, True], ids=["engine", "program"])
def test_processes_are_killed_under_one_study(stack: Stack, own: bool) -> None:
    for part in ("mlflow", "api", "scheduler"):
        stack.start(part)
    until(lambda: (stack.home / ADMIN_TOKEN).exists(), 120)
    with stack.client() as client:
        spec = study_of_program(stack.home) if own else study()
        study_id = client.create(spec.to_json()).id
        try:
            for parts in kills(own):
                advance(client, study_id)
                for part in parts:
                    if part in ("worker", "program"):  # a trial that loses a third one before a checkpoint is given up
                        until(lambda: all(trial.deaths < 2 for trial in at_work(client, study_id)), 300)
                    if part == "driver":  # a study that loses a third one before a trial or a checkpoint fails
                        until(lambda: stack.drivers_lost() < 2, 300)
                    stack.kill(part, study_id)
            until(lambda: client.study(study_id).finished, 600)
            record = client.study(study_id)
            assert record.state == "SUCCEEDED", record.reason
            assert stack.killed == sum(map(len, KILLS_OF_PROGRAMS if own else KILLS)) or MINUTES
            trials = client.trials(study_id)
            assert len(trials) == asked(record)
            curves = client.curves(study_id)
            for trial in trials:
                assert (trial.state, trial.rounds_done) in ends(own), trial
                assert curves[trial.id]["round"] == list(range(trial.rounds_done + 1))
            for number in range(len(trials)) if MINUTES else (0, len(trials) - 1):
                rounds = trials[number].rounds_done + 1
                alone = {name: column[:rounds] for name, column in undisturbed(number, trials[number], own).items()}
                assert plain(curves[trials[number].id], TOGETHER) == alone, number
            until(lambda: shown(stack, study_id, record.version), 120)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{stack.logs()}") from error
    names = runs(stack.mlflow)
    assert sorted(names) == sorted(set(names))
    assert {trial.id for trial in trials} <= set(names)
    print(f"{stack.killed} processes were killed; {len(trials)} trials")


def advance(client: EveryClient, study_id: str) -> None:
    """Returns when the study has trained more rounds; sees to it that some are left."""
    record = client.study(study_id)
    ended = sum(record.progress["one"].search.get(state, 0) for state in ("COMPLETE", "STOPPED"))
    if asked(record) - ended < ENOUGH:
        client.extend(study_id, trials_per_method=asked(record) + MORE)

    def rounds() -> int:
        found = client.study(study_id)
        assert found.state != "FAILED", found.reason
        return found.progress["one"].rounds_done

    before = rounds()
    until(lambda: rounds() > before, 180)


def at_work(client: EveryClient, study_id: str) -> list[TrialRecord]:
    """Trials that a worker trains now, or that wait for one after a death."""
    return [trial for trial in client.trials(study_id) if trial.state in ("RUNNING", "WAITING")]


def ends(own: bool) -> set[tuple[str, int]]:
    """States in which a trial may end, and its rounds then."""
    if own:
        return {("COMPLETE", PROGRAM_ROUNDS)}
    return {("COMPLETE", ROUNDS), *(("STOPPED", rung) for rung in RUNGS)}


def asked(record: StudyRecord) -> int:
    """How many trials the study has, those included that are not there yet."""
    return int(record.spec["budget"]["trials_per_method"])


def undisturbed(number: int, trial: TrialRecord, own: bool) -> dict[str, Any]:
    """The curve of a trial, trained in this process in one go."""
    if own:
        losses = [1.0]
        for _ in range(PROGRAM_ROUNDS):
            losses.append(losses[-1] - trial.hyperparameters["rate"] * losses[-1])
        return {"round": list(range(len(losses))), "loss": losses, "diverged": [False] * len(losses)}
    return plain(in_one_go(study(), "one", number)[0], TOGETHER)


def shown(stack: Stack, study_id: str, version: int) -> bool:
    """Whether the recorder has brought MLflow to the end of the study."""
    store = Store(stack._environment["DRIFTLINE_DATABASE_URL"])
    try:
        return any(entry.version == version for entry in store.recorder_state.read(study_id, "ended"))
    finally:
        store.close()


def runs(uri: str) -> list[str]:
    """Keys of the runs that MLflow shows."""
    client = connect(uri)
    experiments = [found.experiment_id for found in client.search_experiments() if "driftline.study" in found.tags]
    return [run.data.tags[KEY] for run in client.search_runs(experiments, max_results=1000)]


def killed(pids: list[int]) -> bool:
    """Kills the first of these processes; False when there is none, or it has ended by itself."""
    try:
        os.kill(pids[0], signal.SIGKILL)
    except (IndexError, ProcessLookupError):
        return False
    return True
