"""A study's events as they happen, as server-sent events."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Request
from fastapi.responses import StreamingResponse
from fastapi.security.utils import get_authorization_scheme_param

from service.api.dependencies import Allowed, Asked, ReadableStudy

ROUTER = APIRouter(prefix="/v1/studies/{study_id}", tags=["studies"])
_STREAM = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # else nginx collects a stream


async def _opened(
    study_id: ReadableStudy,
    asked: Asked,
    allowed: Allowed,
    request: Request,
    last: Annotated[int, Header(alias="Last-Event-ID", ge=0, le=2**63 - 1, description="Go on after this event.")] = 0,
) -> AsyncIterator[AsyncIterator[str]]:
    _, token = get_authorization_scheme_param(request.headers.get("Authorization"))
    with asked.streams.opened(study_id, allowed, token, last) as text:
        yield text


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
async def events(text: Annotated[AsyncIterator[str], Depends(_opened, scope="request")]) -> StreamingResponse:
    """What happens to the study, from its beginning or after an event; a comment every 15 seconds of silence.

    A token may have a limited number of streams open; 429 beyond. A stream also ends when its token does, within some
    seconds and without `event: end`.
    """
    return StreamingResponse(text, media_type="text/event-stream", headers=_STREAM)
