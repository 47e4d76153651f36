"""Changes of a pod for which there is no setting. The chart patches its own pods by the same rules (`_patch.tpl`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from driftline.errors import InvalidSpec
from driftline.study.validation import Section

OWN_LABELS = ("driftline.io/", "ray.io/", "app.kubernetes.io/managed-by", "app.kubernetes.io/instance")
"""Beginnings of labels by which pods are found."""


class PodMetadata(Section):
    """Labels and annotations that a pod has besides the launcher's."""

    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _apart(self) -> PodMetadata:
        for key in self.labels:
            if key.startswith(OWN_LABELS):
                raise InvalidSpec("labels", f"must not hold {key}, by which Driftline or KubeRay finds its pods")
        return self


class PodPatch(Section):
    """Changes of a pod. What `spec` holds is checked by Kubernetes only."""

    metadata: PodMetadata = PodMetadata()
    spec: dict[str, Any] = Field(default_factory=dict)

    def check(self, path: str, container: str) -> None:
        """Refuses changes of a container that is not there.

        Args:
            path: Key of the pod's settings.
            container: The name of its container.

        Raises:
            InvalidSpec: A changed container has another name, and no image.
        """
        for entry in self.spec.get("containers", []):
            if entry.get("name") != container and not entry.get("image"):
                rule = f"must name {container}, or have an image, got {entry.get('name')} without one"
                raise InvalidSpec(f"{path}.pod_patch.spec.containers", rule)

    def document(self) -> dict[str, Any]:
        """The patch as in a pod, without what is empty."""
        return self.model_dump(exclude_defaults=True)


def patched(old: Any, new: Any, key: str = "") -> Any:
    """A value with a patch applied.

    Objects are merged, and lists of named objects by name (volumeMounts by mountPath). New init containers go first.
    A volume is replaced as a whole, and so is anything else.

    Args:
        old: The value; it is not changed.
        new: The patch.
        key: The key under which both stand.

    Examples:
        >>> patched({"containers": [{"name": "a", "image": "one"}]}, {"containers": [{"name": "a", "tty": True}]})
        {'containers': [{'name': 'a', 'image': 'one', 'tty': True}]}
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return {**old, **{name: patched(old[name], part, name) if name in old else part for name, part in new.items()}}
    by = "mountPath" if key == "volumeMounts" else "name"
    if not (isinstance(old, list) and isinstance(new, list)) or not all(_has(item, by) for item in [*old, *new]):
        return new
    items = {item[by]: item for item in old}
    names = list(items)
    added = []
    for item in new:
        name = item[by]
        if name not in items:
            added.append(name)
        elif key != "volumes":
            item = patched(items[name], item)
        items[name] = item
    return [items[name] for name in (added + names if key == "initContainers" else names + added)]


def _has(item: Any, key: str) -> bool:
    return isinstance(item, Mapping) and key in item
