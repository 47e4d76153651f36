"""Trials, their curves, and what is computed from these."""

import json
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from service.api.cached import NOT_MODIFIED
from service.api.context import Asked, ReadableStudy
from service.api.paging import PageSize, PageToken, position, token
from service.schemas.curves import CurvesPage
from service.schemas.records import Phase, TrialPage, TrialRecord, TrialState

ROUTER = APIRouter(prefix="/v1/studies/{study_id}", tags=["trials"])


@ROUTER.get("/trials", operation_id="listTrials")
def trials(
    study_id: ReadableStudy,
    asked: Asked,
    label: Annotated[str | None, Query(description="Only this label's.")] = None,
    phase: Annotated[Phase | None, Query(description="Only this phase's.")] = None,
    state: Annotated[TrialState | None, Query(description="Only those in this state.")] = None,
    page_size: PageSize = 200,
    page_token: PageToken = None,
) -> TrialPage:
    """The study's trials in the order label, phase (search before front), number."""
    listing = ("trials", study_id, label, phase, state)
    found = asked.store.trials(
        study_id, label=label, phase=phase, state=state, after=_after(listing, page_token), limit=page_size + 1
    )
    return TrialPage(trials=found[:page_size], next_page_token=_next(listing, found, page_size))


@ROUTER.get("/curves", operation_id="getCurves", response_model=CurvesPage)
def curves(
    study_id: ReadableStudy,
    asked: Asked,
    trial: Annotated[
        list[str] | None, Query(max_length=1000, description="Ids of trials; without any, all by pages.")
    ] = None,
    page_size: PageSize = 100,
    page_token: PageToken = None,
) -> Response:
    """Curves by trial id, one list a metric; null where a round did not report it."""
    if trial:
        return _json({"curves": asked.store.curves(study_id, trial), "next_page_token": None})
    listing = ("curves", study_id)
    found = asked.store.trials(study_id, after=_after(listing, page_token), limit=page_size + 1)
    ids = [record.id for record in found[:page_size]]
    return _json({"curves": asked.store.curves(study_id, ids), "next_page_token": _next(listing, found, page_size)})


@ROUTER.get("/frontier", operation_id="getFrontier", response_model=dict[str, Any], responses=NOT_MODIFIED)
def frontier(study_id: ReadableStudy, asked: Asked, request: Request) -> Response:
    """Points, envelopes, frontiers and ledgers of all labels, with their definitions, as far as the study has come.

    It has an ETag: sent back in If-None-Match, it is answered with 304 as long as nothing new is stored.
    """
    version: int = request.state.glance.version
    return asked.frontiers.get(study_id, version, lambda: asked.results.frontier(study_id)).answer(request)


@ROUTER.get("/compare", operation_id="compareLabels", response_model=dict[str, Any])
def compare(
    study_id: ReadableStudy,
    asked: Asked,
    a: Annotated[str, Query(description="A label.")],
    b: Annotated[str, Query(description="Another label.")],
) -> Response:
    """Two labels at equal budgets, paired over seeds; no verdict when the budgets differ or the bands overlap."""
    return _json(asked.results.compare(study_id, a, b))


def _json(value: Any) -> Response:
    """The value as it is: results and curves are large, and were checked when they were stored."""
    return Response(json.dumps(value, separators=(",", ":"), allow_nan=False), media_type="application/json")


def _after(listing: tuple[Any, ...], given: str | None) -> tuple[str, str, int] | None:
    found = position(listing, given)
    return None if found is None else (found[0], found[1], found[2])


def _next(listing: tuple[Any, ...], found: list[TrialRecord], page_size: int) -> str | None:
    if len(found) <= page_size:
        return None
    last = found[page_size - 1]
    return token(listing, [last.label, last.phase, last.number])
