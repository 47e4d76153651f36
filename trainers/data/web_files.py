"""Reads files of web servers in a process that anybody may give URLs, and that may read only some of them.

Every redirect is compared with the prefixes again. The addresses of a host are looked up once, checked, and connected
to, so that a name cannot mean another machine in between. Certificates are checked; no proxy, cookie or password is
used. The connection to a server that is silent, slow or sends too much is closed.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from urllib.parse import urljoin, urlsplit

from trainers.data.url_prefixes import WEB, allowing, refuse_address
from trainers.values import shown

SILENT_S = 60.0
"""Seconds that a server may send nothing."""

WHOLE_S = 3600.0
"""Seconds within which a server must send a whole file."""

REDIRECTS = 5

_SLOW = f"the server must send the file within {WHOLE_S:.0f} s"
_MOVED = (301, 302, 303, 307, 308)
_PIECE = 2**20


class WebFile:
    """An answer of a web server whose body has not been read yet.

    Args:
        response: the answer.
        late: set when the time for the file is over.
    """

    def __init__(self, response: http.client.HTTPResponse, late: threading.Event) -> None:
        self._response, self._late = response, late

    @property
    def version(self) -> list[str | None] | None:
        """Headers that differ between versions of the file; None if the server sends no tag and no date."""
        tag, changed, size = (self._response.headers.get(name) for name in ("ETag", "Last-Modified", "Content-Length"))
        return None if tag is None and changed is None else [tag, changed, size]

    def pieces(self, most_bytes: float) -> Iterator[bytes]:
        """The content, piece by piece.

        Raises:
            OSError: the content is encoded for transfer, too large, too slow, or cut short.
        """
        coding = self._response.headers.get("Content-Encoding", "identity")
        if coding.lower() != "identity":
            raise OSError(f"the server must send the file as it is, got Content-Encoding {shown(coding)}")
        promised, size = self._response.length, 0
        require_size(promised or 0, most_bytes)
        while piece := self._response.read(_PIECE):
            size += len(piece)
            require_size(size, most_bytes)
            yield piece
        if self._late.is_set():
            raise OSError(_SLOW)
        if promised is not None and size < promised:
            raise OSError(f"the server must send {promised} bytes, got {size}")


def require_size(size: float, most_bytes: float) -> None:
    """Refuses data that are too large.

    Raises:
        OSError: the data are too large.
    """
    if size > most_bytes:
        raise OSError(f"must have at most {most_bytes / 2**30:.3g} GiB, what the cache keeps, got more")


@contextlib.contextmanager
def opened(url: str, prefixes: Sequence[str]) -> Iterator[WebFile]:
    """The answer for a URL, after redirects.

    Args:
        url: of a file.
        prefixes: the URL, and every URL to which it redirects, must begin with one of them.

    Raises:
        ValueError: a URL may not be read.
        OSError: the server has no such file, or does not send it.
    """
    deadline = time.monotonic() + WHOLE_S
    for _ in range(REDIRECTS + 1):
        with _answer(url, prefixes, deadline) as (response, late):
            if response.status == 200:
                yield WebFile(response, late)
                return
            target = response.headers.get("Location")
            if response.status not in _MOVED or target is None:
                raise OSError(f"the server must answer 200, got {response.status} {response.reason}")
            url = urljoin(url, target)
    raise OSError(f"the server must redirect at most {REDIRECTS} times, got more")


@contextlib.contextmanager
def _answer(
    url: str, prefixes: Sequence[str], deadline: float
) -> Iterator[tuple[http.client.HTTPResponse, threading.Event]]:
    """(the answer to one request, an event that is set when the time is over and the connection was cut)."""
    private = allowing(url, prefixes).private
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or WEB[parts.scheme]
    late = threading.Event()
    with _connected(host, port, private) as plain, contextlib.ExitStack() as stack:
        secure = parts.scheme == "https"
        context = ssl.create_default_context()
        sock = context.wrap_socket(plain, server_hostname=host, do_handshake_on_connect=False) if secure else plain
        stack.callback(sock.close)
        watch = threading.Timer(deadline - time.monotonic(), _cut, [sock, late])
        watch.daemon = True
        watch.start()
        stack.callback(watch.cancel)
        try:
            if isinstance(sock, ssl.SSLSocket):
                sock.do_handshake()
            connection = http.client.HTTPConnection(host, port)
            connection.sock = sock
            where = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("GET", where, headers={"Host": parts.netloc, "User-Agent": "driftline"})
            response = stack.enter_context(connection.getresponse())
            yield response, late
        except (http.client.HTTPException, OSError) as error:
            if late.is_set():
                raise OSError(_SLOW) from error
            if isinstance(error, TimeoutError):
                raise OSError(f"the server must send something every {SILENT_S:.0f} s") from error
            if isinstance(error, http.client.HTTPException):
                raise OSError(f"the server's answer is damaged: {type(error).__name__}: {error}") from error
            raise


def _connected(host: str, port: int, private: bool) -> socket.socket:
    """A connection to one of the host's addresses, all of which must be public unless `private`."""
    resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(where[0]) for _, _, _, _, where in resolved))
    for address in () if private else addresses:
        try:
            refuse_address(address)
        except ValueError as error:
            raise OSError(f"{shown(host)} {error}: only a prefix that begins with private: allows others") from None
    for number, address in enumerate(addresses, 1):
        try:
            return socket.create_connection((address, port), SILENT_S)
        except OSError:
            if number == len(addresses):
                raise
    raise OSError(f"{shown(host)} must have an address, got none")


def _cut(connection: socket.socket, late: threading.Event) -> None:
    """Shuts a connection down, which ends another thread's wait for data."""
    late.set()
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
