"""Drivers on Kubernetes: one RayJob of KubeRay for each study, with workers that train and a head that does not.

A RayJob is named after its study and the attempt that its driver is expected to acquire, so that two schedulers that
start the same attempt create one RayJob. Starting a later attempt deletes the RayJobs of earlier ones. A RayJob owns
everything that it needs: its Secret, ServiceAccount and NetworkPolicy are deleted with it. Needs KubeRay 1.6 or newer.

With a queue, Kueue decides when a RayJob runs: it is created suspended, and the launcher never changes `spec.suspend`
again. A paused study keeps no RayJob, with or without a queue.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from driftline.errors import Conflict, DriftlineError
from service.launchers.base import Launch, Launcher, Seen
from service.launchers.kubernetes import kueue, manifests
from service.launchers.kubernetes.api_server import Api, Item
from service.launchers.kubernetes.config import Config
from service.launchers.kubernetes.namespaces import Namespace, Namespaces
from service.launchers.kubernetes.naming import ATTEMPT, attempt_of, job_name, selector, study_of
from service.launchers.kubernetes.pod_problems import Patience, moment
from service.launchers.kubernetes.rayjob_status import finished, judge, suspended, waits

__all__ = ["Config", "KubernetesLauncher", "build"]

_LOG = logging.getLogger(__name__)
_DRIVER_S = 300.0
_COLLECTED_S = 2.0
"""Within these seconds the garbage collector deletes an object that it has decided to delete."""

_ASK_KUEUE_S = 10.0
_PODS_S = 300.0
"""How long to wait for the pods of a driver that hung to end. On an unreachable node they stay listed, but do no harm:
the API rejects their driver's reports, and their checkpoints never count as newer than a later driver's."""


def build(config: Config, *, url: str, checkpoints: str, logs: Path | None = None) -> KubernetesLauncher:
    """The launcher of a service.

    Args:
        config: Its settings.
        url: Address of the service, as pods reach it.
        checkpoints: URL of the folder for checkpoints, or a path on a volume that all pods mount.
        logs: Not used: drivers send their logs to the service.

    Raises:
        InvalidSpec: The settings do not fit together, or name no cluster.
    """
    config.check_folder(checkpoints)
    return KubernetesLauncher(
        config, Api.connect(config.kubeconfig, config.context, config.namespace), url=url, folder=checkpoints
    )


class KubernetesLauncher(Launcher):
    """Runs each driver in a RayJob; a `service.launchers.base.Launcher`.

    Args:
        config: Its settings.
        api: The namespace in which it creates the RayJobs of projects that name none.
        url: Address of the service, as pods reach it.
        folder: URL of the folder for checkpoints, or a path on a mounted volume.

    Attributes:
        start_seconds: How long a driver may take to acquire its study, including the time for nodes, images and Ray.
    """

    own_cluster = True
    secrets = True
    images = True

    def __init__(self, config: Config, api: Api, *, url: str, folder: str) -> None:
        self.pools = config.worker_pools()
        self._config = config
        self._spaces = Namespaces(api, config.namespaces(api.namespace), config.instance)
        self._url = url
        self._folder = folder
        self._patience = Patience(config.unschedulable_seconds, config.image_pull_seconds)
        self._told: dict[str, tuple[float, str]] = {}  # by uid of a RayJob: when Kueue was asked, and why it waits
        self._killed: dict[str, tuple[float, set[str]]] = {}  # by study: time of the kill, uids of its pods
        self.start_seconds = config.unschedulable_seconds + config.image_pull_seconds + _DRIVER_S

    def start(self, launch: Launch) -> None:
        """Creates the RayJob of a driver; does nothing if it is running or waits in a queue.

        Raises:
            InvalidSpec: The study may not use its pool, a pack fits no worker of it, or the API server refuses the
                RayJob.
            Forbidden: This service may not create it, or a quota does not allow it.
            Unavailable: The API server does not answer.
        """
        pool = self.pools.choose(launch.project, launch.pool, launch.gpus)
        config = self._config.of(launch.project, pool)
        manifests.check(config, launch, self.pools.rooms[pool].worker)
        space = self._spaces.named(config.namespace)
        rayjobs, _ = space.api.items("rayjobs", selector(config.instance, launch.study_id))
        living = sorted((job for job in rayjobs if not finished(job)), key=attempt_of)
        current = living[-1] if living else None
        if current is not None and waits(current):
            job = self._keep(space, launch, current)
        elif current is not None and not suspended(current) and attempt_of(current) >= launch.attempt:
            job = current
        else:
            job = self._make(space, config, launch, self._free_name(launch, rayjobs))
        if attempt_of(job) <= launch.attempt:  # else it belongs to a later driver, and has its own Secret
            created = current is None or job["metadata"]["uid"] != current["metadata"]["uid"]
            _own(space.api, manifests.owned(config, launch, job), new=created)
        space.jobs.note(job)
        for rayjob in rayjobs:
            if rayjob["metadata"]["uid"] != job["metadata"]["uid"]:
                space.api.delete("rayjobs", rayjob)

    def seen(self, study_id: str) -> Seen:
        """The study's driver as it is now.

        Raises:
            Unavailable: The API server has been unreachable for too long.
        """
        if left := self._dying(study_id):
            return Seen(True, f"pods of its last driver have not ended yet: {', '.join(left)}")
        jobs = self._spaces.watched_jobs(study_id)
        if not jobs:  # the watch may lag behind another scheduler, so ask
            jobs = self._spaces.ask("rayjobs", study_id)
        if not jobs:
            return Seen(False, "its RayJob is gone")
        job = max(jobs, key=lambda job: (not finished(job), attempt_of(job), job["metadata"]["creationTimestamp"]))
        if waits(job):
            return replace(judge(job, (), self._patience, time.time()), reason=self._waiting(job))
        pods = [pod for pod in self._spaces.of(job).pods.items() if study_of(pod) == study_id]
        return judge(job, pods, self._patience, time.time())

    def stop(self, study_id: str) -> None:
        """Deletes the study's RayJobs with all they own.

        Raises:
            Unavailable: The API server does not answer.
        """
        for job in self._spaces.ask("rayjobs", study_id):
            self._spaces.of(job).api.delete("rayjobs", job)

    def kill(self, study_id: str) -> None:
        """Deletes the study's RayJobs; `seen` says alive until their pods have ended, for up to five minutes.

        Raises:
            Unavailable: The API server does not answer.
        """
        if study_id not in self._killed:
            pods = {pod["metadata"]["uid"] for pod in self._living(study_id)}
            self._killed[study_id] = (time.monotonic(), pods)
        self.stop(study_id)

    def collect(self, study_ids: Collection[str]) -> None:
        """Deletes RayJobs of studies that no longer exist.

        Raises:
            Unavailable: The API server does not answer.
        """
        for job in self._spaces.ask("rayjobs"):
            age = time.time() - moment(job["metadata"]["creationTimestamp"])
            if study_of(job) not in study_ids and age >= self._config.orphan_seconds:
                _LOG.warning("RayJob %s belongs to no known study: deleted", job["metadata"]["name"])
                self._spaces.of(job).api.delete("rayjobs", job)

    def close(self) -> None:
        """Closes connections; RayJobs keep running."""
        self._spaces.close()

    def _living(self, study_id: str) -> list[Item]:
        """The study's pods whose containers have not ended."""
        pods = self._spaces.ask("pods", study_id)
        return [pod for pod in pods if pod.get("status", {}).get("phase") not in ("Failed", "Succeeded")]

    def _dying(self, study_id: str) -> list[str]:
        """Names of the pods of a killed driver that have not ended; none after `_PODS_S` seconds."""
        if study_id not in self._killed:
            return []
        since, uids = self._killed[study_id]
        left = sorted(pod["metadata"]["name"] for pod in self._living(study_id) if pod["metadata"]["uid"] in uids)
        late = time.monotonic() - since > _PODS_S
        if late and left:
            _LOG.warning("study %s goes on without waiting for pods any longer: %s", study_id, ", ".join(left))
        if late or not left:
            del self._killed[study_id]
            return []
        return left

    def _make(self, space: Namespace, config: Config, launch: Launch, name: str) -> Item:
        """Creates a RayJob under a free name, or returns the one that another scheduler has just created under it."""
        folder = config.folder(launch.project, self._folder)
        body = manifests.rayjob(config, launch, name, space.api.namespace, url=self._url, folder=folder)
        try:
            job = space.api.create("rayjobs", body)
        except Conflict:  # another scheduler was faster
            return space.api.get("rayjobs", name)
        _LOG.info("driver of study %s, attempt %d: RayJob %s", launch.study_id, launch.attempt, name)
        return job

    def _keep(self, space: Namespace, launch: Launch, job: Item) -> Item:
        """Lets a waiting RayJob keep its place in the queue: it will run the driver of the next attempt."""
        if attempt_of(job) >= launch.attempt:
            return job
        change = {"metadata": {"uid": job["metadata"]["uid"], "labels": {ATTEMPT: str(launch.attempt)}}}
        return space.api.merge("rayjobs", job["metadata"]["name"], change)

    def _waiting(self, job: Item) -> str:
        """Why a RayJob waits in its queue; asks Kueue again after `_ASK_KUEUE_S` seconds."""
        uid = job["metadata"]["uid"]
        asked_at, text = self._told.get(uid, (float("-inf"), ""))
        if time.monotonic() - asked_at < _ASK_KUEUE_S:
            return text
        queue, api = kueue.queue_of(job), self._spaces.of(job).api
        try:
            if api.knows(kueue.GROUP):
                workloads, _ = api.items("workloads", f"{kueue.JOB_UID}={uid}")
                text = kueue.reason(job, workloads, time.time())
            else:
                text = f"it waits in the queue {queue}, but this cluster has no Kueue ({kueue.GROUP}): install it"
        except DriftlineError as error:  # it waits in any case; the reason is a courtesy
            _LOG.info("why RayJob %s waits is not known at the moment: %s", job["metadata"]["name"], error)
            text = text or f"it waits in the queue {queue}"
        self._told = {key: told for key, told in self._told.items() if time.monotonic() - told[0] < 6 * _ASK_KUEUE_S}
        self._told[uid] = (time.monotonic(), text)
        return text

    def _free_name(self, launch: Launch, rayjobs: Collection[Item]) -> str:
        """An unused name for this attempt: an earlier RayJob of it may have failed, or be terminating."""
        taken = {job["metadata"]["name"] for job in rayjobs}
        again = 0
        while (name := job_name(launch.study_id, launch.attempt, again)) in taken:
            again += 1
        return name


def _own(api: Api, objects: Mapping[str, Item], new: bool) -> None:
    """Applies what a RayJob owns.

    An object that exists before its RayJob belonged to a deleted RayJob of the same name. The garbage collector may
    have decided to delete it, and some versions do so even after it has changed; it is then created again.
    """
    existing = [kind for kind, body in objects.items() if not api.apply(kind, body)]
    if new and existing:
        time.sleep(_COLLECTED_S)
        for kind in existing:
            api.apply(kind, objects[kind])
