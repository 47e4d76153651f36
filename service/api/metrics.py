"""Prometheus metrics: requests, studies, trials, leases, the recorder's lag, the scheduler's looks.

Every process serves its own. Labels are methods, routes, statuses and states, never projects, studies or people. The
store is read when Prometheus scrapes, at most every few seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from driftline.errors import DriftlineError
from service.store.stats import Overview
from service.store.store import Store

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histogram's buckets."""

_FRESH_S = 2.0


class Looks(Protocol):
    """Counters of a scheduler."""

    looks: int
    looked_at: float

    @property
    def acting(self) -> bool:
        """Whether it held the lock at its last look."""


class Metrics:
    """The metrics of this process.

    Args:
        store: Source of the counts of studies and trials.

    Attributes:
        requests: Requests by method, route and status.
        seconds: Duration of requests by method and route, without event streams.
        refused: Requests with an unknown token.
    """

    def __init__(self, store: Store) -> None:
        self._registry = CollectorRegistry()
        labels = ("method", "route", "status")
        self.requests = Counter(
            "driftline_http_requests", "Requests that were answered.", labels, registry=self._registry
        )
        self.seconds = Histogram(
            "driftline_http_request_seconds",
            "Seconds until the answer was sent.",
            labels[:2],
            buckets=SECONDS,
            registry=self._registry,
        )
        self.refused = Counter("driftline_auth_failures", "Requests with an unknown token.", registry=self._registry)
        self._registry.register(_Stored(store))

    def watch(self, scheduler: Looks) -> None:
        """Add the metrics of a scheduler in this process."""
        self._registry.register(_Scheduler(scheduler))

    def text(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self._registry)


class Counted:
    """ASGI middleware that counts requests by the route that answered them.

    Args:
        app: The app to call.
        metrics: Where to count.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and count it when it is done."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, stream, start = 500, False, time.perf_counter()

        async def noted(message: Message) -> None:
            nonlocal status, stream
            if message["type"] == "http.response.start":
                status = message["status"]
                stream = any(value.startswith(b"text/event-stream") for _, value in message.get("headers", ()))
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            route = getattr(scope.get("route"), "path_format", "none")
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._metrics.requests.labels(method, route, str(status)).inc()
            if not stream:
                self._metrics.seconds.labels(method, route).observe(time.perf_counter() - start)


_METHODS = frozenset({"GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"})


class _Stored:
    """Counts from the store; only `driftline_store_up` 0 while the database does not answer."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._seen: Overview | None = None
        self._seen_at = float("-inf")

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that registering does not read the store."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """The current counts."""
        seen = self._look()
        yield GaugeMetricFamily("driftline_store_up", "Whether the database answers.", value=float(seen is not None))
        if seen is None:
            return
        for name, text, counts in (
            ("driftline_studies", "Studies by state.", seen.studies),
            ("driftline_trials", "Trials by state.", seen.trials),
            ("driftline_driver_leases", "Leases of drivers: held, or expired without being released.", seen.leases),
        ):
            family = GaugeMetricFamily(name, text, labels=["state"])
            for state, count in counts.items():
                family.add_metric([state], float(count))
            yield family
        yield GaugeMetricFamily(
            "driftline_recorder_studies_behind", "Studies that MLflow does not show in full.", value=float(seen.behind)
        )
        yield GaugeMetricFamily(
            "driftline_recorder_lag_seconds", "Age of the oldest change that MLflow does not show.", value=seen.lag_s
        )
        for name, text, size in (
            ("driftline_curve_rows", "Rows of curves in the database, as last measured.", seen.curves.rows),
            ("driftline_curve_bytes", "Bytes in these rows.", seen.curves.bytes),
        ):
            yield GaugeMetricFamily(name, text, value=float(size))

    def _look(self) -> Overview | None:
        with self._lock:
            if time.monotonic() - self._seen_at >= _FRESH_S:
                try:
                    self._seen = self._store.stats.overview()
                except DriftlineError:
                    self._seen = None
                self._seen_at = time.monotonic()
            return self._seen


class _Scheduler:
    """Metrics of a scheduler in this process."""

    def __init__(self, scheduler: Looks) -> None:
        self._scheduler = scheduler

    def describe(self) -> Iterable[Metric]:
        """Nothing."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """How often it has looked, when it last did, and whether it acts."""
        scheduler = self._scheduler
        yield CounterMetricFamily(
            "driftline_scheduler_looks", "How often this scheduler has looked for work.", value=float(scheduler.looks)
        )
        yield GaugeMetricFamily(
            "driftline_scheduler_last_look_timestamp_seconds",
            "When this scheduler last looked for work.",
            value=scheduler.looked_at,
        )
        yield GaugeMetricFamily(
            "driftline_scheduler_acting",
            "Whether this scheduler holds the lock and acts.",
            value=float(scheduler.acting),
        )
