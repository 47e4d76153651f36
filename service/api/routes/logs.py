"""Logs of a study's drivers: sent by the driver, kept in the store, readable with the study."""

from typing import Annotated

from fastapi import APIRouter, Query

from driftline.wire.logs import LogPage, NewLines, StoredLines
from service.api.dependencies import AppContext, DrivenStudy, Nonce, ReadableStudy
from service.api.pagination import BY_NUMBER, PageSize, PageToken, page, position
from service.api.request_bodies import DriverRoute

ROUTER = APIRouter(prefix="/v1/studies/{study_id}", tags=["logs"], route_class=DriverRoute)


@ROUTER.post("/logs", operation_id="sendLogs")
def send(study_id: DrivenStudy, body: NewLines, app_context: AppContext, nonce: Nonce = "") -> StoredLines:
    """Add lines to the study's log, which keeps the newest ones. Sending the last batch again adds nothing."""
    return StoredLines(stored=app_context.store.logs.write(study_id, body, nonce=nonce))


@ROUTER.get("/logs", operation_id="getLogs")
def read(
    study_id: ReadableStudy,
    app_context: AppContext,
    after: Annotated[int, Query(ge=0, le=2**63 - 1, description="Only lines with a greater id.")] = 0,
    page_size: PageSize = 200,
    page_token: PageToken = None,
) -> LogPage:
    """The lines of the study's log in order. For later lines, ask again with `after` set to the last line's id."""
    listing = ("logs", study_id)
    start = position(listing, page_token, BY_NUMBER)
    rows = app_context.store.logs.read(study_id, after=after if start is None else start, limit=page_size + 1)
    shown, following = page(listing, rows, page_size, lambda line: line.id)
    return LogPage(lines=shown, next_page_token=following)
