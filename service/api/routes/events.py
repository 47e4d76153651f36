"""A study's events as they happen, as server-sent events."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from service.api.context import Asked, Context, ReadableStudy
from service.schemas.records import STUDY_FINISHED, Event

ROUTER = APIRouter(prefix="/v1/studies/{study_id}", tags=["studies"])
_AT_ONCE = 500
_STREAM = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # else nginx collects a stream


@ROUTER.get(
    "/events",
    operation_id="streamEvents",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "Events of the study; `event: end` when it has finished and there will be no more.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        }
    },
)
async def events(
    study_id: ReadableStudy,
    asked: Asked,
    request: Request,
    last: Annotated[int, Header(alias="Last-Event-ID", ge=0, le=2**63 - 1, description="Go on after this event.")] = 0,
) -> StreamingResponse:
    """What happens to the study, from its beginning or after an event; a comment every 15 seconds of silence."""
    stream = _stream(asked, study_id, last, request)
    return StreamingResponse(stream, media_type="text/event-stream", headers=_STREAM)


async def _stream(asked: Context, study_id: str, last: int, request: Request) -> AsyncIterator[str]:
    yield "retry: 1000\n\n"
    spoken = time.monotonic()
    while not asked.stopping.is_set():
        state = (await run_in_threadpool(asked.store.glance, study_id)).state  # before the events: none is missed
        found = await run_in_threadpool(asked.store.events, study_id, after=last, limit=_AT_ONCE)
        if found:
            yield "".join(map(_line, found))
            last, spoken = found[-1].id, time.monotonic()
        if len(found) == _AT_ONCE:
            continue
        if state in STUDY_FINISHED:
            yield "event: end\ndata: {}\n\n"
            return
        if time.monotonic() - spoken >= asked.heartbeat_s:
            yield ": still here\n\n"
            spoken = time.monotonic()
        if await request.is_disconnected():
            return
        await asyncio.sleep(asked.poll_s)


def _line(event: Event) -> str:
    return f"id: {event.id}\nevent: {event.kind}\ndata: {event.model_dump_json()}\n\n"
