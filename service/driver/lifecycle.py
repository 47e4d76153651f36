"""Runs a driver: acquires the study, starts or joins Ray, searches, and releases the study."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from driftline.client.driver_client import DriverClient
from driftline.errors import Conflict, DriftlineError, InvalidSpec, NotFound, StaleDriver, Unavailable
from driftline.study.spec import Resources, Study
from driftline.wire.driver_messages import Released
from driftline.wire.ids import holder
from service.code_digest import code_digest
from service.driver import checkpoints
from service.driver.job import PackJob
from service.driver.lease import Watch, Why
from service.driver.ray import cluster, mutex
from service.driver.ray.early_ray import EarlyRay
from service.settings import HANG_S
from trainers import reading_only, urls_of

_LOG = logging.getLogger(__name__)
HEARTBEAT_S = 3.0
CODE_S = 120.0
"""How long to wait for an API with this driver's code."""

NODES_S = 300.0
"""How long to wait for a joined cluster to have a node with room for a pack."""

Ended = Literal["SUCCEEDED", "FAILED", "PAUSED", "CANCELLED", "STALE", "LOST"]


@dataclass(frozen=True)
class DriverOptions:
    """Options of a driver that do not depend on its study.

    Attributes:
        folder: Path or URL of the folder for checkpoints; every node that trains must reach it.
        address: Address of a Ray cluster; None starts Ray here. See `cluster.connect`.
        early_ray: A Ray that is being started here already.
        num_cpus: CPU cores of a Ray started here; None uses all that this process may use.
        nodes_s: How long to wait for a joined cluster to have a node with room for a pack.
        worker_gpus: GPUs of each node that the cluster can add; 0 if unknown. With 1 or more, "auto" waits for a GPU
            instead of settling for what the cluster has at the start.
        most_nodes: Most nodes with room for packs that a joined cluster can have; None if unknown.
        hang_s: A pack that does not report for this long is restarted, see `ray.tune.Pulse`; a driver whose main loop
            makes no progress for this long sends no more heartbeats.
        trials: Local folder for the logs and working files of programs.
        files: For a program: folder with the copy of its files; "" starts it in its own folder.
        chunk_seconds: Duration of a step of a pack.
        checkpoint_seconds: Time between checkpoints of a pack.
        progress: Called with one-line messages about what happens.
        taken: Called with the attempt under which the driver has acquired the study.
    """

    folder: str | Path
    address: str | None = None
    early_ray: EarlyRay | None = None
    num_cpus: int | None = None
    nodes_s: float = NODES_S
    worker_gpus: float = 0.0
    most_nodes: int | None = None
    hang_s: float = HANG_S
    trials: str = ""
    files: str = PackJob.files
    chunk_seconds: float = PackJob.chunk_seconds
    checkpoint_seconds: float = PackJob.checkpoint_seconds
    progress: Callable[[str], None] = _LOG.info
    taken: Callable[[int], None] = lambda attempt: None


def run_driver(client: DriverClient, study_id: str, stop: threading.Event, options: DriverOptions) -> Ended:
    """Drives a study until it succeeds, fails or is told to stop. May run in any thread.

    Args:
        client: Connection to the API; its patience is how long the API may be unreachable.
        study_id: Id of the study.
        stop: Set it to stop: the packs write their checkpoints, and the study is released to be resumed later.
        options: Options of the driver.

    Returns:
        The state in which the study was released; STALE if another driver has taken over.

    Raises:
        Conflict: Another driver holds the study, or the study's state allows no driver.
        Unavailable: Ray did not start or broke, or the service stayed unreachable. The study is then not released, so
            that the scheduler counts a lost driver and starts another.
    """
    lease = client.acquire(study_id, holder())
    options.taken(lease.attempt)
    every_s = min(HEARTBEAT_S, lease.lease_seconds / 3)
    with Watch(client, study_id, lease.attempt, every_s=every_s, stop=stop, hang_s=options.hang_s) as watch:
        state: Ended
        reason: str
        try:
            state, reason = _drive(client, study_id, lease.attempt, watch, stop, options)
        except StaleDriver as error:
            state, reason = "STALE", error.message
        except Unavailable as error:
            state, reason = "LOST", error.message
        except mutex.NotJoined as error:  # PAUSED although nobody asked for it: the scheduler starts it again
            state, reason = _stopped(watch, otherwise=("PAUSED", error.message))
        except DriftlineError as error:
            state, reason = "FAILED", error.message
        except Exception as error:
            _LOG.exception("the driver failed")
            state, reason = "FAILED", f"{type(error).__name__}: {error}"
        if state != "STALE" and state != "LOST" and state != "SUCCEEDED":
            state = _release(client, study_id, lease.attempt, state, reason)
    _LOG.info("study %s: %s %s", study_id, state, reason)
    if state == "LOST":
        raise Unavailable(reason)
    return state


def _drive(
    client: DriverClient,
    study_id: str,
    attempt: int,
    watch: Watch,
    stop: threading.Event,
    options: DriverOptions,
) -> tuple[Ended, str]:
    """Drives a study. Releases a succeeded study itself, before Ray is shut down, which takes seconds."""
    from service.driver.search.search import Search

    _agree(client, study_id, attempt, watch, options.progress)
    study = _stored(client, study_id)
    urls = client.data_urls(study_id) if urls_of(study.task) else None
    cpus, progress = study.resources.cpus, options.progress
    with (
        reading_only(urls),
        cluster.connect(
            study_id,
            options.address,
            progress,
            num_cpus=options.num_cpus,
            patient=lambda: not watch.look(),
            early=options.early_ray,
        ) as joined,
    ):
        from service.driver.ray.tune import fit  # imports Ray, under the environment that connect has set

        gpus = _gpus(joined, study.resources, options, stop)
        if urls is not None:
            from service.driver.ray.url_data import examined

            if watch.look() or not (read := examined(study, urls, cpus=cpus, stopped=watch.look, progress=progress)):
                return _stopped(watch)
            study = read

        def slots() -> int:
            joined.wish(search.left(), cpus, gpus)
            return joined.room(cpus, gpus, progress)

        search = Search(
            client,
            study_id,
            study,
            attempt,
            folder=str(options.folder) if "://" in str(options.folder) else os.path.abspath(options.folder),
            slots=slots,
            gpus=gpus,
            options={
                "chunk_seconds": options.chunk_seconds,
                "checkpoint_seconds": options.checkpoint_seconds,
                "files": options.files,
                "urls": urls,
            },
            trials=options.trials,
        )
        search.load()
        if not search.complete() and not watch.look():
            progress(f"Ray is ready: {joined.workers(cpus, gpus)}")
            try:
                fit(search, watch, str(joined.folder))
            except Exception as error:
                _LOG.exception("Ray broke")
                if not watch.why:
                    return "LOST", f"Ray broke: {type(error).__name__}: {error}"
        complete = search.complete() and watch.look() != "stale"
        ended, reason = search.outcome() if complete else _stopped(watch)
        if ended in ("SUCCEEDED", "CANCELLED"):
            with contextlib.suppress(OSError):
                checkpoints.clear(search.folder, attempt)
        if ended == "SUCCEEDED":
            watch.rest()
            ended = _release(client, study_id, attempt, ended, reason)
        return ended, reason


def _stored(client: DriverClient, study_id: str) -> Study:
    """The study, with the checksum of its data if they have been read.

    Raises:
        Unavailable: The study is of a newer Driftline.
    """
    record = client.study(study_id)
    try:
        study = record.study
    except InvalidSpec as error:  # the API accepted it, so the API is newer: an upgrade
        raise Unavailable(f"this driver must be as new as the API that took the study, got {error}") from error
    if record.plan is None or record.plan.data is None:
        return study
    return study.model_copy(update={"task": {**study.task, "sha256": record.plan.data}})


def _gpus(joined: cluster.Cluster, resources: Resources, options: DriverOptions, stop: threading.Event) -> float:
    """GPUs of a pack, when the cluster has room for one or `stop` is set."""
    joined.most, joined.span = options.most_nodes, resources.nodes
    promised = 1.0 if options.worker_gpus >= 1 else 0.0
    least = promised if resources.gpu == "auto" else float(resources.gpu)
    joined.wait_for(resources.cpus, least, options.nodes_s, options.progress, stop)
    return least or joined.gpus(resources.gpu)


def _agree(client: DriverClient, study_id: str, attempt: int, watch: Watch, progress: Callable[[str], None]) -> None:
    """Waits for an API replica that runs this driver's code: an upgrade replaces the replicas one after the other.

    A driver that has begun continues even if the API is upgraded later, because their messages are versioned.

    Raises:
        Unavailable: None answered within `CODE_S`. The scheduler starts another driver, which may have the API's code.
    """
    deadline = time.monotonic() + CODE_S
    told = False
    while client.api_code not in (None, code_digest()) and not watch.look():
        api_code = client.api_code or "unknown"
        text = f"the API at {client.url} runs other code of Driftline ({api_code}) than this driver ({code_digest()})"
        if time.monotonic() >= deadline:
            raise Unavailable(f"{text}: use one version for the service and its studies, and restart what was edited")
        if not told:
            progress(f"{text}: waiting up to {CODE_S:.0f} s for its upgrade")
            told = True
        time.sleep(min(1.0, CODE_S))
        client.heartbeat(study_id, attempt)


def _stopped(
    watch: Watch, otherwise: tuple[Ended, str] = ("FAILED", "Ray Tune ended before the search did")
) -> tuple[Ended, str]:
    """State and reason with which to release a study that is not complete; `otherwise` if nobody asked to stop."""
    states: dict[Why, Ended] = {"stale": "STALE", "cancel": "CANCELLED", "lost": "LOST", "pause": "PAUSED"}
    why = watch.look()
    return (states[why], watch.reason) if why in states else (otherwise[0], watch.reason or otherwise[1])


def _release(client: DriverClient, study_id: str, attempt: int, state: Released, reason: str) -> Ended:
    """Releases the study.

    Raises:
        Unavailable: The service stayed unreachable, or its store refuses the state, such as a restored backup with
            unfinished trials. The next driver starts again from the stored rows.
    """
    try:
        client.release(study_id, attempt, state, reason)
    except (StaleDriver, NotFound):  # NotFound: the study was deleted
        return "STALE"
    except Conflict as error:
        raise Unavailable(error.message) from error
    return state
