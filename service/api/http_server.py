"""Runs the app with uvicorn in a thread of this process, on a unix socket or a port.

uvicorn waits without limit for the rest of a request's head, for a body that nobody reads and for a client that does
not read. Such a client costs one connection; time limits for it are the task of a proxy in front.
"""

import shutil
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Self

import uvicorn
from fastapi import FastAPI

from driftline.errors import Unavailable
from driftline.wire.driver_messages import CODE_HEADER, PROTOCOL, PROTOCOL_HEADER
from service.api.dependencies import Context
from service.api.metrics import Metrics
from service.code_digest import code_digest
from service.file_locks import own_folder

START_S = 20.0
STOP_S = 10.0
_PREFIX = "driftline-api-"
_LONGEST = 82  # characters of the folder's path: a socket's path may have about 100


class Server:
    """A running server; closing it leaves no socket, folder or thread behind.

    Installs no signal handlers, so that Ctrl-C reaches the caller.

    Args:
        app: The app from `create_app`.
        loopback: Use a loopback port even if unix sockets are available.
        port: The port; 0 takes a free one.
        host: Address to listen on instead of a unix socket: "127.0.0.1", "0.0.0.0", "::" for both families.
        trusted_proxies: Addresses and networks of proxies whose X-Forwarded-For header gives the client's address. From
            other senders the header is ignored, because a client could name any address.

    Attributes:
        url: Address to give to `ApiClient`.
        socket: Path of the unix socket; None on a loopback port.

    Raises:
        Unavailable: The server did not start.
    """

    def __init__(
        self,
        app: FastAPI,
        *,
        loopback: bool = False,
        port: int = 0,
        host: str | None = None,
        trusted_proxies: Sequence[str] = (),
    ) -> None:
        self._app = app
        self._folder: Path | None = None
        self._held: IO[str] | None = None  # the folder's lock
        self.socket: Path | None = None
        self._listeners = self._listen(host or ("127.0.0.1" if loopback else None), port)
        config = uvicorn.Config(
            app,
            http="h11",
            log_config=None,
            access_log=False,
            headers=[(PROTOCOL_HEADER, str(PROTOCOL)), (CODE_HEADER, code_digest())],
            lifespan="off",
            timeout_graceful_shutdown=2,
            timeout_keep_alive=60,
            proxy_headers=bool(trusted_proxies),  # uvicorn's default trusts loopback addresses
            forwarded_allow_ips=list(trusted_proxies),
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="driftline-api", daemon=True)
        self._failure: BaseException | None = None
        self._thread.start()
        self._wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def metrics(self) -> Metrics:
        """The app's metrics."""
        context: Context = self._app.state.context
        return context.metrics

    def close(self) -> None:
        """Stop: end streams, give running requests two seconds, remove the socket."""
        context: Context = self._app.state.context
        context.stopping.set()
        self._server.should_exit = True
        self._thread.join(STOP_S)
        if self._thread.is_alive():
            self._server.force_exit = True
            self._thread.join(STOP_S)
        for listener in self._listeners:
            listener.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._held is not None:
            self._held.close()

    def _listen(self, host: str | None, port: int) -> list[socket.socket]:
        if hasattr(socket, "AF_UNIX") and host is None:
            self._folder, self._held = own_folder(_PREFIX, _LONGEST)
            self.socket = self._folder / "api.sock"
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(str(self.socket))
            self.url = "http://driftline"
            listener.listen(128)
            return [listener]
        where = host or "127.0.0.1"
        listeners = [_listener(where, port)]
        port = listeners[0].getsockname()[1]
        shown = f"[{where}]" if ":" in where else where
        self.url = f"http://{shown}:{port}"
        if where == "::":  # through the socket for IPv6, clients of IPv4 would have addresses of IPv6
            try:
                listeners.append(_listener("0.0.0.0", port))
            except Unavailable:
                listeners[0].close()
                raise
        return listeners

    def _run(self) -> None:
        try:
            self._server.run(sockets=self._listeners)  # uvicorn handles signals only in the main thread
        except BaseException as error:
            self._failure = error

    def _wait(self) -> None:
        for _ in range(int(START_S / 0.01)):
            if self._server.started:
                return
            self._thread.join(0.01)
            if not self._thread.is_alive():
                break
        failure = self._failure or "it took too long"
        self.close()
        raise Unavailable(f"the API's server did not start in this process: {failure}")


def _listener(where: str, port: int) -> socket.socket:
    """A socket that listens on a port of an address; 0 takes a free one."""
    family = socket.AF_INET6 if ":" in where else socket.AF_INET
    # asyncio disables Nagle's algorithm only if the protocol is given explicitly; otherwise an answer sent in two parts
    # waits 40 ms for a delayed acknowledgement
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    try:
        listener.bind((where, port))
    except OSError as error:
        listener.close()
        raise Unavailable(f"port {port} of {where} must be free on this machine, got: {error}") from error
    listener.listen(128)
    return listener
