"""Keeps MLflow up to date with all studies of a service."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from driftline.errors import NotFound
from driftline.wire.ids import holder
from driftline.wire.records import STUDY_FINISHED
from service.pauses import Pauses
from service.recorder.run_contents import STUDY_TAG
from service.recorder.study_artifacts import missing
from service.recorder.study_lease import StudyLease
from service.recorder.study_recorder import Recorder, experiments
from service.recorder.tracking import connect_to_record, forget
from service.store.deletions import Deletion
from service.store.store import Store
from service.store.stored_studies import Glance

_FORGET = 20  # maximum number of deleted studies that a sync handles


class StudiesRecorder:
    """Records every study that MLflow does not show in full. Several may run at once: each study has a lease.

    Args:
        store: The store, which also records what has been written.
        tracking_uri: URL of an MLflow server, or ``sqlite:///`` and a file.
        artifact_root: URI or folder for artifacts of new experiments; None leaves it to the server.
        public_url: Address of the MLflow server for browsers, if it differs from `tracking_uri`.
        client: Makes the MLflow client; tests replace it.

    Attributes:
        complete: Whether MLflow showed all studies in full after the last sync.
        failed: Why studies could not be recorded or deleted in the last sync; they are tried again after a pause.
    """

    def __init__(
        self,
        store: Store,
        tracking_uri: str,
        artifact_root: str | None = None,
        *,
        public_url: str = "",
        client: Callable[[str], Any] = connect_to_record,
    ) -> None:
        self._store = store
        self._uri = tracking_uri
        self._artifact_root = artifact_root
        self._public_url = public_url
        self._client = client
        self._recorders: dict[str, Recorder] = {}
        self._done: dict[str, int] = {}  # finished study to the version that MLflow shows
        self._lost: set[str] = set()  # runs that the store knows and MLflow does not
        self._after = ""  # the last deleted study of the previous page of this round through all of them
        self._asks: Any = None
        self._holder = holder()
        self._pauses = Pauses(time.monotonic)
        self.complete = False
        self.failed: list[str] = []

    def sync(self) -> bool:
        """Write what is new in any study; an error in one does not hold up the others.

        Returns:
            Whether anything was written or deleted.
        """
        wrote = False
        self.complete, self.failed = True, []
        for study_id, glance in self._store.studies.glances().items():
            wrote |= self._tried(study_id, partial(self._sync, study_id, glance))
        deletions = self._store.deletions.pending("mlflow", _FORGET, self._after)
        for deletion in deletions:
            wrote |= self._tried(deletion.study_id, partial(self._forget, deletion))
        self._after = deletions[-1].study_id if len(deletions) == _FORGET else ""
        return wrote

    def _tried(self, study_id: str, work: Callable[[], bool]) -> bool:
        """The outcome of `work`; False if it fails, or has failed and is in a pause."""
        if self._pauses.holds(study_id):
            self.complete = False
            return False
        try:
            wrote = work()
        except Exception as error:
            self.complete = False
            self.failed.append(f"study {study_id}: {error or type(error).__name__}")
            self._pauses.lengthen(study_id)
            return False
        self._pauses.end(study_id)
        return wrote

    def _sync(self, study_id: str, glance: Glance) -> bool:
        """Writes what is new in a study."""
        try:
            doubts = study_id in self._recorders and self._recorders[study_id].doubts
            if glance.state in STUDY_FINISHED and not doubts and self._shown(study_id) == glance.version:
                self._recorders.pop(study_id, None)
                return False
            if study_id not in self._recorders:
                self._recorders[study_id] = self._recorder(study_id)
            wrote = self._recorders[study_id].sync()
            self.complete &= self._recorders[study_id].shows(glance)
        except NotFound:  # deleted in the meantime
            self._recorders.pop(study_id, None)
            return False
        return wrote

    def _forget(self, deletion: Deletion) -> bool:
        """Moves a deleted study's experiments to MLflow's trash; False if another recorder writes about the study."""
        study_id = deletion.study_id
        lease = StudyLease(self._store, study_id, self._holder)
        if not lease.take():
            return False
        self._recorders.pop(study_id, None)
        self._done.pop(study_id, None)
        if self._asks is None:
            self._asks = self._client(self._uri)
        for name in experiments(deletion.name, study_id):
            forget(self._asks, name, {STUDY_TAG: study_id})
        self._store.deletions.done(study_id, "mlflow")
        lease.release()
        return True

    def _recorder(self, study_id: str) -> Recorder:
        return Recorder(
            self._store, study_id, self._uri, self._artifact_root, public_url=self._public_url, client=self._client
        )

    def _shown(self, study_id: str) -> int | None:
        """The version at which MLflow shows the whole of a finished study, with its files; None when it does not.

        MLflow is asked once for each study that was recorded earlier: its database may have been lost since.
        """
        if study_id not in self._done or study_id in self._recorders:
            if missing(self._store, study_id):
                return None
            for entry in self._store.recorder_state.read(study_id, "ended"):
                if study_id not in self._recorders and not self._has(entry.run_id):
                    self._lost.add(entry.run_id)
                if entry.run_id not in self._lost:
                    self._done[study_id] = entry.version
        return self._done.get(study_id)

    def _has(self, run_id: str) -> bool:
        if self._asks is None:
            self._asks = self._client(self._uri)
        try:
            self._asks.get_run(run_id)
        except Exception as error:
            if getattr(error, "error_code", "") == "RESOURCE_DOES_NOT_EXIST":
                return False
            raise
        return True
