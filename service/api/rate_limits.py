"""Limits of a service: sizes, rates, and default quotas of projects."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar
from weakref import WeakValueDictionary

from anyio import CapacityLimiter, to_thread
from pydantic import Field

from driftline.errors import RateLimited, Unavailable
from driftline.study.validation import Section
from driftline.wire.access import Quota
from service.bucket import Bucket

_BUCKETS = 10_000  # the tokens used last; others start with a full bucket again
_AGAIN_S = 3.0  # Retry-After while all turns are taken
_Result = TypeVar("_Result")


class Limits(Section):
    """Limits of a service; None is no limit.

    Attributes:
        body_bytes: Largest body of a request, and largest size of a report's curves after decompression; the largest
            are a driver's reports about a wide pack.
        study_bytes: Largest study that may be submitted.
        requests_per_second: Long-run rate of a token's requests, at each replica of the API.
        burst: Requests that a token may send at once after a pause.
        studies: Default quota of a project: unfinished studies.
        trials: Default quota: trials in unfinished studies.
        gpu_hours: Default quota: GPU-hours used in total.
        gpu_hours_pause: Default quota: whether studies are paused when the GPU-hours are used up.
        retention_days: Default quota: days after which a finished study is deleted.
        archive_bytes: Packed files of the programs of a project's studies, in bytes.
    """

    body_bytes: int = Field(default=64 * 2**20, ge=1024)
    study_bytes: int = Field(default=2**20, ge=1024)
    requests_per_second: float | None = Field(default=100.0, gt=0)
    burst: int = Field(default=500, ge=1)
    studies: int | None = Field(default=None, ge=0)
    trials: int | None = Field(default=None, ge=0)
    gpu_hours: float | None = Field(default=None, ge=0)
    gpu_hours_pause: bool = False
    retention_days: float | None = Field(default=None, gt=0, le=36_500)
    archive_bytes: int | None = Field(default=2**30, ge=0)

    def quota(self) -> Quota:
        """The default quota of a project."""
        return Quota.model_validate({name: getattr(self, name) for name in Quota.model_fields})


class Rates:
    """A token bucket for each bearer token or client address.

    Args:
        per_second: Long-run rate of requests; None allows everything.
        burst: Capacity of a bucket.
        clock: A monotonic clock, in seconds.
    """

    def __init__(self, per_second: float | None, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, key: str) -> None:
        """Allow one request.

        Raises:
            RateLimited: The bucket is empty.
        """
        if self._per_second is None:
            return
        now = self._clock()
        with self._lock:
            bucket = self._buckets.pop(key, None) or Bucket(self._per_second, self._burst, now)
            self._buckets[key] = bucket
            wait = bucket.take(now)
            if len(self._buckets) > _BUCKETS:
                self._buckets.popitem(last=False)
        if wait:
            rate = f"a token may send {self._per_second:g} requests a second, and {self._burst} at once"
            raise RateLimited(f"{rate}: wait {wait:.2g} s", retry_after=wait)


class Threads:
    """Threads for one kind of work, so that slow work does not use up the threads of other requests.

    Args:
        at_once: Number of threads.
    """

    def __init__(self, at_once: int) -> None:
        self._limiter = CapacityLimiter(at_once)

    async def run(self, work: Callable[[], _Result]) -> _Result:
        """Runs `work` in one of the threads, when one is free."""
        return await to_thread.run_sync(work, limiter=self._limiter)


class Checking:
    """Threads that check studies; no project can occupy all of them. Use from one event loop.

    Args:
        at_once: How many studies are checked at the same time.
        per_project: How many of them may belong to one project.
        patience_s: How long a request waits for its turn, and then for a thread.
    """

    def __init__(self, at_once: int = 4, per_project: int = 1, patience_s: float = 10.0) -> None:
        self._threads = Threads(at_once)
        self._free = asyncio.Semaphore(at_once)
        self._per_project = per_project
        self._patience_s = patience_s
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()  # of projects with requests

    @asynccontextmanager
    async def turn(self, project: str) -> AsyncIterator[None]:
        """Hold one of the project's turns. Taken before the body is read, so that waiting costs no memory.

        Raises:
            RateLimited: No turn became free in time.
        """
        turns = self._turns.setdefault(project, asyncio.Semaphore(self._per_project))
        if not await self._acquired(turns):
            text = f"at most {self._per_project} of a project's studies are checked at a time, and others come first"
            raise RateLimited(f"{text}: try again later", retry_after=_AGAIN_S)
        try:
            yield
        finally:
            turns.release()

    async def run(self, work: Callable[[], _Result]) -> _Result:
        """Runs `work` in one of the threads; the caller holds a turn.

        Raises:
            Unavailable: No thread became free in time.
        """
        if not await self._acquired(self._free):
            raise Unavailable("the service is busy checking other studies: try again later", retry_after=_AGAIN_S)
        try:
            return await self._threads.run(work)
        finally:
            self._free.release()

    async def _acquired(self, semaphore: asyncio.Semaphore) -> bool:
        try:
            async with asyncio.timeout(self._patience_s):
                return await semaphore.acquire()
        except TimeoutError:
            return False
