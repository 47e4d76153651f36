"""Read access to a cluster for checks, and their findings."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from driftline.errors import Forbidden, NotFound
from service.launchers.kubernetes.api_server import Api

Item = dict[str, Any]
Status = Literal["ok", "problem", "unknown"]


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        check: The check's name.
        status: ok, problem, or unknown where the cluster does not show it.
        text: What was seen.
        advice: What to do; "" if there is nothing to do.
    """

    check: str
    status: Status
    text: str
    advice: str = ""


@dataclass(frozen=True)
class Right:
    """A right on a kind of object; an empty namespace stands for the whole cluster."""

    namespace: str
    group: str
    resource: str
    verb: str
    name: str = ""

    def __str__(self) -> str:
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        named = f" {self.name}" if self.name else ""
        return f"{self.verb} {kind}{named}" + (f" in {self.namespace}" if self.namespace else "")


class ClusterAccess:
    """Questions to a cluster; nothing is changed, and no object is kept.

    Args:
        api: Access to its API server; the namespace is that of objects that name none.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self.namespace = api.namespace
        self.may = cache(self._may)
        self.kinds = cache(self._kinds)

    def get(self, path: str) -> Item:
        """The object at a path.

        Raises:
            NotFound: There is none.
            Forbidden: The account may not see it.
        """
        return self._api.request("GET", path)

    def listed(self, path: str, labels: str = "") -> list[Item]:
        """All objects at a path, with these labels.

        Raises:
            Forbidden: The account may not see them.
        """
        query = {"labelSelector": labels} if labels else None
        return list(self._api.request("GET", path, query=query)["items"])

    def exists(self, path: str) -> bool:
        """Whether the account sees an object at a path."""
        try:
            self.get(path)
        except (Forbidden, NotFound):
            return False
        return True

    def preferred(self, group: str) -> str | None:
        """The preferred version of an API group; None if the cluster does not have the group."""
        try:
            return self._api.preferred(group)
        except NotFound:
            return None

    def try_create(self, path: str, body: Item) -> None:
        """Has the API server validate a new object, unknown fields included, without storing it.

        Raises:
            InvalidSpec: The API server refuses the object.
            NotFound: The namespace does not exist.
            Forbidden: The account may not create it, or admission refuses it.
        """
        self._api.request("POST", path, query={"dryRun": "All", "fieldValidation": "Strict"}, body=body)

    def _may(self, right: Right) -> bool:
        """Whether the account has a right."""
        attributes = {
            "namespace": right.namespace,
            "group": right.group,
            "resource": right.resource.partition("/")[0],
            "subresource": right.resource.partition("/")[2],
            "verb": right.verb,
            "name": right.name,
        }
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        return bool(self._api.request("POST", path, body=review)["status"]["allowed"])

    def _kinds(self, api_version: str) -> dict[str, tuple[str, bool]]:
        """Kind -> (name of its resource, whether it belongs to a namespace); empty for an unknown API version."""
        path = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        try:
            resources = self.get(path)["resources"]
        except NotFound:
            return {}
        return {
            resource["kind"]: (resource["name"], resource["namespaced"])
            for resource in resources
            if "/" not in resource["name"]
        }
