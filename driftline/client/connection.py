"""A connection to a service that repeats requests while the service is unavailable or overloaded.

Repeating a request is harmless: reads change nothing, drivers' writes are idempotent, and a new study or a retry of
trials carries an idempotency key. So a request that finds the service unavailable or overloaded is sent again, with
growing pauses, until the client's patience ends. If the service sends Retry-After, the pause is at least that long.
The error at the end has `details["arrived"]`: whether the service may have done what was asked.
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import httpx
from pydantic import BaseModel

from driftline.backoff import pauses
from driftline.client import network_settings
from driftline.client.environment import http_address
from driftline.client.network_settings import Proxy, proxy_for
from driftline.errors import DriftlineError, InvalidSpec, RateLimited, Unavailable, from_problem
from driftline.wire.access import Whoami

PAUSE_S = 0.1
"""Seconds before the second attempt; pauses double up to `LONGEST_PAUSE_S`, and each is shortened at random."""

LONGEST_PAUSE_S = 5.0
JITTER = 0.5
WAIT_S = 2.0
"""Seconds without an answer after which `on_wait` is called."""

SILENCE_S = 45.0
"""Seconds of silence after which a stream counts as dead; a service sends a heartbeat every 15 seconds."""

_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError, httpx.UnsupportedProtocol)
"""Failures of a request that certainly changed nothing."""

_Model = TypeVar("_Model", bound=BaseModel)


class Connection:
    """A connection to a service; thread-safe.

    Args:
        url: Address of the service: ``http://host:port``.
        token: Bearer token; None sends none.
        socket: Path of the service's Unix socket; `url` then only names the service.
        transport: Replaces the network in tests: `httpx.MockTransport`, or any synchronous transport.
        timeout_s: Seconds to wait for an answer.
        patience_s: Seconds for which a request is repeated while the service is unavailable.
        on_wait: Called with the URL, in another thread, when a request has no answer after `WAIT_S`; at most once.
        sleep: Replaces `time.sleep` in tests.

    Raises:
        InvalidSpec: The address or the token is invalid, or a variable of `network_settings`.
    """

    _proxies: ClassVar[bool] = True
    """Whether to use a proxy that the environment names; never for this machine."""

    def __init__(
        self,
        url: str = "http://driftline",
        token: str | None = None,
        *,
        socket: str | Path | None = None,
        transport: httpx.BaseTransport | None = None,
        timeout_s: float = 30.0,
        patience_s: float = 15.0,
        on_wait: Callable[[str], object] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        try:
            self.url = http_address(url) or ""
            address = httpx.URL(self.url)
        except (ValueError, httpx.InvalidURL) as error:
            raise InvalidSpec("url", str(error)) from None
        if token and not (token.isascii() and token.isprintable() and " " not in token):
            raise InvalidSpec("token", "must be one line of ASCII characters without spaces, got something else")
        self._proxy: Proxy | None = None
        if transport is None and socket is not None:
            transport = httpx.HTTPTransport(uds=str(socket), verify=False)
        elif transport is None:
            self._proxy = proxy_for(address) if self._proxies else None
            transport = network_settings.transport(address, self._proxy)
        self._http = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=httpx.Timeout(timeout_s),
            transport=transport,
            trust_env=False,  # `network_settings` has read the environment
        )
        self._patience_s = patience_s
        self._on_wait = on_wait
        self._sleep = sleep

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections."""
        self._http.close()

    def ready(self) -> bool:
        """Whether the service and its database respond; sends one request."""
        try:
            return self._http.get("/readyz", timeout=5.0).status_code == 200
        except httpx.TransportError:
            return False

    def _get(self, path: str, model: type[_Model], **options: Any) -> _Model:
        return model.model_validate_json(self._request("GET", path, **options).content)

    def _post(self, path: str, body: object, model: type[_Model], **options: Any) -> _Model:
        content = (
            body.model_dump_json() if isinstance(body, BaseModel) else json.dumps(body) if body is not None else None
        )
        return model.model_validate_json(self._request("POST", path, content=content, **options).content)

    def _pages(self, path: str, params: Mapping[str, Any], model: type[_Model]) -> Iterator[_Model]:
        token: str | None = None
        while True:
            page = self._get(path, model, params={**params, "page_token": token} if token else params)
            yield page
            token = getattr(page, "next_page_token", None)
            if token is None:
                return

    def whoami(self) -> Whoami:
        """What this connection's token allows."""
        return self._get("/v1/whoami", Whoami)

    def _request(self, method: str, path: str, *, content: str | bytes | None = None, **options: Any) -> httpx.Response:
        with self._announced():
            return self._repeated(method, path, content=content, **options)

    @contextlib.contextmanager
    def _announced(self) -> Iterator[None]:
        """Calls `on_wait` if the block takes longer than `WAIT_S`."""
        if self._on_wait is None:
            yield
            return
        timer = threading.Timer(WAIT_S, self._announce)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _announce(self) -> None:
        on_wait, self._on_wait = self._on_wait, None
        if on_wait is not None:
            on_wait(self.url)

    def _repeated(
        self, method: str, path: str, *, content: str | bytes | None = None, **options: Any
    ) -> httpx.Response:
        headers = dict(options.pop("headers", {}))
        if content is not None:
            headers.setdefault("Content-Type", "application/json")
        deadline = time.monotonic() + self._patience_s
        arrived = False
        for pause in self._pauses():
            retry_s = 0.0
            try:
                answer = self._http.request(method, path, content=content, headers=headers, **options)
            except httpx.TransportError as error:
                last: DriftlineError = self._silent(error)
                last.__cause__ = error
                arrived = arrived or not isinstance(error, _NOT_SENT)
            else:
                refusal = self._refusal(answer)
                if refusal is None:
                    return answer
                last = refusal
                if not isinstance(last, Unavailable):
                    raise last
                arrived = arrived or not isinstance(last, RateLimited)
                retry_s = retry_after(answer)
                headers["Connection"] = "close"  # so that another replica may answer later attempts
            pause = max(pause, retry_s * random.uniform(1.0, 1.2))
            if time.monotonic() + pause >= deadline:
                last.details["arrived"] = arrived
                raise last
            self._sleep(pause)
        raise AssertionError("pauses never end")

    def _refusal(self, answer: httpx.Response) -> DriftlineError | None:
        """The error of an answer, or None; after `Unavailable` the request is sent again."""
        if answer.is_success:
            return None
        if self._proxy is not None and "json" not in answer.headers.get("Content-Type", ""):  # the proxy's own answer
            status = f"{answer.status_code} {answer.reason_phrase}".strip()
            problem = f"{self.url} must answer through the proxy {self._proxy}, got {status}"
            return Unavailable(problem) if answer.is_server_error else InvalidSpec(self._proxy.variable, problem)
        return failure(answer)

    def _pauses(self) -> Iterator[float]:
        return pauses(PAUSE_S, LONGEST_PAUSE_S, jitter=JITTER)

    def _silent(self, error: httpx.TransportError) -> Unavailable:
        way = self.url if self._proxy is None else f"{self.url} through the proxy {self._proxy}"
        advice = ": set SSL_CERT_FILE to your certificates" if "CERTIFICATE_VERIFY_FAILED" in str(error) else ""
        return Unavailable(f"no answer from {way}: {error or type(error).__name__}{advice}")


def retry_after(answer: httpx.Response) -> float:
    """Seconds to wait according to Retry-After; 0 without that header, or if it holds a date."""
    text = answer.headers.get("Retry-After", "")
    try:
        return max(0.0, float(text))
    except ValueError:
        return 0.0


def failure(answer: httpx.Response) -> DriftlineError:
    """The error that a response describes."""
    try:
        body = answer.json()
    except ValueError:
        body = {"title": answer.reason_phrase}
    return from_problem(answer.status_code, body if isinstance(body, dict) else {})
