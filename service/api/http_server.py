"""The app under a real server in a thread of this process: on a unix socket, or a loopback port where there is none."""

import shutil
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import uvicorn
from fastapi import FastAPI

from driftline.errors import Unavailable
from service.api.dependencies import Context
from service.api.http_protocol import BoundedProtocol
from service.api.metrics import Metrics
from service.file_locks import own_folder

START_S = 20.0
STOP_S = 10.0
_PREFIX = "driftline-api-"
_LONGEST = 82  # of the folder: a socket's path may have about 100 characters


class Server:
    """A running service; leaves no socket, folder or thread behind when it is closed.

    Installs no signal handlers: Ctrl-C stays the caller's.

    Args:
        app: What `create_app` made.
        loopback: Use a loopback port even where there are unix sockets.
        port: Which one; 0 takes a free one.
        host: Address to listen on instead of a unix socket: "127.0.0.1", "0.0.0.0", "::".
        trusted_proxies: Addresses and networks of proxies, whose X-Forwarded-For is taken for the client's address.
            From anybody else the header is ignored: a client could name any address.

    Attributes:
        url: Address to give to `ApiClient`.
        socket: Path of the unix socket; None on a loopback port.

    Raises:
        Unavailable: It did not come up.
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
        self._held: IO[str] | None = None  # the lock of the folder, for as long as it is ours
        self.socket: Path | None = None
        self._listener = self._listen(host or ("127.0.0.1" if loopback else None), port)
        config = uvicorn.Config(
            app,
            http=BoundedProtocol,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=2,
            timeout_keep_alive=60,
            proxy_headers=bool(trusted_proxies),  # uvicorn's default trusts this machine
            forwarded_allow_ips=list(trusted_proxies),
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="driftline-api", daemon=True)
        self._failure: BaseException | None = None
        self._thread.start()
        self._wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def metrics(self) -> Metrics:
        """What the app counts."""
        context: Context = self._app.state.context
        return context.metrics

    def close(self) -> None:
        """Stop: streams end, running requests are finished (for two seconds), the socket goes away."""
        context: Context = self._app.state.context
        context.stopping.set()
        self._server.should_exit = True
        self._thread.join(STOP_S)
        if self._thread.is_alive():
            self._server.force_exit = True
            self._thread.join(STOP_S)
        self._listener.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._held is not None:
            self._held.close()

    def _listen(self, host: str | None, port: int) -> socket.socket:
        if hasattr(socket, "AF_UNIX") and host is None:
            self._folder, self._held = own_folder(_PREFIX, _LONGEST)
            self.socket = self._folder / "api.sock"
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(str(self.socket))
            self.url = "http://driftline"
        else:
            where = host or "127.0.0.1"
            family = socket.AF_INET6 if ":" in where else socket.AF_INET
            # asyncio turns Nagle's algorithm off only where the protocol is spelt out, and an answer that is sent in
            # two parts waits 40 ms for a delayed acknowledgement otherwise
            listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((where, port))
            except OSError as error:
                listener.close()
                raise Unavailable(f"port {port} of {where} must be free on this machine, got: {error}") from error
            shown = f"[{where}]" if ":" in where else where
            self.url = f"http://{shown}:{listener.getsockname()[1]}"
        listener.listen(128)
        return listener

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._listener])  # outside the main thread uvicorn leaves signals alone
        except BaseException as error:
            self._failure = error

    def _wait(self) -> None:
        for _ in range(int(START_S / 0.01)):
            if self._server.started:
                return
            self._thread.join(0.01)
            if not self._thread.is_alive():
                break
        failure = self._failure or "it did not start in time"
        self.close()
        raise Unavailable(f"the API's server must come up in this process, got {failure}")
