"""A study's events as they happen, as server-sent events."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Request
from fastapi.responses import StreamingResponse
from fastapi.security.utils import get_authorization_scheme_param

from service.api.dependencies import Allowed, AppContext, ReadableStudy

ROUTER = APIRouter(prefix="/v1/studies/{study_id}", tags=["studies"])
_STREAM = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # else nginx buffers the stream


async def _opened(
    study_id: ReadableStudy,
    app_context: AppContext,
    allowed: Allowed,
    request: Request,
    last: Annotated[int, Header(alias="Last-Event-ID", ge=0, le=2**63 - 1, description="Only events after this.")] = 0,
) -> AsyncIterator[AsyncIterator[str]]:
    _, token = get_authorization_scheme_param(request.headers.get("Authorization"))
    with app_context.streams.opened(study_id, allowed, token, last) as text:
        yield text


@ROUTER.get(
    "/events",
    operation_id="streamEvents",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "Events of the study; the last one is `event: end`, after the study has finished.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        }
    },
)
async def events(text: Annotated[AsyncIterator[str], Depends(_opened, scope="request")]) -> StreamingResponse:
    """Stream the study's events, from its beginning or after an event; a comment every 15 seconds of silence.

    The number of open streams per token is limited; 429 above that. A stream also ends within seconds after its token
    has expired or was revoked, without `event: end`.
    """
    return StreamingResponse(text, media_type="text/event-stream", headers=_STREAM)
