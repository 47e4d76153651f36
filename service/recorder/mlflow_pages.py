"""MLflow's pages for reading: its own web app behind a token or its accounts, with the artifacts of given folders only.

MLflow's app trusts its users: whoever creates an experiment chooses its artifact location and then reads, or writes,
any file of the server. So nobody but an administrator of MLflow's accounts may do more than read, reads are a list of
routes, and the store of local artifacts opens no file outside the given folders, also not through a link. A class
around the app does all of that in the same process (`python -m service.recorder.mlflow_pages`).
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import re
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from service.recorder.own_artifacts import only_under

TOKEN = "DRIFTLINE_MLFLOW_TOKEN"
"""Environment variable with the server's token: every account of the machine can see arguments."""

COOKIE = "driftline-mlflow"

_READ = {
    "GET": re.compile(
        r"/|/health|/version|/get-artifact|/static-files/.+"
        r"|/(ajax-)?api/2\.0/mlflow/(experiments/(get|get-by-name|search)|runs/get|artifacts/list"
        r"|metrics/get-history|metrics/get-history-bulk|metrics/get-history-bulk-interval"
        r"|registered-models/search|model-versions/search|logged-models/[^/]+(/artifacts/(directories|files))?)"
        r"|/(ajax-)?api/2\.0/mlflow-artifacts/artifacts(/.+)?"
        r"|/(ajax-)?api/[23]\.0/mlflow/(server-info|users/current(/permissions)?)|/(ajax-)?api/3\.0/mlflow/traces/[^/]+"
    ),
    "POST": re.compile(
        r"/graphql|/(ajax-)?api/2\.0/mlflow/(experiments/(search|search-datasets)|runs/search|logged-models/search)"
        r"|/(ajax-)?api/3\.0/mlflow/(traces/(search|metrics)|datasets/search)"
    ),
}
_OWN_PASSWORD = re.compile(r"/(ajax-)?api/2\.0/mlflow/users/update-password")  # MLflow's accounts check whose it is

Scope = MutableMapping[str, Any]
Messages = Callable[..., Awaitable[Any]]
App = Callable[[Scope, Messages, Messages], Awaitable[None]]


class Refused(Exception):
    """A request that is not passed on: status, text, headers."""


class Guard:
    """An ASGI app around MLflow's: passes on what `admit` lets through, and no WebSocket.

    Args:
        app: MLflow's app.
        admit: Raises `Refused` for what may not reach the app.
    """

    def __init__(self, app: App, admit: Callable[[Scope], None]) -> None:
        self._app, self._admit = app, admit

    async def __call__(self, scope: Scope, receive: Messages, send: Messages) -> None:
        """Answers a request as an ASGI app does."""
        try:
            if scope["type"] == "http":
                self._admit(scope)
            elif scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
                return
        except Refused as refused:
            status, text, headers = refused.args
            headers = [(b"content-type", b"text/plain"), (b"cache-control", b"no-store"), *headers]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": text.encode()})
        else:
            await self._app(scope, receive, send)


def reads(scope: Scope) -> bool:
    """Whether a request is one of the known reads."""
    routes = _READ.get("GET" if scope["method"] == "HEAD" else scope["method"])
    return routes is not None and routes.fullmatch(scope["path"]) is not None


def holder_of(token: str) -> Callable[[Scope], None]:
    """Admits reads that bring the token: as a cookie, which ``/?token=...`` sets, or as a bearer token."""

    def admit(scope: Scope) -> None:
        headers = dict(scope["headers"])
        cookie = f"{COOKIE}-{scope['server'][1]}"  # browsers send a host's cookies to all of its ports
        tokens = [part.strip() for part in headers.get(b"cookie", b"").decode("latin-1").split(";")]
        tokens = [part.removeprefix(f"{cookie}=") for part in tokens if part.startswith(f"{cookie}=")]
        tokens.append(headers.get(b"authorization", b"").decode("latin-1").removeprefix("Bearer "))
        query_tokens = (
            parse_qs(scope["query_string"].decode("latin-1")).get("token", []) if scope["path"] == "/" else []
        )
        if any(_same(candidate, token) for candidate in query_tokens):
            value = f"{cookie}={token}; Path=/; HttpOnly; SameSite=Lax"
            raise Refused(303, "", [(b"location", b"/"), (b"set-cookie", value.encode())])
        if not any(_same(candidate, token) for candidate in tokens):
            raise Refused(401, "Open the link that the command printed: it holds the token of this start.\n", [])
        if not reads(scope):
            raise Refused(403, "This MLflow is for reading.\n", [])

    return admit


def with_account(is_administrator: Callable[[str], bool]) -> Callable[[Scope], None]:
    """Admits reads, and everything from an administrator. Passwords and grants are then checked by MLflow's accounts.

    Args:
        is_administrator: Whether an account of this name is one.
    """

    def admit(scope: Scope) -> None:
        if reads(scope) or (scope["method"] == "PATCH" and _OWN_PASSWORD.fullmatch(scope["path"])):
            return
        _, _, credentials = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
        try:
            name, colon, _ = base64.b64decode(credentials).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            name = colon = ""
        if not colon:
            raise Refused(401, "MLflow needs an account.\n", [(b"www-authenticate", b'Basic realm="mlflow"')])
        if not is_administrator(name):
            raise Refused(403, "Accounts are for reading; only an administrator may change something.\n", [])

    return admit


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def accounts_app() -> App:
    """MLflow with its accounts, as the chart starts it: ARTIFACTS names the folder or URL of all artifacts."""
    from mlflow.server.auth import create_app, store

    artifacts = os.environ["ARTIFACTS"]
    scheme, remote, _ = artifacts.partition("://")
    only_under([] if remote else [Path(artifacts)], [scheme] if remote else [])
    return Guard(create_app(), with_account(lambda name: store.has_user(name) and store.get_user(name).is_admin))


def _main(tracking_uri: str, port: int, roots: list[str]) -> None:
    """Serves a database to this machine until SIGTERM."""
    import uvicorn  # before MLflow's app, which then knows that it is a server
    from mlflow.server import handlers
    from mlflow.server.constants import ARTIFACT_ROOT_ENV_VAR, BACKEND_STORE_URI_ENV_VAR
    from mlflow.server.fastapi_app import app
    from mlflow.utils.file_utils import local_file_uri_to_path

    os.environ.update({BACKEND_STORE_URI_ENV_VAR: tracking_uri, ARTIFACT_ROOT_ENV_VAR: roots[0]})
    handlers.initialize_backend_stores(tracking_uri, default_artifact_root=roots[0])
    only_under([Path(local_file_uri_to_path(root)) for root in roots])  # type: ignore[no-untyped-call]
    guarded = Guard(app, holder_of(os.environ.pop(TOKEN)))
    uvicorn.run(guarded, host="127.0.0.1", port=port, ws="none", log_level="warning", access_log=False)


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
