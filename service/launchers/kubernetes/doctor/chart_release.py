"""What is to run on the cluster: the chart's objects, and the launcher's settings among them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from driftline.errors import InvalidSpec
from driftline.study.yaml_files import parse
from service.launchers.kubernetes.config import Config
from service.launchers.kubernetes.doctor.cluster_access import ClusterAccess, Item

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class ChartRelease:
    """What is to run.

    Attributes:
        objects: The chart's objects; empty if only the settings are known.
        settings: The launcher's settings; None if they are not known, or if studies do not run on Kubernetes.
    """

    objects: tuple[Item, ...] = ()
    settings: Config | None = None

    def of_kind(self, kind: str) -> list[Item]:
        """The objects of a kind."""
        return [item for item in self.objects if item["kind"] == kind]

    def variants(self, cluster: ClusterAccess) -> Iterator[tuple[str, str, str, Config]]:
        """(namespace, project, pool, settings) of each project with each of its pools."""
        for project, pool, config in self.settings.variants() if self.settings else ():
            yield config.namespace or cluster.namespace, project, pool, config


def read_manifest(text: str) -> ChartRelease:
    """Reads what `helm template` or `helm get manifest` prints for Driftline's chart.

    Raises:
        InvalidSpec: The text is something else.
    """
    try:
        documents = list(yaml.load_all(text, Loader=_LOADER))  # a SafeLoader
    except yaml.YAMLError as error:
        raise InvalidSpec("MANIFEST", f"must be YAML: {' '.join(str(error).split())}") from error
    objects = [item for item in documents if item]
    if not all(isinstance(item, dict) and {"apiVersion", "kind", "metadata"} <= item.keys() for item in objects):
        raise InvalidSpec("MANIFEST", "must hold objects of Kubernetes, with apiVersion, kind and metadata")
    files = [item["data"]["launcher.yaml"] for item in objects if "launcher.yaml" in (item.get("data") or {})]
    if len(files) != 1:
        rule = "must be what `helm template` or `helm get manifest` prints for one release of Driftline's chart"
        raise InvalidSpec("MANIFEST", f"{rule}, got {len(files)} ConfigMaps with launcher.yaml")
    return ChartRelease(tuple(objects), read_settings(files[0], "launcher.yaml"))


def read_settings(text: str, origin: str) -> Config | None:
    """Reads the launcher's settings; None for {}, the settings of local drivers.

    Raises:
        InvalidSpec: The settings are invalid.
    """
    document = parse(text, origin)
    return Config.from_json(document) if document else None
