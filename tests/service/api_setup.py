"""A service on a unix socket, and clients of it."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from driftline.errors import InvalidSpec
from service.api.app import ApiOptions, create_app
from service.api.auth.tokens import Access, Tokens
from service.api.event_streams import StreamPace
from service.api.http_server import Server
from service.api.study_checks import CheckedStudy
from service.store.store import Store
from service.web.pages import add_pages
from tests.clients import EveryClient

POINTS: dict[str, Any] = {
    "name": "points",
    "task": {"name": "quadratic", "hessians": [[[1.0]], [[2.0]]], "centers": [[0.0], [1.0]]},
    "methods": [{"name": "fedavg", "space": {"client_lr": {"float": [0.01, 0.1]}, "server_lr": 1, "local_steps": 2}}],
    "budget": {"trials_per_method": 2, "rounds": 5, "seeds": 0},
}
"""A study that Driftline itself takes, and checks in no time."""

TOKENS = {
    "all": Access(),
    "reader": Access(scopes=frozenset({"read"})),
    "writer": Access(scopes=frozenset({"read", "write"})),
    "stranger": Access(project="other"),
}


def check(body: Mapping[str, Any]) -> CheckedStudy:
    """Takes every study with a name: what a study may be is tested elsewhere."""
    if "name" not in body:
        raise InvalidSpec("name", "must be given")
    text = json.dumps(body, sort_keys=True)
    return CheckedStudy(spec=dict(body), fingerprint=hashlib.sha256(text.encode()).hexdigest())


class FakeFrontier:
    """A result that says how often it was computed."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, study_id: str) -> dict[str, Any]:
        self.asked += 1
        return {"study": study_id, "asked": self.asked}


@dataclass
class Service:
    store: Store
    server: Server
    tokens: Tokens

    def client(self, token: str | None = "all", **options: Any) -> EveryClient:
        return EveryClient(self.server.url, token, socket=self.server.socket, **options)

    def http(self, token: str | None = "all") -> httpx.Client:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        transport = httpx.HTTPTransport(uds=str(self.server.socket)) if self.server.socket else None
        return httpx.Client(base_url=self.server.url, headers=headers, transport=transport, timeout=60)


@contextmanager
def running(store: Store, **options: Any) -> Iterator[Service]:
    """A service over the store, until the block ends."""
    tokens = Tokens(TOKENS, b"secret", store=store, issuer=options.pop("issuer", None))
    where = {name: options.pop(name) for name in ("loopback", "host", "port", "trusted_proxies") if name in options}
    fast = {"check": check, "frontier": FakeFrontier(), "pace": StreamPace(poll_s=0.02)}
    app = create_app(store, tokens, ApiOptions(**{**fast, **options}))
    add_pages(app)
    with Server(app, **where) as server:
        yield Service(store, server, tokens)


def pages(http: httpx.Client, path: str, key: str, size: int) -> list[list[Any]]:
    """All pages of a listing, each of this many rows at most."""
    found, params = [], {"page_size": str(size)}
    while True:
        page = http.get(path, params=params).json()
        found.append(list(page[key]))
        if page["next_page_token"] is None:
            return found
        params["page_token"] = page["next_page_token"]


def problem(response: httpx.Response, status: int, kind: str) -> dict[str, Any]:
    """The body of an answer that must be an error of this kind."""
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["type"] == f"urn:driftline:{kind}"
    assert body["status"] == status
    assert body["detail"]
    return body
