"""The parts of a service, each as a process of its own or all in one; training is done in the driver, without Ray."""

import contextlib
import itertools
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from driftline.errors import Conflict
from driftline.study.program import SERVED
from driftline.study.spec import Study
from service.api.allowed_programs import AllowedPrograms
from service.api.app import ApiOptions, create_app
from service.api.auth.tokens import Access, Tokens
from service.api.event_streams import StreamPace
from service.api.http_server import Server
from service.child_environment import SECRET
from service.driver import command_line as driver_main
from service.driver import lifecycle as driver_run
from service.driver.lease import Watch
from service.driver.programs.program_pack import ProgramPack
from service.driver.ray import cluster, tune
from service.driver.ray.capacity import Node
from service.driver.ray.worker import Worker
from service.embedded import embedded_run
from service.embedded.embedded_run import EmbeddedRun
from service.embedded.recorder_process import record
from service.launchers.local import launcher as local
from service.recorder import study_recorder, trial_runs
from service.recorder.all_studies import StudiesRecorder
from service.scheduler.loop import Scheduler
from service.store.store import Store
from tests.clients import EveryClient
from tests.conftest import TESTS
from tests.driver.store_client import quadratic
from tests.faults import fuse as fuses
from tests.faults.fuse import Fuse

CHUNK = 8
"""Rounds that a worker trains between two reports, and so between two checkpoints; at most."""

ROUNDS = 24
KEY = "the-study"
RETRY_KEY = "the-retry"
_TOKEN = "owner"
_PATIENCE_S = 20.0


_EARLY = {"trials_per_method": 4, "rungs": {"at": [CHUNK, 2 * CHUNK], "rule": "halving"}}
_DECAY = {"window": {"int": [1, 5]}, "cooldown": {"int": [5, 11]}, "min_delta": 100.0}
_RATES = {"client_lr": {"float": [0.01, 0.1], "log": True}, "server_lr": {"float": [0.01, 1.0], "log": True}}
_BRANCHING = {"name": "fedavg", "space": {**_RATES, "local_steps": 2}, "schedule": {"name": "plateau", "space": _DECAY}}
_PACE = CHUNK // 2  # a checkpoint is stored a report after it was asked for
_PROGRAM = f"""
import json, os, time
from driftline import trial

t = trial.current()

def save():
    with t.checkpoint() as folder:
        json.dump(x, open(folder / "x", "w"))

x = json.load(open(t.resume / "x")) if t.resume else 1.0
if t.resume is None:
    t.report(0, loss=x * x)
for r in t.rounds():
    with open(os.environ["WORK"], "a") as log:
        log.write(f"{{t.label}} {{t.seed}} {{t['rate']}}\\t{{r - 1}}\\t{{r}}\\n")
    x -= t["rate"] * x + t.seed * 1e-6
    t.report(r, loss=x * x)
    while r % {_PACE} == 0 and r < t.last and not (t.checkpoint_due or t.stopping):
        time.sleep(0.005)
    if t.checkpoint_due:
        save()
"""
"""Trains a number, writes down its work, and waits after every `_PACE` rounds until a checkpoint is asked for."""

STUDIES: Mapping[str, Mapping[str, Any]] = {
    "rungs": {"budget": _EARLY},
    "extrapolated": {"budget": {**_EARLY, "rungs": {**_EARLY["rungs"], "rule": "extrapolation"}}},
    "branches": {
        "budget": {"trials_per_method": 4, "branches": 2, "confirm": 2},
        "methods": [{**_BRANCHING, "label": "short"}, {**_BRANCHING, "label": "long"}],
    },
    "program": {
        "budget": _EARLY,
        "program": {"command": ["python", "-S", "-c", _PROGRAM], "metrics": {"loss": "falls"}, "checkpoints": True},
        "methods": [{"label": label, "space": {"rate": {"float": [0.1, 0.9]}}} for label in ("one", "other")],
    },
}
"""The scenarios with a study of their own, and how it differs from the others'.

Trials stop early at rungs; or two share what they have in common until the rates of one decay, in rounds 7 to 14. At
the checkpoint of round 16, some of these have the same rates again, but other models.
"""


def study(scenario: str = "plain") -> Study:
    """Two labels; configurations by a quasi-random sequence, confirmed by their results; packs of at most two trials.

    Args:
        scenario: In those of `STUDIES`, each label has four trials instead of two.
    """
    own = dict(STUDIES.get(scenario, {}))
    budget = {"trials_per_method": 2, "rounds": ROUNDS, "seeds": 1, "confirm": 1, **own.pop("budget", {})}
    if "program" not in own:
        return quadratic(budget=budget, resources={"gpu": 0, "packs": 2}, **own)
    own["program"] = {**own["program"], "env": {"PYTHONPATH": str(TESTS.parent)}, "folder": SERVED}
    return Study.from_json({"name": scenario, "budget": budget, "sampler": "quasi_random", **own})


@dataclass(frozen=True)
class Place:
    """Where a service keeps everything.

    Attributes:
        folder: Its folder.
        port: The API's port on this machine.
        hurried: Whether a driver that hangs is replaced after seconds.
    """

    folder: Path
    port: int
    hurried: bool = False

    @property
    def database(self) -> Path:
        return self.folder / "driftline.db"

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def store(self) -> Store:
        return Store(self.database, lease_seconds=8.0 if self.hurried else 30.0)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def mlflow(self) -> str:
        return f"sqlite:///{self.folder / 'mlflow.db'}"

    def client(self) -> EveryClient:
        return EveryClient(self.url, _TOKEN, patience_s=_PATIENCE_S)


def tokens() -> Tokens:
    """The same in every process."""
    return Tokens({_TOKEN: Access()}, b"the secret of all processes")


def without_pictures() -> None:
    """Results as JSON and CSV only: drawing takes longer than all the rest."""
    for module in (study_recorder, embedded_run):
        module.FILES = ("frontier.json", "trials.csv")  # type: ignore[attr-defined]


def api(place: Place, fuse: Fuse) -> None:
    """The API, until it is killed."""
    fuses.commits(fuse)
    app = create_app(
        place.store(), tokens(), ApiOptions(programs=AllowedPrograms(enabled=True), pace=StreamPace(poll_s=0.1))
    )
    with Server(fuses.answers(fuse, app), loopback=True, port=place.port):
        while True:
            time.sleep(60)


def scheduler(place: Place, fuse: Fuse, start: Callable[..., Any]) -> None:
    """The scheduler with the launcher of local processes, until it is killed.

    Args:
        place: Where the service is.
        fuse: Where it dies.
        start: Stands in for `subprocess.Popen`: starts a driver that outlives the scheduler.
    """
    fuses.commits(fuse)
    local.subprocess.Popen = start  # type: ignore[assignment,misc]
    fuse.around(local.LocalLauncher, "start", lambda *_: "launcher start")
    fuse.around(local.LocalLauncher, "stop", lambda *_, **__: "launcher stop")
    launcher = local.LocalLauncher(place.url, str(place.checkpoints), place.folder / "logs")
    answers = EveryClient(place.url).ready
    hurry = {"back_seconds": 4.0, "start_seconds": 20.0} if place.hurried else {}
    loop = Scheduler(place.store(), launcher, tokens().driver, answers=answers, **hurry)
    while True:
        loop.step()
        time.sleep(0.1)


def recorder(place: Place, fuse: Fuse) -> None:
    """The recorder with MLflow on SQLite, until it is killed."""
    fuses.commits(fuse)
    fuses.mlflow(fuse)
    trial_runs.LIVE_AFTER_S = study_recorder.REFRESH_S = 0.1
    recording = StudiesRecorder(Store(place.database), place.mlflow, str(place.folder / "artifacts"))
    while True:
        recording.sync()
        time.sleep(0.2)


def driver(place: Place, fuse: Fuse, arguments: list[str], token: str, chunk: int = CHUNK) -> None:
    """A driver as the launcher starts it: its own command line, token and connection."""
    global CHUNK
    CHUNK = chunk
    fuses.files(fuse)
    fuses.requests(fuse)
    without_ray(fuse, place.folder)
    os.environ["DRIFTLINE_TOKEN"] = token
    os.environ[f"{SECRET}WORK"] = str(place.folder / "work")  # for the program, whose document is the same everywhere
    driver_main.PATIENCE_S = _PATIENCE_S
    driver_run.HEARTBEAT_S = 0.2
    raise SystemExit(driver_main.main(arguments))


def owner(place: Place, fuse: Fuse, scenario: str) -> None:
    """Who submits the study, and follows its events to the end.

    May pause it when it has begun, and go on ("paused"); or retry its failed trials when it has ended ("retried").
    """
    pause, retry = scenario == "paused", scenario == "retried"
    fuses.requests(fuse)
    with place.client() as client:
        study_id = client.create(study(scenario).to_json(), key=KEY).id
        if pause and not (place.folder / "paused").exists():
            while not any(label.rounds_done for label in client.study(study_id).progress.values()):
                time.sleep(0.01)
            with contextlib.suppress(Conflict):  # it has finished meanwhile
                client.pause(study_id)
        while pause and (record := client.study(study_id)).state in ("PAUSING", "PAUSED"):
            if record.state == "PAUSED":
                (place.folder / "paused").touch()
                client.resume(study_id)
            time.sleep(0.01)
        if retry and not (place.folder / "retried").exists():
            for _ in client.events(study_id):
                pass
            with contextlib.suppress(Conflict):  # a driver that died has kept the repeats from failing
                client.retry(study_id, key=RETRY_KEY)
            (place.folder / "retried").touch()
        seen = [event.id for event in client.events(study_id)]
        if seen != sorted(set(seen)):
            raise AssertionError(f"events must come once each, in order; got {seen}")


class RecorderInThread:
    """Puts the place of `RecorderProcess`, so that a fuse also ends the process within MLflow's calls."""

    def __init__(self, folder: Path, study_id: str) -> None:
        self._stop, self._finishing = threading.Event(), threading.Event()
        events = (self._stop, self._finishing)
        self._thread = threading.Thread(target=record, args=(folder, study_id, *events), daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def finish(self) -> bool:
        self._finishing.set()
        self.close(None)
        return True

    def close(self, wait_s: float | None) -> None:
        self._stop.set()
        self._thread.join(wait_s)


def embedded(place: Place, fuse: Fuse) -> None:
    """`driftline run`: all parts in one process, over one folder."""
    for watch in (fuses.commits, fuses.mlflow, fuses.files, fuses.requests):
        watch(fuse)
    without_ray(fuse, place.folder)
    embedded_run.RecorderProcess = RecorderInThread  # type: ignore[assignment,misc]
    out = place.folder / "out"
    run = EmbeddedRun(out, study())
    if not (out / "mlflow.db").exists():  # MLflow would take seconds to make it
        shutil.copy(place.folder / "mlflow.db", out / "new.db")
        (out / "new.db").rename(out / "mlflow.db")
    run.start()
    while not run.record().finished:
        time.sleep(0.02)
    run.finish()
    run.close()
    (place.folder / "modules").write_text("\n".join(list(sys.modules)))


def without_ray(fuse: Fuse, folder: Path) -> None:
    """Puts the place of Ray: packs are trained here, in turn, by the real worker and the real searcher."""

    @contextlib.contextmanager
    def connect(*_: Any, **__: Any) -> Iterator[Any]:
        scratch = Path(tempfile.mkdtemp(dir=folder))
        yield cluster.Cluster(scratch, own=True, _seen=(float("inf"), [Node(2)]))
        shutil.rmtree(scratch)

    def fit(search: Any, watch: Any, _: str) -> None:
        _fit(tune.PackSearcher(search, watch), watch, fuse, folder)

    cluster.connect = connect  # type: ignore[assignment]
    tune.fit = fit


def _fit(packs: tune.PackSearcher, watch: Watch, fuse: Fuse, folder: Path) -> None:
    """What Ray Tune does with a searcher: ask for packs as long as there is room, step them, pass on what they say."""
    halt = tune.Halt(watch)
    running: dict[str, Worker] = {}
    finished = False
    for number in itertools.count():
        if halt.stop_all():
            return
        if not finished and len(running) < 2:
            config = packs.suggest(f"t{number}")
            finished = config == packs.FINISHED
            if isinstance(config, Mapping):
                running[f"t{number}"] = _worker(dict(config), folder)
                continue
        if not running:
            if finished:
                return
            time.sleep(0.01)
            continue
        trial = next(iter(running))
        worker = running.pop(trial)
        if fuse.due("worker dies <") or (worker.job.document["seed"] and fuse.due("repeat dies <")):
            worker.cleanup()  # as a program's guard does
            packs.on_trial_complete(trial, error=True)
            continue
        if watch.why:
            worker.request_stop()
        result = worker.step()
        running_program = isinstance(worker.pack, ProgramPack) and worker.pack.running
        if running_program and fuse.due("program dies >"):
            worker.pack._process._program.kill()
        if fuse.due("worker dies >"):
            worker.cleanup()
            packs.on_trial_complete(trial, error=True)
        elif result["done"]:
            packs.on_trial_complete(trial, result)
        else:
            packs.on_trial_result(trial, result)
            running[trial] = worker


def _worker(config: dict[str, Any], folder: Path) -> Worker:
    """The real worker, outside Ray, with steps of `CHUNK` rounds and a checkpoint at each; writes down its work."""
    worker: Any = Worker.__new__(Worker)
    worker.take(config)
    worker.job = replace(worker.job, checkpoint_seconds=0.0)

    def train_for(_: float) -> list[dict[str, Any]]:
        pack = worker.pack
        if isinstance(pack, ProgramPack):
            return _program_lines(pack)
        trials = worker.job.prefix.rpartition("/")[2]  # by what they are: labels may share configurations
        until = min(pack.round + CHUNK, worker.job.until or pack.rounds)
        with (folder / "work").open("a") as log:
            log.write(f"{trials}\t{pack.round}\t{until}\n")
        lines: list[dict[str, Any]] = pack.advance(max_rounds=until - pack.round)
        return lines

    worker.train_for = train_for
    made: Worker = worker
    return made


def _program_lines(pack: ProgramPack) -> list[dict[str, Any]]:
    """What a program reports until it waits for a checkpoint to be asked for, or ends."""
    lines: list[dict[str, Any]] = []
    while not lines or (pack.running and lines[-1]["round"] % _PACE):
        lines += pack.advance(seconds=0.01)
    return lines


class Elsewhere:
    """A driver that another process has started: `Popen` as far as the launcher asks."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """-9 once it has gone: how is not known here."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            self.returncode = -9
        return self.returncode
