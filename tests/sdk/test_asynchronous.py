"""The SDK for asyncio: as `Client`, awaited, and nothing missing."""

import asyncio
import inspect
import json
from typing import Any

import pytest
import yaml

from driftline import Study
from driftline.errors import NotFound
from driftline.sdk.asynchronous import AsyncClient, AsyncJob
from driftline.sdk.client import Client
from driftline.sdk.job import Job, StudyFailed
from driftline.sdk.offline import OfflineService
from tests.commands.conftest import STUDY

RESULT: dict[str, Any] = {"study": "small", "definitions": {}, "methods": {}}


def test_a_job_awaited() -> None:
    async def work() -> None:
        offline = OfflineService(RESULT)
        async with AsyncClient(transport=offline) as client:
            job = await client.submit(Study.from_json(json.loads(json.dumps(STUDY))), key="k")
            assert (await job.wait()).id == (await client.job("small")).id
            assert [one.id for one in await client.jobs()] == [job.id]
            assert (await job.frontier()).data == RESULT
            assert [event.data["state"] async for event in job.events()] == ["SUCCEEDED"]
            assert [line async for line in job.logs(follow=True)] == []
            assert await job.trials() == []
            assert await job.curves() == {}
            assert await job.best_in_search() == {}
            with pytest.raises(NotFound, match="nothing to recommend"):
                await job.best()
            assert await job.first_difference(await client.job("small")) is None
            assert [record.id for record in await client.records()] == [job.id]
            assert (await (await job.extend(trials_per_method=9)).record()).state == "SUCCEEDED"
            await client.delete("small")
            assert await client.jobs() == []

    asyncio.run(work())


def test_failures_and_cancellation() -> None:
    async def work() -> None:
        study = Study.from_yaml(yaml.safe_dump(STUDY))
        async with AsyncClient(transport=OfflineService(RESULT, ends="FAILED", reason="no GPU")) as client:
            with pytest.raises(StudyFailed, match="no GPU"):
                await (await client.submit(study)).wait()
        async with AsyncClient(transport=OfflineService(RESULT, ends="RUNNING")) as client:
            job = await client.submit(study)
            with pytest.raises(TimeoutError, match="still running"):
                await job.wait(timeout_s=0.0)
            waiting = asyncio.ensure_future(job.wait())
            await asyncio.sleep(0.05)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

    asyncio.run(work())


@pytest.mark.parametrize(("plain", "awaited"), [(Job, AsyncJob), (Client, AsyncClient)])
def test_everything_is_there(plain: type, awaited: type) -> None:
    left_out = {"state", "mlflow_url"}  # of the record
    names = {name for name in vars(plain) if not name.startswith("_")} - left_out
    assert names <= set(vars(awaited))
    for name in names - {"wait"}:
        ours, theirs = inspect.signature(getattr(awaited, name)), inspect.signature(getattr(plain, name))
        assert list(ours.parameters) == list(theirs.parameters), name
