"""Drivers as jobs of an existing Ray cluster, through the Ray Jobs API."""

from __future__ import annotations

import logging
import os
import re
import shlex
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from driftline.errors import Conflict, DriftlineError, InvalidSpec
from driftline.study.validation import Section
from service.launchers.base import Launch, Launcher, Seen
from service.launchers.ray_jobs.dashboard import Dashboard, RayJob
from service.launchers.ray_jobs.package import package

__all__ = ["RayJobsLauncher"]

_LOG = logging.getLogger(__name__)
_RAY = (2, 58)
"""Oldest Ray that a driver runs on."""

_UNFIT = 79
"""Exit code of ``python -m service.driver.preflight`` where something is missing."""

_FRESH_S = 1.0
"""How long a list of jobs counts as current."""

_LATE_S = 60.0
"""How much longer than `stop_seconds` Ray may take to end a job, before the job is deleted."""

_PREFIX = "driftline"


class Config(Section):
    """Settings of the launcher `ray_jobs`.

    Attributes:
        address: Address of Ray's dashboard: ``http://head:8265``.
        auth: "token" sends Ray's token, "disabled" sends none; as the cluster's RAY_AUTH_MODE.
        token_file: File with Ray's token; RAY_AUTH_TOKEN or the file RAY_AUTH_TOKEN_PATH by default.
        python: Command of the cluster's Python that has Ray; it runs the drivers.
        data_dir: DATA_DIR of drivers and workers: the folder of the data sets on every node.
        environment: Further environment variables of drivers and workers.
        autoscaling: Whether the cluster adds nodes on demand. If so, the needs of a pack are not checked before the
            driver starts.
        node_seconds: How long to wait for a node that has room for a pack, before the study fails.
        stop_seconds: How long a driver gets to write checkpoints, before Ray kills it.
    """

    address: str
    auth: Literal["token", "disabled"] = "token"
    token_file: str | None = None
    python: str = Field("python", min_length=1)
    data_dir: str | None = None
    environment: dict[str, str] = Field(default_factory=dict)
    autoscaling: bool = False
    node_seconds: float = Field(60.0, ge=0)
    stop_seconds: float = Field(150.0, gt=0)

    def token(self) -> str | None:
        """Ray's token.

        Raises:
            InvalidSpec: A token is required, and there is none.
        """
        if self.auth == "disabled":
            return None
        direct = os.environ.get("RAY_AUTH_TOKEN")
        file = self.token_file or os.environ.get("RAY_AUTH_TOKEN_PATH")
        if self.token_file is None and direct:
            return direct
        try:
            text = Path(file or "").read_text(encoding="utf-8").strip() if file else ""
        except OSError as error:
            raise InvalidSpec("token_file", f"must name a file with Ray's token, got {file}: {error}") from error
        if not text:
            problem = 'must be given with auth "token", or set RAY_AUTH_TOKEN; auth "disabled" sends no token'
            raise InvalidSpec("token_file", problem)
        return text


def build(config: Config, *, url: str, checkpoints: str, logs: Path) -> RayJobsLauncher:
    """The launcher of a service.

    Args:
        config: Its settings.
        url: Address of the service, as drivers reach it.
        checkpoints: Path or URL of the folder for checkpoints, reached from every node.
        logs: Not used: drivers send their logs to the service.
    """
    return RayJobsLauncher(config, Dashboard(config.address, config.token()), url=url, checkpoints=checkpoints)


class RayJobsLauncher(Launcher):
    """Runs each driver as a Ray job; a `service.launchers.base.Launcher`.

    A job is named after study and attempt, so that submitting it twice creates one job. The launcher asks Ray for the
    jobs every time, so that a restart of this process loses nothing.

    Args:
        config: Its settings.
        dashboard: Ray's dashboard.
        url: Address of the service, as drivers reach it.
        checkpoints: Path or URL of the folder for checkpoints.
    """

    def __init__(self, config: Config, dashboard: Dashboard, *, url: str, checkpoints: str) -> None:
        self._config = config
        self._ray = dashboard
        self._url = url
        self._checkpoints = checkpoints
        self._refused: dict[str, str] = {}  # by study: why it can never run on this cluster
        self._waiting: dict[str, tuple[Launch, float]] = {}  # by study: a driver waiting for a node, and since when
        self._reasons: dict[str, str] = {}  # by job: why it failed, so that its log is read once
        self._killed: dict[str, float] = {}  # by job: when Ray was told to end it because its driver hangs
        self._listed: tuple[float, list[RayJob]] = (float("-inf"), [])

    def start(self, launch: Launch) -> None:
        """Submits the study's driver as soon as the cluster can run it; does nothing if it is running."""
        study_id = launch.study_id
        self._refused.pop(study_id, None)
        if any(job.alive for job in self._jobs(study_id, fresh=True)):
            return
        version = self._ray.ray_version()
        if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < _RAY:
            self._refused[study_id] = (
                f"the Ray cluster must run Ray {_RAY[0]}.{_RAY[1]} or newer, it runs {version}: upgrade it"
            )
        elif self._lacks(launch) is None:
            self._submit(launch)
        else:
            self._waiting[study_id] = (launch, time.monotonic())

    def _submit(self, launch: Launch) -> None:
        study_id = launch.study_id
        name, content = package()
        if not self._ray.has_package(name):
            self._ray.put_package(name, content)
        job = f"{_PREFIX}-{study_id}-{launch.attempt}"
        body = self._body(launch, name)
        try:
            self._ray.submit(job, body)
        except Conflict:
            old = self._ray.job(job)
            if old is None or not old.alive:  # an earlier start, which ended before it acquired the study
                self._ray.delete(job)
                self._ray.submit(job, body)
        finally:
            self._listed = (float("-inf"), [])
        _LOG.info("driver of study %s, attempt %d: Ray job %s", study_id, launch.attempt, job)

    def seen(self, study_id: str) -> Seen:
        """The study's driver as Ray sees it; if it failed, with the end of its log."""
        if study_id in self._refused:
            return Seen(False, self._refused[study_id], hopeless=True)
        if study_id in self._waiting:
            return self._wait(study_id)
        jobs = self._jobs(study_id)
        if not jobs:
            return Seen(False)
        running = [job for job in jobs if job.alive]
        if running:
            if running[-1].id in self._killed:
                return Seen(True, f"Ray has not ended its job {running[-1].id} yet")
            pending = running[-1].status == "PENDING"
            return Seen(True, f"its Ray job is pending: {running[-1].message}" if pending else "")
        job = jobs[-1]
        if job.status in ("SUCCEEDED", "STOPPED"):
            return Seen(False)
        return Seen(False, self._reason(job), hopeless=_unfit(job))

    def stop(self, study_id: str) -> None:
        """Makes the study's driver write its checkpoints and end; returns at once."""
        self._refused.pop(study_id, None)
        self._waiting.pop(study_id, None)
        for job in self._jobs(study_id, fresh=True):
            if job.alive:
                self._ray.stop(job.id)
        self._listed = (float("-inf"), [])

    def kill(self, study_id: str) -> None:
        """Makes Ray end the study's driver, with SIGKILL after `stop_seconds`; deletes a job that does not end."""
        for job in self._jobs(study_id):
            if not job.alive:
                continue
            if job.id not in self._killed:
                self._ray.stop(job.id)
                self._killed[job.id] = time.monotonic()
            elif time.monotonic() - self._killed[job.id] > self._config.stop_seconds + _LATE_S:
                try:
                    self._ray.delete(job.id)
                except DriftlineError as error:  # Ray deletes no job that it considers alive
                    _LOG.warning("Ray job %s neither ends nor can be deleted: %s", job.id, error)
                self._killed[job.id] = time.monotonic()

    def collect(self, study_ids: Collection[str]) -> None:
        """Stops drivers of studies that no longer exist; jobs that others submitted are left alone."""
        for job in self._ray.jobs():
            study = _study(job)
            if job.alive and study is not None and study not in study_ids and job.metadata.get("service") == self._url:
                _LOG.info("Ray job %s is stopped: its study no longer exists", job.id)
                self._ray.stop(job.id)

    def close(self) -> None:
        """Closes the connection; drivers keep running."""
        self._ray.close()

    def _jobs(self, study_id: str, *, fresh: bool = False) -> list[RayJob]:
        """The study's jobs, the oldest first."""
        when, jobs = self._listed
        if fresh or time.monotonic() - when > _FRESH_S:
            jobs = self._ray.jobs()
            self._listed = (time.monotonic(), jobs)
        return sorted((job for job in jobs if _study(job) == study_id), key=lambda job: job.began)

    def _wait(self, study_id: str) -> Seen:
        """Submits a waiting driver as soon as some node has room for a pack; hopeless if none comes in time."""
        launch, since = self._waiting[study_id]
        lacks = self._lacks(launch)
        if lacks is None:
            del self._waiting[study_id]
            self._submit(launch)
            return Seen(True)
        if time.monotonic() - since < self._config.node_seconds:
            return Seen(True, f"waits for a node: {lacks}")
        return Seen(False, f"{lacks}: ask for less under resources", hopeless=True)

    def _lacks(self, launch: Launch) -> str | None:
        """Why a pack fits on no node, in words; None if it fits, or if the cluster adds nodes on demand."""
        if self._config.autoscaling:
            return None
        nodes = [(node.get("CPU", 0.0), node.get("GPU", 0.0)) for node in self._ray.nodes()]
        gpus = launch.gpus or 0.0
        if sum(cpu >= launch.cpus and gpu >= gpus for cpu, gpu in nodes) >= launch.nodes:
            return None
        have = ", ".join(sorted({f"{cpu:g} CPU and {gpu:g} GPU" for cpu, gpu in nodes})) or "nothing yet"
        where = "one node" if launch.nodes == 1 else f"each of {launch.nodes} nodes"
        needs = f"a pack needs {launch.cpus:g} CPU and {gpus:g} GPU on {where}"
        return f"{needs}, the nodes of the Ray cluster have {have}"

    def _body(self, launch: Launch, name: str) -> dict[str, Any]:
        driver = [f"--study={launch.study_id}", f"--url={self._url}", f"--folder={self._checkpoints}", "--address=auto"]
        python = shlex.quote(self._config.python)
        command = f"{python} -P -m service.driver.preflight && exec {python} -P -m service.driver {shlex.join(driver)}"
        variables = {
            **({"DATA_DIR": self._config.data_dir} if self._config.data_dir else {}),
            **self._config.environment,
            "DRIFTLINE_TOKEN": launch.token,
            "RAY_JOB_STOP_WAIT_TIME_S": str(int(self._config.stop_seconds)),
        }
        return {
            "entrypoint": command,
            "runtime_env": {"py_modules": [f"gcs://{name}"], "env_vars": variables},
            "metadata": {
                "study": launch.study_id,
                "name": launch.name,
                "project": launch.project,
                "attempt": str(launch.attempt),
                "service": self._url,
            },
        }

    def _reason(self, job: RayJob) -> str:
        """Why a job failed: the end of its output, or what Ray says."""
        if job.id not in self._reasons:
            lines = self._ray.tail(job.id, 1 if _unfit(job) else 3)
            text = " | ".join(lines) if lines else re.sub(r"\s+", " ", job.message)
            how = "" if _unfit(job) else "its Ray job failed: "
            self._reasons[job.id] = f"{how}{text[-500:]}"
        return self._reasons[job.id]


def _study(job: RayJob) -> str | None:
    """The study that a job drives; None for a job that is not Driftline's."""
    return job.metadata.get("study") if job.id.startswith(f"{_PREFIX}-") else None


def _unfit(job: RayJob) -> bool:
    return job.exit_code == _UNFIT or f"exit code {_UNFIT}" in job.message
