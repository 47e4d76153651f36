"""The namespaces in which a launcher starts studies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from driftline.errors import DriftlineError, Forbidden, Unavailable
from service.launchers.kubernetes.api_server import Api, Item
from service.launchers.kubernetes.informer import Mirror
from service.launchers.kubernetes.naming import selector, study_of
from service.launchers.kubernetes.pod_problems import starved

Kind = Literal["rayjobs", "pods"]


@dataclass(frozen=True)
class Namespace:
    """One namespace: its API, and copies of its RayJobs and pods."""

    api: Api
    jobs: Mirror
    pods: Mirror


class Namespaces:
    """All namespaces of a launcher. A namespace that is closed to the service affects only its own studies.

    Args:
        api: The namespace of projects that name none.
        names: The namespaces of other projects.
        instance: The label by which this Driftline's objects are selected.
    """

    def __init__(self, api: Api, names: Iterable[str], instance: str) -> None:
        self._instance = instance
        self._own = api.namespace
        apis = {name: api.within(name) for name in sorted(set(names) - {api.namespace})}
        every = selector(instance)
        self._all = {  # a pod that ran out of memory may be deleted before anybody looks
            name: Namespace(
                namespace_api,
                Mirror(namespace_api, "rayjobs", every),
                Mirror(namespace_api, "pods", every, remembered=starved),
            )
            for name, namespace_api in {api.namespace: api, **apis}.items()
        }

    def named(self, name: str | None) -> Namespace:
        """The namespace of this name; None is that of projects that name none."""
        return self._all[name or self._own]

    def of(self, item: Mapping[str, Any]) -> Namespace:
        """The namespace of an object."""
        return self.named(item["metadata"].get("namespace"))

    def watched_jobs(self, study_id: str) -> list[Item]:
        """The RayJobs of a study, as of a moment ago.

        Raises:
            Unavailable: No namespace could be seen for too long.
        """
        return [job for job in self._gather(lambda space: space.jobs.items(), Unavailable) if study_of(job) == study_id]

    def ask(self, kind: Kind, study_id: str | None = None) -> list[Item]:
        """The objects of a study, or of all studies, as the API server has them now.

        Raises:
            Forbidden: The service may look into none of the namespaces.
            Unavailable: The API server does not answer, or the service may no longer look into the namespace in which
                it last saw objects of the study, and there are none in the others.
        """
        label_selector = selector(self._instance, study_id)

        def look(space: Namespace) -> list[Item]:
            try:
                return space.api.items(kind, label_selector)[0]
            except Forbidden as error:
                last = (space.pods if kind == "pods" else space.jobs).last()
                if any(study_of(item) == study_id for item in last):
                    text = f"namespace {space.api.namespace}, which had {kind} of study {study_id}, is closed: {error}"
                    raise Unavailable(text) from error
                raise

        return self._gather(look, Forbidden)

    def close(self) -> None:
        """Ends the watches and closes connections."""
        for space in self._all.values():
            space.jobs.close()
            space.pods.close()
            space.api.close()

    def _gather(self, look: Callable[[Namespace], list[Item]], forgiven: type[DriftlineError]) -> list[Item]:
        """The objects of all namespaces. Without any, raises errors; forgiven ones only if no namespace answered."""
        items: list[Item] = []
        errors: list[DriftlineError] = []
        for space in self._all.values():
            try:
                items += look(space)
            except DriftlineError as error:
                errors.append(error)
        serious = [error for error in errors if not isinstance(error, forgiven)]
        if not items and (serious or len(errors) == len(self._all)):
            raise (serious or errors)[0]
        return items
