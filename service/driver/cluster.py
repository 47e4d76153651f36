"""Ray under a driver: starts one on this machine or joins one, and gives it back.

A private Ray lives in a short folder of its own (unix sockets allow about 107 characters), reachable with a random
token only, and is gone with its driver; folders of drivers that were killed are swept at the next start. On a joined
cluster a named actor that dies with its driver marks the one study that may use it.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import importlib
import logging
import os
import secrets
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from service.driver.environment import environment
from service.driver.nodes import Node, require, slots
from service.errors import Conflict, DriftlineError, Unavailable

_LOG = logging.getLogger(__name__)
Progress = Callable[[str], None]

_PREFIX = "driftline-ray-"
_LOCK = "lock"
_LONGEST = 32  # of the folder; Ray adds about 65 characters
_STORE_BYTES = 200 * 1024 * 1024  # reports are small
_NAME = "driftline-driver"
_LOOK_S = 5.0
_MOST_WISHED = 512
_MARK_S = 10.0  # how long the mark of a driver that has died may still be there
_busy = threading.Lock()


@dataclass
class Cluster:
    """A Ray that this process is connected to.

    Attributes:
        folder: A folder of this machine for scratch files; removed with the connection.
        own: Whether it was started here.
    """

    folder: Path
    own: bool
    _seen: tuple[float, list[Node]] = (0.0, [])
    _wished: tuple[int, float, float] = (0, 0.0, 0.0)

    def nodes(self) -> list[Node]:
        """The nodes that are alive, as seen in the last seconds."""
        when, found = self._seen
        if not found or time.monotonic() - when > _LOOK_S:
            found = [Node.of(node["Resources"]) for node in _ray().nodes() if node["Alive"]]
            self._seen = (time.monotonic(), found)
        return found

    def gpus(self, wanted: str | float) -> float:
        """GPUs for each pack: what was asked for, and for "auto" a whole one where there is any."""
        if wanted != "auto":
            return float(wanted)
        return 1.0 if any(node.gpus >= 1 for node in self.nodes()) else 0.0

    def slots(self, cpus: float, gpus: float) -> int:
        """How many packs fit at once."""
        return slots(self.nodes(), cpus, gpus)

    def wish(self, packs: int, cpus: float, gpus: float) -> None:
        """Tells the autoscaler of a joined cluster for how many packs there is work; others take no notice.

        Without it a cluster would never grow: packs are handed out only where there is room for them.
        """
        packs = min(packs, _MOST_WISHED)
        if self.own or (packs, cpus, gpus) == self._wished:
            return
        sdk = importlib.import_module("ray.autoscaler.sdk")
        bundle = {"CPU": cpus, "GPU": gpus} if gpus else {"CPU": cpus}
        try:
            sdk.request_resources(bundles=[bundle] * packs)
        except Exception as error:
            _LOG.warning("the autoscaler could not be told of %d packs: %s", packs, error)
        self._wished = (packs, cpus, gpus)

    def wait_for(self, cpus: float, gpus: float, patience_s: float, progress: Progress, stop: threading.Event) -> None:
        """Returns when some node has room for a pack.

        Raises:
            InvalidSpec: None has, after so many seconds; on a Ray of our own at once.
        """
        deadline = time.monotonic() + (0.0 if self.own else patience_s)
        told = False
        self.wish(1, cpus, gpus)
        while not self.slots(cpus, gpus) and time.monotonic() < deadline and not stop.is_set():
            if not told:
                progress(f"waiting up to {patience_s:.0f} s for a node with {Node(cpus, gpus)} free for packs ...")
                told = True
            stop.wait(1.0)
            self._seen = (0.0, [])
        if not stop.is_set():
            require(self.nodes(), cpus, gpus)


@contextlib.contextmanager
def connect(
    study_id: str, address: str | None, progress: Progress, *, num_cpus: int | None = None
) -> Iterator[Cluster]:
    """Ray for one study.

    Args:
        study_id: The study that will use it.
        address: Of a Ray cluster; None starts one here, "auto" joins the one this process runs in. A Ray that this
            process is connected to already is used as it is, and left as it was.
        progress: Told what happens, in a line each.
        num_cpus: CPU cores of a Ray started here; what the machine has by default.

    Raises:
        Conflict: Another study uses this Ray.
        Unavailable: Ray does not start, or does not answer.
    """
    if not _busy.acquire(blocking=False):
        raise Conflict("this process drives another study already: one study at a time uses a Ray cluster")
    with contextlib.ExitStack() as stack:
        stack.callback(_busy.release)
        folder = stack.enter_context(_folder())
        stack.enter_context(environment(_variables(private=address is None and not _connected())))
        if _ray().is_initialized():
            stack.enter_context(_alone(study_id))
            yield Cluster(folder, own=False)
            return
        _initialize(address, folder, progress, num_cpus)
        stack.callback(_ray().shutdown)
        if address is not None:
            stack.enter_context(_alone(study_id))
        yield Cluster(folder, own=address is None)


def _initialize(address: str | None, folder: Path, progress: Progress, num_cpus: int | None) -> None:
    _ray()._raylet.Config.initialize("")  # an earlier import of Ray has read the environment already
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    started = time.monotonic()
    try:
        if address is None:
            progress("starting Ray (5-20 s) ...")
            _ray().init(
                address="local",
                num_cpus=num_cpus,
                include_dashboard=False,
                object_store_memory=_STORE_BYTES,
                _temp_dir=str(folder / "ray"),
                **quiet,
            )
        else:
            progress(f"connecting to Ray at {address} ...")
            _ray().init(address=address, runtime_env={"env_vars": _passed_on()}, **quiet)
    except DriftlineError:
        raise
    except Exception as error:
        where = "on this machine" if address is None else f"at {address}"
        raise Unavailable(f"Ray {where} must start and answer, got {type(error).__name__}: {error}") from error
    _LOG.info("Ray answers after %.1f s", time.monotonic() - started)


def _ray() -> Any:
    """Ray, imported only once its environment is set."""
    return importlib.import_module("ray")


def _connected() -> bool:
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def _variables(private: bool) -> dict[str, str]:
    """Environment variables that Ray is started under."""
    found = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_CHDIR_TO_TRIAL_DIR": "0",  # so that a relative DATA_DIR means the same everywhere
        "RAY_ENABLE_AUTO_CONNECT": "0",  # a Ray that has gone is an error, not a reason to start another
    }
    if private:
        mode = os.environ.get("RAY_AUTH_MODE", "token")
        found["RAY_AUTH_MODE"] = mode
        if mode == "token" and not {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & set(os.environ):
            found["RAY_AUTH_TOKEN"] = _token()
    return found


@functools.cache
def _token() -> str:
    """A random token, one for the life of this process: Ray reads it once and keeps it for every later Ray."""
    return secrets.token_hex(32)


def _passed_on() -> dict[str, str]:
    """Environment variables that workers on other machines need; in a Ray Job they have those of the job."""
    names = () if "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ else ("DATA_DIR", "OMP_NUM_THREADS")
    return {name: os.environ[name] for name in names if name in os.environ}


@contextlib.contextmanager
def _alone(study_id: str) -> Iterator[None]:
    """Holds the cluster's mark: an actor of a fixed name, owned by this driver."""
    ray = _ray()
    holder = ray.remote(num_cpus=0)(_Holder)
    namespace = "driftline"
    deadline = time.monotonic() + _MARK_S
    while True:
        try:
            mark = holder.options(name=_NAME, namespace=namespace).remote(study_id)
            ray.get(mark.study.remote())
            break
        except ValueError:
            if time.monotonic() >= deadline:
                raise Conflict(
                    "one study at a time uses a Ray cluster; "
                    f"{_other(namespace)} uses this one: wait for it or pause it"
                ) from None
            time.sleep(0.5)
    try:
        yield
    finally:
        with contextlib.suppress(Exception):
            ray.kill(mark)


class _Holder:
    def __init__(self, study_id: str) -> None:
        self._study_id = study_id

    def study(self) -> str:
        return self._study_id


def _other(namespace: str) -> str:
    """The study that holds the mark."""
    ray = _ray()
    try:
        return f"study {ray.get(ray.get_actor(_NAME, namespace=namespace).study.remote(), timeout=5)}"
    except Exception:
        return "another study"


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A short folder of our own; those that died drivers left are removed first."""
    root = Path(tempfile.gettempdir())
    if len(str(root)) + len(_PREFIX) + 8 > _LONGEST and os.access("/tmp", os.W_OK):
        root = Path("/tmp")
    for old in root.glob(f"{_PREFIX}????????"):
        _sweep(old)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
    with (folder / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _sweep(old: Path) -> None:
    """Removes a folder whose driver is gone: nobody holds its lock."""
    lock: IO[str]
    try:
        if old.stat().st_uid != os.getuid():
            return
        with (old / _LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(old, ignore_errors=True)
    except OSError:
        return
