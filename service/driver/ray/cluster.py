"""Starts Ray on this machine or joins a cluster for a driver, and shuts it down or leaves it afterwards.

A private Ray has its own folder with a short path (unix sockets allow about 107 characters), accepts only a random
token, and ends with its driver; the next start removes folders of killed drivers. On a joined cluster, a named actor
that dies with its driver marks the one study that may use it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import math
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from driftline.errors import Conflict, DriftlineError, Unavailable
from service.cores import usable_cores
from service.driver.ray import cluster_address, lean_ray, mutex, ray_variables
from service.driver.ray.capacity import Node, require, slots
from service.driver.ray.environment import environment
from service.driver.ray.worker_output import logged
from service.file_locks import own_folder
from service.known_versions import KNOWN, known

_LOG = logging.getLogger(__name__)
Progress = Callable[[str], None]

_PREFIX = "driftline-ray-"
_LONGEST = 38  # characters of the folder's path; Ray adds up to 68, and a socket's path may have 107
_STORE_BYTES = 200 * 1024 * 1024  # reports are small
_LOOK_S = 5.0
_MOST_WISHED = 512
_busy = threading.Lock()


class BeingStarted(Protocol):
    """A Ray that is being started, see `service.driver.ray.early_ray`."""

    def taken(self) -> AbstractContextManager[Path]:
        """Waits until Ray answers, and yields its folder; ends Ray afterwards."""


class Broken(Unavailable):
    """Ray on this machine has ended, with everything that ran on it."""


@dataclass
class Cluster:
    """The Ray cluster that this process is connected to.

    Attributes:
        folder: A local folder for scratch files; removed when the connection ends.
        own: Whether this process started it.
        most: Most nodes with room for packs that a joined cluster can have; None if unknown.
        span: How many different nodes each pack needs.
    """

    folder: Path
    own: bool
    most: int | None = None
    span: int = 1
    _seen: tuple[float, list[Node]] = (0.0, [])
    _wished: tuple[int, Node] = (0, Node(0.0))
    _without: bool = False

    def nodes(self) -> list[Node]:
        """The living nodes, as seen in the last `_LOOK_S` seconds.

        Raises:
            Broken: A private Ray has no node left: its daemon has died, and nothing starts another.
        """
        when, nodes = self._seen
        if not nodes or time.monotonic() - when > _LOOK_S:
            nodes = [Node.of(node["Resources"]) for node in _ray().nodes() if node["Alive"]]
            self._seen = (time.monotonic(), nodes)
        if self.own and not nodes:
            raise Broken("Ray on this machine must have a node, got none: its raylet has ended")
        return nodes

    def gpus(self, gpu: str | float) -> float:
        """GPUs for each pack: the given number; for "auto" a whole one if some node has one, otherwise none."""
        if gpu != "auto":
            return float(gpu)
        return 1.0 if any(node.gpus >= 1 for node in self.nodes()) else 0.0

    def slots(self, cpus: float, gpus: float) -> int:
        """How many packs fit at once."""
        return slots(self.nodes(), cpus, gpus, self.span)

    def workers(self, cpus: float, gpus: float) -> str:
        """The packs that fit at once, in words."""
        packs = self.slots(cpus, gpus)
        where = "each" if self.span == 1 else f"on each of {self.span} nodes"
        return f"{packs} worker{'s' * (packs != 1)} of {Node(cpus, gpus)} {where}"

    def room(self, cpus: float, gpus: float, progress: Progress) -> int:
        """How many packs fit at once; reports when no node has room for packs any more, and when one has room again."""
        packs = self.slots(cpus, gpus)
        if self._without == (packs > 0):
            self._without = not packs
            pack = f"a pack, {Node(cpus, gpus)}"
            progress(
                f"no node has room for {pack}: waiting for one" if self._without else f"a node has room for {pack}"
            )
        return packs

    def wish(self, packs: int, cpus: float, gpus: float) -> None:
        """Requests room for this many packs from the autoscaler of a joined cluster; no effect where there is none.

        Without a request a cluster would never grow, because packs are handed out only where they fit. Ray's autoscaler
        rejects a request as a whole if the largest cluster could not hold it (Ray 2.60,
        `ResourceDemandScheduler._enforce_resource_constraints`), so never request more than that or, if the largest
        cluster is unknown, more than one additional node. For packs that span nodes whole nodes are requested, because
        several parts of such a pack on one node are no room for it.
        """
        if self.own:
            return
        largest = max(self.nodes(), key=lambda node: node.room(cpus, gpus), default=Node(0.0))
        part, room = Node(cpus, gpus), largest.room(cpus, gpus)
        nodes = self.most * room if self.most is not None else self.slots(cpus, gpus) + room if room else 0
        if self.span > 1 and room:
            part, packs = largest, self.span * math.ceil(packs / room)
            nodes = self.most or sum(bool(node.room(cpus, gpus)) for node in self.nodes()) + 1
        wished = min(packs, max(nodes, 1), _MOST_WISHED), part
        if wished == self._wished:
            return
        sdk = importlib.import_module("ray.autoscaler.sdk")
        bundle = {"CPU": part.cpus, "GPU": part.gpus} if part.gpus else {"CPU": part.cpus}
        try:
            sdk.request_resources(bundles=[bundle] * wished[0])
        except Exception as error:
            _LOG.warning("room for %d packs could not be requested from Ray's autoscaler: %s", packs, error)
        self._wished = wished

    def wait_for(self, cpus: float, gpus: float, patience_s: float, progress: Progress, stop: threading.Event) -> None:
        """Waits until some node has room for a pack, or `stop` is set.

        Raises:
            InvalidSpec: No node has room after `patience_s` seconds; for a private Ray, at once.
        """
        deadline = time.monotonic() + (0.0 if self.own else patience_s)
        told = False
        self.wish(1, cpus, gpus)
        while not self.slots(cpus, gpus) and time.monotonic() < deadline and not stop.is_set():
            if not told:
                needs = (
                    f"a node with {Node(cpus, gpus)}"
                    if self.span == 1
                    else f"{self.span} nodes with {Node(cpus, gpus)} each"
                )
                progress(f"waiting up to {patience_s:.0f} s for {needs} free for packs ...")
                told = True
            stop.wait(1.0)
            self._seen = (0.0, [])
            self.wish(1, cpus, gpus)  # what a node has may be known only now
        if not stop.is_set():
            require(self.nodes(), cpus, gpus, self.span)


@contextlib.contextmanager
def connect(
    study_id: str,
    address: str | None,
    progress: Progress,
    *,
    num_cpus: int | None = None,
    patient: Callable[[], bool] = lambda: True,
    early: BeingStarted | None = None,
) -> Iterator[Cluster]:
    """Connects to Ray for one study.

    Args:
        study_id: The study that will use it.
        address: Address of a Ray cluster; None or "local" starts Ray here, "auto" joins the cluster that this process
            runs in. If this process is connected to Ray already, that connection is used and stays open.
        progress: Called with one-line messages about what happens.
        num_cpus: CPU cores of a Ray started here; by default all that this process may use.
        patient: Whether to keep waiting for a joined cluster that does not answer, or that another driver uses.
        early: A Ray that is being started here already, used if there is no `address`.

    Raises:
        Conflict: This process drives another study.
        NotJoined: `patient` gave False, or another driver uses the cluster for too long.
        InvalidSpec: `address` is not the address of a Ray cluster.
        Unavailable: Ray does not start, or does not answer.
    """
    if address == "local":
        address = None
    if not _busy.acquire(blocking=False):
        raise Conflict("this process drives another study already: one study at a time uses a Ray cluster")
    with contextlib.ExitStack() as stack:
        stack.callback(_busy.release)
        if early is not None and address is None:
            yield Cluster(stack.enter_context(early.taken()), own=True)
            return
        if address is None and not _connected():
            yield Cluster(stack.enter_context(private(progress, num_cpus)), own=True)
            return
        folder = stack.enter_context(_folder())
        stack.callback(ray_variables.read_again)  # after the environment is restored, for this process's next Ray
        stack.enter_context(environment(ray_variables.variables(private=False)))
        if address is not None and not _connected():
            cluster_address.wait(address, progress, patient)
            _initialize(address, folder, progress, num_cpus)
            stack.callback(_shut_down)
            stack.enter_context(logged())
        stack.enter_context(mutex.alone(study_id, progress, patient))
        yield Cluster(folder, own=False)


@contextlib.contextmanager
def private(progress: Progress, num_cpus: int | None = None) -> Iterator[Path]:
    """Starts Ray on this machine; yields its folder.

    Raises:
        Unavailable: Ray does not start.
    """
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(_folder())
        stack.callback(ray_variables.read_again)  # after the environment is restored, for this process's next Ray
        stack.enter_context(environment(ray_variables.variables(private=True)))
        _initialize(None, folder, progress, num_cpus)
        stack.callback(_shut_down)
        stack.enter_context(logged())
        stack.enter_context(lean_ray.waiting_workers())
        yield folder


def _initialize(address: str | None, folder: Path, progress: Progress, num_cpus: int | None) -> None:
    _ray()
    ray_variables.read_again()
    quiet: dict[str, Any] = {"log_to_driver": True, "logging_level": logging.ERROR}
    started = time.monotonic()
    try:
        if address is None:
            progress("starting Ray (5-20 s) ...")
            with lean_ray.fewer_processes(), lean_ray.own_session(), lean_ray.own_modules():
                _ray().init(
                    address="local",
                    num_cpus=num_cpus or usable_cores(),
                    include_dashboard=False,
                    object_store_memory=_STORE_BYTES,
                    _temp_dir=str(folder / "ray"),
                    **quiet,
                )
        else:
            progress(f"connecting to Ray at {address} ...")
            with lean_ray.own_modules():
                _ray().init(address=address, runtime_env={"env_vars": ray_variables.passed_on()}, **quiet)
    except DriftlineError:
        raise
    except Exception as error:
        where = "on this machine" if address is None else f"at {address}"
        raise Unavailable(f"Ray {where} must start and answer, got {type(error).__name__}: {error}") from error
    how = "" if known("ray") else f", used without shortcuts, slower: they are for {KNOWN['ray']}"
    _LOG.info("Ray %s answers after %.1f s%s", _ray().__version__, time.monotonic() - started, how)


def _shut_down() -> None:
    """Ends the connection without garbage collection: collecting a reference of Ray's meanwhile ends the process."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        _ray().shutdown()
    finally:
        if collecting:
            gc.enable()


def _ray() -> Any:
    """Ray, imported only once its environment is set."""
    return importlib.import_module("ray")


def _connected() -> bool:
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A new folder with a short path; folders left by dead drivers are removed first."""
    folder, lock = own_folder(_PREFIX, _LONGEST)
    with lock:
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
