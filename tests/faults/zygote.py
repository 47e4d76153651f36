"""Runs studies that die on the way: one JSON question a line in, one JSON answer a line out.

All that a service needs is imported once; each study then costs a few forks. ``python -m tests.faults.zygote``.
"""

import contextlib
import ctypes
import importlib
import json
import os
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from mlflow.store.db import utils as db

from service.garbage import collect_rarely, loaded
from tests.faults import components, verdict
from tests.faults.components import Place
from tests.faults.fuse import Fuse, Kill
from tests.ports import free_port

LIMIT_S = 180.0
_SET_CHILD_SUBREAPER, _SET_PDEATHSIG = 36, 1
_LIBC = ctypes.CDLL(None)
_ALWAYS = ("api", "scheduler", "recorder")


class Supervisor:
    """Keeps the parts of one service running until its study has ended; starts again what was killed.

    Args:
        question: folder; scenario ("plain", "paused", "retried", "rungs", "extrapolated", "branches", "program",
            "deaths", "embedded", or "hung": as plain, but drivers hang instead of dying); kills; reference: file of an
            undisturbed run's facts, or None.
    """

    def __init__(self, question: dict[str, Any]) -> None:
        self._folder = Path(question["folder"])
        self._scenario = question["scenario"]
        self._kills: list[Kill] = [(part, site, count) for part, site, count in question["kills"]]
        self._asked = len(self._kills)
        if self._scenario == "retried":  # all repeats fail; the owner retries them
            self._kills += [("driver", "repeat dies <", count) for count in range(1, 7)]
        self._reference = question["reference"]
        self._place = Place(self._folder, free_port(), hurried=self._scenario == "hung")
        self._parts: dict[int, str] = {}
        self._wishes: dict[int, socket.socket] = {}  # of each scheduler: drivers that it wants started
        self._problems: list[str] = []

    def run(self) -> dict[str, Any]:
        """The answer: what is wrong, which kills happened, seconds."""
        began = time.monotonic()
        parts = ("embedded",) if self._scenario == "embedded" else (*_ALWAYS, "owner")
        for part in parts:
            self._start(part)
        while set(self._parts.values()) & {"embedded", "owner", "auditor"}:
            self._serve_wishes()
            self._reap()
            if self._problems:
                break
            if time.monotonic() - began > LIMIT_S:
                self._problems.append(f"it has not ended within {LIMIT_S:.0f} s; running: {self._parts}")
                break
        for pid in self._parts:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        asked = enumerate(self._kills[: self._asked])
        killed = [kill for index, kill in asked if (self._folder / f"killed.{index}").exists()]
        answer = self._folder / "facts.problems"
        if answer.exists():
            self._problems += json.loads(answer.read_text())
        elif not self._problems:
            self._problems.append("nobody has judged it")
        return {"problems": self._problems, "killed": killed, "seconds": round(time.monotonic() - began, 2)}

    def _start(self, part: str) -> None:
        place, kills = self._place, self._kills

        def child() -> None:
            fuse = Fuse(part, self._folder, kills)
            match part:
                case "api":
                    components.api(place, fuse)
                case "scheduler":
                    components.scheduler(place, fuse, wish)
                case "recorder":
                    components.recorder(place, fuse)
                case "owner":
                    components.owner(place, fuse, self._scenario)
                case "embedded":
                    components.embedded(place, fuse)
                case "auditor":
                    self._audit()

        ours, theirs = socket.socketpair()

        def wish(
            command: list[str], *, env: dict[str, str], pass_fds: tuple[int, ...] = (), **_: Any
        ) -> components.Elsewhere:
            arguments = command[command.index("service.driver") + 1 :]
            socket.send_fds(theirs, [json.dumps([arguments, env["DRIFTLINE_TOKEN"]]).encode()], list(pass_fds))
            return components.Elsewhere(int(theirs.recv(100)))

        ours.setblocking(False)
        pid = self._fork(part, child)
        self._wishes[pid] = ours
        theirs.close()

    def _fork(self, part: str, child: Callable[[], None]) -> int:
        pid = os.fork()
        if pid:
            self._parts[pid] = part
            return pid
        code = 1
        try:
            _LIBC.prctl(_SET_PDEATHSIG, signal.SIGKILL)
            log = os.open(self._folder / f"{part}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            child()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def _serve_wishes(self) -> None:
        for pid, wishes in list(self._wishes.items()):
            try:
                line, held, *_ = socket.recv_fds(wishes, 100_000, 4)
            except BlockingIOError:
                continue
            except OSError:
                line, held = b"", []
            if not line:
                wishes.close()
                del self._wishes[pid]
                continue
            arguments, token = json.loads(line)
            chunk = 4 if self._scenario == "deaths" else components.CHUNK
            driver = self._fork(
                "driver",
                lambda arguments=arguments, token=token, chunk=chunk: components.driver(  # type: ignore[misc]
                    self._place, self._drivers_fuse(), arguments, token, chunk
                ),
            )
            for number in held:  # the launcher's lock is the driver's now
                os.close(number)
            with contextlib.suppress(OSError):  # the scheduler has died since
                wishes.sendall(str(driver).encode())

    def _drivers_fuse(self) -> Fuse:
        how = signal.SIGSTOP if self._scenario == "hung" else signal.SIGKILL
        return Fuse("driver", self._folder, self._kills, how)

    def _reap(self) -> None:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            time.sleep(0.01)
            return
        if pid not in self._parts:  # of a driver that was killed: the guard of a program, or what it has ended
            return
        part, code = self._parts.pop(pid), os.waitstatus_to_exitcode(status)
        if part == "driver":
            return
        if code not in (0, -signal.SIGKILL):
            log = (self._folder / f"{part}.log").read_text()
            self._problems.append(f"{part} ended with {code}: {log[-1500:]}")
        if part in _ALWAYS or code == -signal.SIGKILL:
            self._start(part)
        elif part in ("owner", "embedded"):
            self._start("auditor")

    def _audit(self) -> None:
        out = self._folder / "out" if self._scenario == "embedded" else self._folder
        found = verdict.facts(self._folder, out / "driftline.db", f"sqlite:///{out / 'mlflow.db'}")
        (self._folder / "facts").write_text(json.dumps(found))
        found = json.loads((self._folder / "facts").read_text())
        reference = json.loads(Path(self._reference).read_text()) if self._reference else None
        faults = len(list(self._folder.glob("killed.*")))
        (self._folder / "facts.problems").write_text(json.dumps(verdict.problems(found, reference, faults)))


def answer(question: dict[str, Any]) -> None:
    """Runs one study under a supervisor of its own, and says how it went."""
    folder = Path(question["folder"])
    folder.mkdir(parents=True)
    shutil.copy(question["migrated"], folder / "mlflow.db")
    pid = os.fork()
    if pid:
        _running[pid] = question
        return
    try:
        _LIBC.prctl(_SET_PDEATHSIG, signal.SIGKILL)
        _LIBC.prctl(_SET_CHILD_SUBREAPER, 1)
        (folder / "answer").write_text(json.dumps(Supervisor(question).run()))
    except BaseException:
        (folder / "answer").write_text(json.dumps({"problems": [traceback.format_exc()], "killed": [], "seconds": 0}))
    finally:
        os._exit(0)


_running: dict[int, dict[str, Any]] = {}


def _collect() -> None:
    pid, _ = os.wait()
    question = _running.pop(pid)
    said = json.loads((Path(question["folder"]) / "answer").read_text())
    _import_what_it_used(Path(question["folder"]) / "modules")
    print(json.dumps({**question, **said}), flush=True)


def _import_what_it_used(modules: Path) -> None:
    """Imports here what a study had to import, so that no later one has to."""
    if modules.exists():
        for name in modules.read_text().splitlines():
            if name not in sys.modules:
                with contextlib.suppress(Exception):
                    importlib.import_module(name)
        modules.unlink()
        loaded()


def main() -> None:
    """Answers questions until there are no more; as many at once as the first argument says."""
    torch.set_num_threads(1)
    collect_rarely()
    components.without_pictures()
    importlib.import_module("mlflow.store.tracking.sqlalchemy_store")
    newest = db._get_latest_schema_revision()  # MLflow reads all its migrations for it in every process
    db._get_latest_schema_revision = lambda: newest
    at_once = int(sys.argv[1])
    loaded()
    for line in iter(sys.stdin.readline, ""):
        if not line.strip():
            while _running:
                _collect()
            continue
        answer(json.loads(line))
        if len(_running) >= at_once:
            _collect()
    while _running:
        _collect()


if __name__ == "__main__":
    main()
