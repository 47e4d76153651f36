"""Where a process may die: every commit, file operation, request and call to MLflow is announced to a fuse.

A fuse counts how often each *site* has been passed, and writes it down. Given a site and a count, it kills its process
there as SIGKILL does, or stops it for ever as SIGSTOP does. What it killed once it does not kill again: a marker file
says so.
"""

import contextlib
import functools
import itertools
import os
import re
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

Kill = tuple[str, str, int]
"""(component, site, how often it has been passed, from 1)"""

_ID = re.compile(r"/v1/studies/[^/:?]+")
_MLFLOW = (
    "create_experiment",
    "set_experiment_tag",
    "create_run",
    "log_batch",
    "log_artifacts",
    "set_terminated",
    "delete_run",
)


class Fuse:
    """Kills this process at a site.

    Args:
        component: What this process is.
        folder: Where markers and the list of sites are written.
        kills: Sites at which to die; sites of other components are ignored.
        how: How to die: SIGKILL or SIGSTOP.
    """

    def __init__(self, component: str, folder: Path, kills: list[Kill], how: signal.Signals = signal.SIGKILL) -> None:
        self._how = how
        self._component = component
        self._folder = folder
        self._kills = {(site, count): index for index, (own, site, count) in enumerate(kills) if own == component}
        self._passed: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._log = os.open(folder / "sites", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def at(self, site: str) -> None:
        """Passes a site, or dies there."""
        with self._lock:
            if self.due(site):
                os.kill(os.getpid(), self._how)
                signal.pause()

    def due(self, site: str) -> bool:
        """Counts a site; whether this is where and when to break."""
        self._passed[site] += 1
        here = (site, self._passed[site])
        os.write(self._log, f"{self._component}\t{site}\t{here[1]}\n".encode())
        if here not in self._kills:
            return False
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self._folder / f"killed.{self._kills[here]}", os.O_CREAT | os.O_EXCL))
            return True
        return False

    def around(self, target: Any, name: str, label: Callable[..., str | None]) -> None:
        """Announces calls of a function, before and after; `label` names them from their arguments, or says None."""
        original = getattr(target, name)

        @functools.wraps(original)
        def announced(*args: Any, **kwargs: Any) -> Any:
            said = label(*args, **kwargs)
            if said is None:
                return original(*args, **kwargs)
            self.at(f"{said} <")
            answer = original(*args, **kwargs)
            self.at(f"{said} >")
            return answer

        setattr(target, name, announced)


def commits(fuse: Fuse) -> None:
    """Every transaction of the store: just before it is committed, and just after."""
    from service.store.database import Database

    original = Database.write

    @contextlib.contextmanager
    def write(self: Database) -> Iterator[Any]:
        who = sys._getframe(2).f_code.co_qualname  # the method of the store's part; frame 1 is contextlib's
        with original(self) as connection:
            yield connection
            fuse.at(f"commit {who} <")
        fuse.at(f"commit {who} >")

    Database.write = write  # type: ignore[method-assign]


def files(fuse: Fuse) -> None:
    """Checkpoints: synced, put in place, removed."""
    fuse.around(os, "fsync", lambda number: f"fsync {_kind(os.readlink(f'/proc/self/fd/{number}'))}")
    fuse.around(os, "replace", lambda source, to, **_: f"replace {_kind(to)}")
    fuse.around(os, "remove", lambda path, **_: f"remove {_kind(path)}" if _kind(path) else None)


def requests(fuse: Fuse) -> None:
    """Every request of this process: before it is sent, and when its answer is here."""
    fuse.around(httpx.HTTPTransport, "handle_request", lambda _, request: _named(request.method, request.url.path))


def answers(fuse: Fuse, app: Any) -> Any:
    """An app whose requests are announced: when they arrive, and when they have been answered."""

    async def announced(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        name = _named(scope["method"], scope["path"])
        fuse.at(f"served {name} <")
        await app(scope, receive, send)
        fuse.at(f"served {name} >")

    announced.state = app.state  # type: ignore[attr-defined]
    return announced


def mlflow(fuse: Fuse) -> None:
    """Every call that changes something in MLflow."""
    from mlflow import MlflowClient

    from service.recorder import bulk_runs
    from service.recorder.database_client import DatabaseClient

    fuse.around(bulk_runs, "write", lambda *_: "mlflow bulk")
    for client, name in itertools.product((MlflowClient, DatabaseClient), _MLFLOW):
        if hasattr(client, name):
            fuse.around(client, name, functools.partial(lambda said, *_, **__: f"mlflow {said}", name))


def _named(method: str, path: str) -> str:
    return f"{method} {_ID.sub('/v1/studies/ID', path)}"


def _kind(path: Any) -> str:
    """Checkpoint or file of results; "" for what is none of ours."""
    name = os.path.basename(os.fspath(path)).removesuffix(".part")
    if ".ckpt" in name:
        return "checkpoint"
    return "result" if name.lstrip(".").startswith(("frontier.", "trials.csv", "study.yaml")) else ""
