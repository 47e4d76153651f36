"""The Kubernetes API as plain JSON, with Driftline's errors."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import urllib3
from kubernetes import client, config

from driftline.errors import Conflict, DriftlineError, Forbidden, InvalidSpec, NotFound, Unauthorized, Unavailable
from service.launchers.kubernetes.naming import MANAGER

Item = dict[str, Any]
_PATHS = {
    "rayjobs": "/apis/ray.io/v1",
    "workloads": "/apis/kueue.x-k8s.io/{preferred}",
    "pods": "/api/v1",
    "secrets": "/api/v1",
    "serviceaccounts": "/api/v1",
    "networkpolicies": "/apis/networking.k8s.io/v1",
}
_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_TIMEOUT_S = 20.0
_ERRORS: dict[int, type[DriftlineError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Conflict,
}


class Expired(DriftlineError):
    """The version to watch from is too old: list the objects again."""


class Api:
    """One namespace of a cluster.

    Args:
        connection: The API server's address, and credentials.
        namespace: The namespace.
        timeout_s: Seconds an answer may take.
    """

    def __init__(self, connection: client.Configuration, namespace: str, *, timeout_s: float = _TIMEOUT_S) -> None:
        connection.retries = urllib3.Retry(0)  # the caller retries, and knows when that is right
        self._client = client.ApiClient(connection)
        self.namespace = namespace
        self._timeout_s = timeout_s

    @classmethod
    def connect(cls, kubeconfig: str | None, context: str | None, namespace: str | None) -> Api:
        """The cluster that this process runs in, or the one of a kubeconfig.

        Args:
            kubeconfig: Path of a kubeconfig; None uses the pod's own access, or the usual kubeconfig.
            context: Context in the kubeconfig; None is its current one.
            namespace: The namespace; None is that of the pod, or of the context.

        Raises:
            InvalidSpec: This is no pod, and there is no kubeconfig that can be read.
        """
        connection = client.Configuration()
        try:
            if kubeconfig is None and context is None and _OWN_NAMESPACE.exists():
                config.load_incluster_config(client_configuration=connection)
                return cls(connection, namespace or _OWN_NAMESPACE.read_text(encoding="utf-8").strip())
            config.load_kube_config(kubeconfig, context, client_configuration=connection)
            contexts, current = config.list_kube_config_contexts(kubeconfig)
        except config.ConfigException as error:
            raise InvalidSpec("kubeconfig", f"must name a cluster, or this must run in a pod: {error}") from None
        chosen = next((item for item in contexts if item["name"] == context), current)
        return cls(connection, namespace or chosen["context"].get("namespace") or "default")

    def within(self, namespace: str) -> Api:
        """Another namespace of the same cluster, over the same connections."""
        api = copy.copy(self)
        api.namespace = namespace
        return api

    def close(self) -> None:
        """Closes all connections, those of other namespaces too."""
        self._client.close()

    def knows(self, group: str) -> bool:
        """Whether the cluster has this API group.

        Raises:
            Unavailable: The API server does not answer.
        """
        try:
            self.preferred(group)
        except NotFound:
            return False
        return True

    def get(self, kind: str, name: str) -> Item:
        """One object.

        Raises:
            NotFound: There is none.
        """
        return self.request("GET", self._path(kind, name))

    def items(self, kind: str, selector: str) -> tuple[list[Item], str]:
        """All objects with these labels, and the version from which to watch them."""
        listing = self.request("GET", self._path(kind), query={"labelSelector": selector})
        version, group = listing["apiVersion"], listing["kind"].removesuffix("List")
        return [{"apiVersion": version, "kind": group, **item} for item in listing["items"]], listing["metadata"][
            "resourceVersion"
        ]

    def watch(self, kind: str, selector: str, version: str, seconds: int) -> Iterator[tuple[str, Item]]:
        """The changes to objects with these labels after a version, for this many seconds.

        Yields:
            (ADDED, MODIFIED, DELETED or BOOKMARK, the object).

        Raises:
            Expired: The version is too old.
            Unavailable: The connection broke.
        """
        query = {
            "labelSelector": selector,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
        }
        limits = (self._timeout_s, seconds + self._timeout_s)
        answer = self._call("GET", self._path(kind), query=query, timeout=limits)
        try:
            rest = b""
            for chunk in answer.stream(65536, decode_content=False):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in filter(None, lines):
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise _error(event["object"].get("code", 500), event["object"])
                    yield event["type"], event["object"]
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unavailable(f"the watch of {kind} broke: {error}") from error
        finally:
            answer.close()  # first: a connection released with half an answer in it would be reused
            answer.release_conn()

    def apply(self, kind: str, body: Item) -> bool:
        """Creates an object, or changes it to match the body (server-side apply, as field manager `MANAGER`).

        Returns:
            Whether it was created.

        Raises:
            InvalidSpec: The API server rejects the body.
        """
        answer = self._call(
            "PATCH",
            self._path(kind, body["metadata"]["name"]),
            query={"fieldManager": MANAGER, "force": "true"},
            body=body,
            content="application/apply-patch+yaml",
            timeout=self._timeout_s,
        )
        answer.drain_conn()
        return bool(answer.status == 201)

    def create(self, kind: str, body: Item) -> Item:
        """Creates an object; as in `apply`, a field that its kind does not have is an error (from Kubernetes 1.25).

        Raises:
            InvalidSpec: The API server rejects the body.
            Conflict: An object with this name exists.
        """
        query = {"fieldManager": MANAGER, "fieldValidation": "Strict"}
        return self.request("POST", self._path(kind), query=query, body=body)

    def merge(self, kind: str, name: str, change: Mapping[str, Any]) -> Item:
        """Changes some fields of an object.

        Raises:
            NotFound: There is none.
            Conflict: It is not the object, or the version of it, that the change names.
        """
        query = {"fieldManager": MANAGER}
        content = "application/merge-patch+json"
        return self.request("PATCH", self._path(kind, name), query=query, body=change, content=content)

    def delete(self, kind: str, item: Mapping[str, Any]) -> None:
        """Deletes exactly this object, and what it owns; does nothing if it was deleted or replaced before."""
        options = {"propagationPolicy": "Background", "preconditions": {"uid": item["metadata"]["uid"]}}
        try:
            self.request("DELETE", self._path(kind, item["metadata"]["name"]), body=options)
        except (NotFound, Conflict):
            return

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content: str = "application/json",
    ) -> Item:
        """One request to any path of the API server, and the JSON of its answer.

        Raises:
            DriftlineError: The class that fits the answer's status; `Unavailable` if none came.
        """
        answer = self._call(method, path, query=query, body=body, content=content, timeout=self._timeout_s)
        try:
            item: Item = json.loads(answer.data)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise Unavailable(f"an answer of the Kubernetes API broke off: {error}") from error
        return item

    def preferred(self, group: str) -> str:
        """The cluster's preferred version of an API group.

        Raises:
            NotFound: The cluster does not have the group.
        """
        return str(self.request("GET", f"/apis/{group}")["preferredVersion"]["version"])

    def _path(self, kind: str, name: str | None = None) -> str:
        base = _PATHS[kind]
        if base.endswith("{preferred}"):
            base = base.format(preferred=self.preferred(base.split("/")[2]))
        return f"{base}/namespaces/{self.namespace}/{kind}" + (f"/{name}" if name else "")

    def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content: str = "application/json",
        timeout: float | tuple[float, float],
    ) -> Any:
        headers = {"Accept": "application/json", "Content-Type": content}
        request = self._client.param_serialize(
            method, path, query_params=list((query or {}).items()), header_params=headers, auth_settings=["BearerToken"]
        )
        url, sent = request[1], request[2]
        try:
            answer = self._client.call_api(method, url, sent, body, _request_timeout=timeout).response
            if not 200 <= answer.status < 300:
                raise _error(answer.status, _status(answer.data))
        except client.ApiException as error:
            raise _error(int(error.status or 503), {"message": str(error.reason)}) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unavailable(f"the Kubernetes API must answer, got {type(error).__name__}: {error}") from error
        return answer


def _status(data: bytes) -> Mapping[str, Any]:
    try:
        status = json.loads(data)
    except ValueError:
        status = {"message": data[:300].decode(errors="replace")}
    return status if isinstance(status, dict) else {"message": str(status)}


def _error(code: int, status: Mapping[str, Any]) -> DriftlineError:
    """Driftline's error for an answer of the API server."""
    text = f"Kubernetes answers {code} {status.get('reason', '')}: {status.get('message', '')}"
    if code == 410:
        return Expired(text)
    if code in (400, 422) or "field not declared in schema" in text:
        return InvalidSpec("", text)
    if code == 429 or code >= 500:
        return Unavailable(text)
    return _ERRORS.get(code, DriftlineError)(text)
