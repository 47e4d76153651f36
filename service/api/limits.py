"""What a service allows: sizes, rates, and how much a project may have unless an admin says otherwise."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from pydantic import Field

from driftline.errors import RateLimited
from driftline.study.validation import Section
from driftline.wire.access import Quota
from service.bucket import Bucket

_BUCKETS = 10_000  # the tokens that were used last; one that is forgotten starts with a full bucket


class Limits(Section):
    """Limits of a service; None is no limit.

    Attributes:
        body_bytes: Largest body of a request; the reports of a wide pack are the largest that a driver sends.
        requests_per_second: Requests a token may send in the long run, to each replica of the API.
        burst: Requests it may send at once after a pause.
        studies: Default quota of a project: studies that are not finished.
        trials: Default quota: trials that these may have in all.
        gpu_hours: Default quota: GPU-hours used since the beginning.
    """

    body_bytes: int = Field(default=64 * 2**20, ge=1024)
    requests_per_second: float | None = Field(default=100.0, gt=0)
    burst: int = Field(default=500, ge=1)
    studies: int | None = Field(default=None, ge=0)
    trials: int | None = Field(default=None, ge=0)
    gpu_hours: float | None = Field(default=None, ge=0)

    def quota(self) -> Quota:
        """What a project may have for which nothing else was set."""
        return Quota(studies=self.studies, trials=self.trials, gpu_hours=self.gpu_hours)


class Rates:
    """A token bucket for every bearer token: it fills at the long-run rate, and every request takes one out.

    Args:
        per_second: The long-run rate; None allows everything.
        burst: What a bucket holds.
        clock: Gives seconds that never go back.
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
