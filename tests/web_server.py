"""A web server of the tests' own, which says who asked it for what."""

import functools
import http.server
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


class QuietHandler(http.server.BaseHTTPRequestHandler):
    """Answers requests, and logs none."""

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@contextmanager
def port_of(handler: type[QuietHandler], secure: ssl.SSLContext | None = None) -> Iterator[int]:
    """The port of 127.0.0.1 on which a server with this handler listens, until the block ends."""

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """Clients that leave are expected."""

    server = Server(("127.0.0.1", 0), handler)
    if secure is not None:
        server.socket = secure.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=functools.partial(server.serve_forever, poll_interval=0.01))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class WebServer:
    """A running server.

    Attributes:
        port: where it listens, on 127.0.0.1.
        asked: the paths of all GET requests.
        answers: what to do for a path.
    """

    def __init__(self) -> None:
        self.port = 0
        self.asked: list[str] = []
        self.answers: dict[str, Answer] = {}

    def url(self, path: str, scheme: str = "http") -> str:
        return f"{scheme}://127.0.0.1:{self.port}{path}"

    def put(self, path: str, body: bytes, **headers: str) -> None:
        self.answers[path] = functools.partial(_sent, body, 200, headers)

    def redirect(self, path: str, to: str, status: int = 302) -> None:
        self.answers[path] = functools.partial(_sent, b"", status, {"Location": to})


@contextmanager
def serving(secure: ssl.SSLContext | None = None) -> Iterator[WebServer]:
    """A server until the block ends."""
    found = WebServer()

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            found.asked.append(self.path)
            found.answers.get(self.path, functools.partial(_sent, b"", 404, {}))(self)

        def do_HEAD(self) -> None:
            found.answers.get(self.path, functools.partial(_sent, b"", 404, {}))(self)

    with port_of(Handler, secure) as found.port:
        yield found


def _sent(body: bytes, status: int, headers: dict[str, str], handler: http.server.BaseHTTPRequestHandler) -> None:
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **headers}.items():
        handler.send_header(name, value)
    handler.end_headers()
    if handler.command == "GET":
        handler.wfile.write(body)
