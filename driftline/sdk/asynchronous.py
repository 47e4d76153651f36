"""The SDK for asyncio: the same names, awaited.

    async with AsyncClient("https://driftline.example", token="...") as client:
        job = await client.submit(study)
        await job.wait()
        async for line in job.logs():
            print(line.text)

Requests run in threads, with the same code as `Client`; a cancelled task stops waiting at once.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx

from driftline.results.modelled_time import Time
from driftline.sdk.client import Client
from driftline.sdk.frontier import Frontier
from driftline.sdk.job import POLL_S, Job, rests
from driftline.study.spec import Study
from driftline.wire.budgets import CheckedStudy
from driftline.wire.logs import LogLine
from driftline.wire.records import Event, StudyRecord

_Arguments = ParamSpec("_Arguments")
_Item = TypeVar("_Item")


def _in_thread(
    method: Callable[Concatenate[Job, _Arguments], _Item],
) -> Callable[Concatenate[AsyncJob, _Arguments], Coroutine[Any, Any, _Item]]:
    """The method of `Job`, run in a thread and awaited."""

    @functools.wraps(method)
    async def awaited(self: AsyncJob, /, *args: _Arguments.args, **options: _Arguments.kwargs) -> _Item:
        return await asyncio.to_thread(method, self._job, *args, **options)

    return awaited


def _returning_self(
    method: Callable[Concatenate[Job, _Arguments], Job],
) -> Callable[Concatenate[AsyncJob, _Arguments], Coroutine[Any, Any, AsyncJob]]:
    """The method of `Job`, run in a thread and awaited; returns the `AsyncJob`."""

    @functools.wraps(method)
    async def awaited(self: AsyncJob, /, *args: _Arguments.args, **options: _Arguments.kwargs) -> AsyncJob:
        await asyncio.to_thread(method, self._job, *args, **options)
        return self

    return awaited


class AsyncJob:
    """One study, for asyncio; see `Job`.

    Args:
        job: The synchronous job.

    Attributes:
        id: Id of the study.
    """

    record = _in_thread(Job.record)
    best = _in_thread(Job.best)
    best_in_search = _in_thread(Job.best_in_search)
    trials = _in_thread(Job.trials)
    curves = _in_thread(Job.curves)
    table = _in_thread(Job.table)
    compare = _in_thread(Job.compare)
    delete = _in_thread(Job.delete)
    pause = _returning_self(Job.pause)
    resume = _returning_self(Job.resume)
    cancel = _returning_self(Job.cancel)
    extend = _returning_self(Job.extend)
    retry = _returning_self(Job.retry)

    def __init__(self, job: Job) -> None:
        self._job = job
        self.id = job.id

    async def wait(self, timeout_s: float | None = None) -> Self:
        """Waits until the study has finished or is paused.

        Args:
            timeout_s: Seconds after which to give up waiting (the study continues); None waits forever.

        Raises:
            StudyFailed: The study has failed.
            TimeoutError: The study has not finished in time.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            if rests(await self.record(), deadline):
                await asyncio.to_thread(self._job.wait)  # a local study writes its files
                return self
            await asyncio.sleep(POLL_S)

    async def frontier(self, *others: AsyncJob, quality: str | None = None, cost: str | Time | None = None) -> Frontier:
        """The frontiers of all labels so far; see `Job.frontier`."""
        jobs = [other._job for other in others]
        return await asyncio.to_thread(self._job.frontier, *jobs, quality=quality, cost=cost)

    async def first_difference(self, other: AsyncJob) -> str | None:
        """The first trial that differs from another study's, and in what; None if both have the same trials."""
        return await asyncio.to_thread(self._job.first_difference, other._job)

    async def logs(self, follow: bool = False, after: int = 0) -> AsyncIterator[LogLine]:
        """Yields the stored lines of the drivers' logs; see `Job.logs`."""
        async for line in _awaited(self._job.logs(follow, after)):
            yield line

    async def events(self, after: int = 0) -> AsyncIterator[Event]:
        """Yields the study's events as they happen; see `Job.events`."""
        async for event in _awaited(self._job.events(after)):
            yield event


class AsyncClient:
    """`Client` for asyncio: studies run in a service if there is an address, otherwise in this process.

    Args:
        url: Address of a service; DRIFTLINE_URL by default.
        token: Bearer token; DRIFTLINE_TOKEN by default.
        out: For local studies: the folder in which each study has a folder of its name; DRIFTLINE_OUT or "out" by
            default.
        transport: Replaces the network in tests: `driftline.sdk.offline.OfflineService`.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        out: str | Path | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._client = Client(url, token, out=out, transport=transport)

    async def submit(self, study: Study, key: str | None = None, *, out: str | Path | None = None) -> AsyncJob:
        """Submits a study; see `Client.submit`."""
        return AsyncJob(await asyncio.to_thread(self._client.submit, study, key, out=out))

    async def validate(self, study: Study, *, estimate: bool = True) -> CheckedStudy:
        """Checks a study in full and estimates its cost; see `Client.validate`."""
        return await asyncio.to_thread(self._client.validate, study, estimate=estimate)

    async def job(self, study: str) -> AsyncJob:
        """Finds a submitted study by its id or its name (the newest of that name)."""
        return AsyncJob(await asyncio.to_thread(self._client.job, study))

    async def jobs(self) -> list[AsyncJob]:
        """All studies, newest first."""
        return [AsyncJob(job) for job in await asyncio.to_thread(self._client.jobs)]

    async def records(self) -> list[StudyRecord]:
        """The present records of all studies, newest first."""
        return await asyncio.to_thread(self._client.records)

    async def owners(self) -> dict[str, str]:
        """Study id to the name of the token that submitted the study."""
        return await asyncio.to_thread(self._client.owners)

    async def delete(self, study: str) -> None:
        """Deletes a study with everything that belongs to it; see `Client.delete`."""
        await (await self.job(study)).delete()

    async def close(self) -> None:
        """Closes the connection; local studies stop cleanly, those of a service continue."""
        await asyncio.to_thread(self._client.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


async def _awaited(items: Iterator[_Item]) -> AsyncIterator[_Item]:
    """The items of an iterator, each fetched in a thread."""
    end = object()
    while (item := await asyncio.to_thread(next, items, end)) is not end:
        yield item  # type: ignore[misc]
