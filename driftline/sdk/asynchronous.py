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
import time
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from driftline.results.modelled_time import Time
from driftline.results.recorded_table import RecordedTable
from driftline.results.show.escaped_text import escaped
from driftline.sdk.frames import CurvesByTrial, TrialRecords
from driftline.sdk.frontier import Frontier, Recommendation
from driftline.sdk.job import POLL_S, RESTING, Job, StudyFailed
from driftline.sdk.remote import RemoteStudies
from driftline.study.spec import Study
from driftline.wire.budgets import CheckedStudy
from driftline.wire.logs import LogLine
from driftline.wire.records import Event, StudyRecord

_Item = TypeVar("_Item")


class AsyncJob:
    """One study in a service, for asyncio; see `Job`.

    Args:
        job: The synchronous job.

    Attributes:
        id: Id of the study.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self.id = job.id

    async def record(self) -> StudyRecord:
        """The study as it is stored now."""
        return await asyncio.to_thread(self._job.record)

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
            record = await self.record()
            if record.state == "FAILED":
                raise StudyFailed(f"study {record.name!r} failed: {escaped(record.reason)}")
            if record.state in RESTING:
                return self
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"study {record.name!r} is still {record.state.lower()}; it continues")
            await asyncio.sleep(POLL_S)

    async def best(self, label: str | None = None, *, cost: float | None = None) -> Recommendation:
        """What to run for a cost, and what quality to expect; see `Job.best`."""
        return await asyncio.to_thread(self._job.best, label, cost=cost)

    async def best_in_search(self) -> dict[str, float]:
        """The best final quality of any search trial of each label so far; see `Job.best_in_search`."""
        return await asyncio.to_thread(self._job.best_in_search)

    async def trials(
        self, label: str | None = None, phase: str | None = None, state: str | None = None
    ) -> TrialRecords:
        """Its trials, or those of a label, a phase or a state; a list with ``to_frame()``."""
        return await asyncio.to_thread(self._job.trials, label, phase, state)

    async def curves(self, *trials: str) -> CurvesByTrial:
        """Curves by trial id, one list per metric; of all trials unless some are named. Has ``to_frame()``."""
        return await asyncio.to_thread(self._job.curves, *trials)

    async def table(self) -> RecordedTable:
        """Its ended trials as a table; see `Job.table`."""
        return await asyncio.to_thread(self._job.table)

    async def frontier(self, *others: AsyncJob, quality: str | None = None, cost: str | Time | None = None) -> Frontier:
        """The frontiers of all labels so far; see `Job.frontier`."""
        jobs = [other._job for other in others]
        return await asyncio.to_thread(self._job.frontier, *jobs, quality=quality, cost=cost)

    async def compare(self, first: str, second: str) -> dict[str, Any]:
        """Compares two labels at equal budgets."""
        return await asyncio.to_thread(self._job.compare, first, second)

    async def first_difference(self, other: AsyncJob) -> str | None:
        """The first trial that differs from another study's, and in what; None if both have the same trials."""
        return await asyncio.to_thread(self._job.first_difference, other._job)

    async def pause(self) -> Self:
        """Asks the study to save checkpoints and stop."""
        await asyncio.to_thread(self._job.pause)
        return self

    async def resume(self) -> Self:
        """Continues a paused or failed study."""
        await asyncio.to_thread(self._job.resume)
        return self

    async def cancel(self) -> Self:
        """Cancels the study for good."""
        await asyncio.to_thread(self._job.cancel)
        return self

    async def delete(self) -> None:
        """Deletes the study with everything that belongs to it; see `Job.delete`."""
        await asyncio.to_thread(self._job.delete)

    async def extend(self, *, trials_per_method: int | None = None, seeds: int | None = None) -> Self:
        """Gives the study a larger budget; see `Job.extend`."""
        await asyncio.to_thread(self._job.extend, trials_per_method=trials_per_method, seeds=seeds)
        return self

    async def retry(self, *trials: str) -> Self:
        """Runs FAILED trials again; see `Job.retry`."""
        await asyncio.to_thread(self._job.retry, *trials)
        return self

    async def logs(self, follow: bool = False, after: int = 0) -> AsyncIterator[LogLine]:
        """Yields the stored lines of the drivers' logs; see `Job.logs`."""
        async for line in _awaited(self._job.logs(follow, after)):
            yield line

    async def events(self, after: int = 0) -> AsyncIterator[Event]:
        """Yields the study's events as they happen; see `Job.events`."""
        async for event in _awaited(self._job.events(after)):
            yield event


class AsyncClient:
    """A connection to a Driftline service for asyncio.

    Args:
        url: Its address: ``https://driftline.example``.
        token: Bearer token; None sends none.
        transport: Replaces the network in tests: `driftline.sdk.offline.OfflineService`.
    """

    def __init__(
        self, url: str = "http://driftline", token: str | None = None, *, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._client = RemoteStudies(url, token, transport=transport)

    async def submit(self, study: Study, key: str | None = None) -> AsyncJob:
        """Submits a study; the same key again returns the study submitted with it before."""
        return AsyncJob(await asyncio.to_thread(self._client.submit, study, key))

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
        """Study id to the name of the token that submitted the study; without local studies."""
        return await asyncio.to_thread(self._client.owners)

    async def delete(self, study: str) -> None:
        """Deletes a study with everything that belongs to it; see `Client.delete`."""
        await (await self.job(study)).delete()

    async def close(self) -> None:
        """Closes the connection; studies continue."""
        await asyncio.to_thread(self._client.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def _awaited(items: Iterator[_Item]) -> AsyncIterator[_Item]:
    """The items of an iterator, each fetched in a thread."""
    end = object()
    while (item := await asyncio.to_thread(next, items, end)) is not end:
        yield item  # type: ignore[misc]
