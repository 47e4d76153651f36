"""Routes for trials, their curves, and the results computed from them."""

import itertools
import json
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from driftline.errors import InvalidRequest
from driftline.results import comparison
from driftline.wire.curve_columns import CurvesPage
from driftline.wire.records import Phase, TrialPage, TrialRecord, TrialState
from service.api.dependencies import AppContext, Context, ReadableStudy
from service.api.pagination import BY_TRIAL, PageSize, PageToken, page, position
from service.api.response_cache import NOT_MODIFIED, Body
from service.store.store import Store
from service.store.stored_studies import Glance

ROUTER = APIRouter(prefix="/v1/studies/{study_id}", tags=["trials"])
ROUNDS_A_PAGE = 200_000
_NAMED = 1000
_COMPACT = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


@ROUTER.get("/trials", operation_id="listTrials")
def trials(
    study_id: ReadableStudy,
    app_context: AppContext,
    label: Annotated[str | None, Query(description="Only trials of this label.")] = None,
    phase: Annotated[Phase | None, Query(description="Only trials of this phase.")] = None,
    state: Annotated[TrialState | None, Query(description="Only trials in this state.")] = None,
    page_size: PageSize = 200,
    page_token: PageToken = None,
) -> TrialPage:
    """The study's trials in the order label, phase (search before confirmation), number."""
    listing = ("trials", study_id, label, phase, state)
    after = position(listing, page_token, BY_TRIAL)
    rows = app_context.store.trials.find(
        study_id, label=label, phase=phase, state=state, after=after, limit=page_size + 1
    )
    shown, following = page(listing, rows, page_size, _position)
    return TrialPage(trials=shown, next_page_token=following)


@ROUTER.get("/curves", operation_id="getCurves", response_model=CurvesPage)
async def curves(
    study_id: ReadableStudy,
    app_context: AppContext,
    trial: Annotated[list[str] | None, Query(max_length=_NAMED, description="Ids of trials; default: all.")] = None,
    page_size: Annotated[PageSize | None, Query(description="100 by default, or all named trials.")] = None,
    page_token: PageToken = None,
) -> Response:
    """Curves by trial id, one list per metric; null where a round did not report it.

    If curves are long, a page holds fewer trials than requested; without a page_size, as many named ones are refused.
    """
    return await app_context.reading.run(lambda: _curves(app_context.store, study_id, trial, page_size, page_token))


@ROUTER.get("/frontier", operation_id="getFrontier", response_model=dict[str, Any], responses=NOT_MODIFIED)
async def frontier(study_id: ReadableStudy, app_context: AppContext, request: Request) -> Response:
    """Recommendations, frontiers, areas and ledgers of all labels so far, with their definitions.

    The answer has an ETag; sent in If-None-Match, it gives 304 until something new is stored.
    """
    return (await _frontier(study_id, app_context, request)).answer(request)


@ROUTER.get("/compare", operation_id="compareLabels", response_model=dict[str, Any], responses=NOT_MODIFIED)
async def compare(
    study_id: ReadableStudy,
    app_context: AppContext,
    request: Request,
    a: Annotated[str, Query(description="A label.")],
    b: Annotated[str, Query(description="Another label.")],
) -> Response:
    """Compare two labels at equal budgets: the configurations found, paired over seeds, and the methods, over searches.

    The answer has an ETag for If-None-Match.
    """
    whole = await _frontier(study_id, app_context, request)
    version: int = request.state.glance.version
    body = await app_context.bodies.get(
        ("compare", study_id, a, b), version, lambda: comparison.compare(json.loads(whole.raw), a, b)
    )
    return body.answer(request)


async def _frontier(study_id: str, app_context: Context, request: Request) -> Body:
    glance: Glance = request.state.glance  # the state is in the answer, and may change without a new version
    return await app_context.bodies.get(
        ("frontier", study_id, glance.state), glance.version, lambda: app_context.frontier(study_id)
    )


def _fitting(records: list[TrialRecord]) -> int:
    """How many of the first trials fit on a page of `ROUNDS_A_PAGE` rounds; at least one."""
    rounds = itertools.accumulate(record.rounds_done + 1 for record in records)
    return max(1, sum(total <= ROUNDS_A_PAGE for total in rounds))


def _curves(
    store: Store, study_id: str, trial: list[str] | None, page_size: int | None, page_token: str | None
) -> Response:
    """A page of curves, not validated again: they were checked when they were stored.

    Encodes each trial separately, because the JSON encoder blocks all other threads while it runs.
    """
    listing = ("curves", study_id, *(trial or ()))
    after, most = position(listing, page_token, BY_TRIAL), page_size or (_NAMED if trial else 100)
    rows = store.trials.find(study_id, ids=trial or None, after=after, limit=most + 1)
    fitting = _fitting(rows[:most])
    if trial and page_size is None and fitting < len(rows):
        raise InvalidRequest(
            "trial", f"these trials have more than {ROUNDS_A_PAGE:,} rounds: give page_size, and they come in pages"
        )
    shown, following = page(listing, rows, fitting, _position)
    curves = store.curves.columns(study_id, [record.id for record in shown])
    texts = (f"{json.dumps(trial)}:{_COMPACT.encode(columns)}" for trial, columns in curves.items())
    whole = f'{{"curves":{{{",".join(texts)}}},"next_page_token":{json.dumps(following)}}}'
    return Response(whole, media_type="application/json")


def _position(record: TrialRecord) -> tuple[str, Phase, int]:
    return record.label, record.phase, record.number
