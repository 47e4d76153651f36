"""The list of studies, the page of a study, and its frontier."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Query, Request, Response

from driftline.wire.records import LabelProgress, TrialState
from service.api import pagination
from service.api.dependencies import Allowed, AppContext, ReadableStudy
from service.api.pagination import BY_ID, BY_NUMBER, position
from service.api.response_cache import Body
from service.store.stored_studies import Glance
from service.web.page_route import FrameRoute, ReaderRoute, page

ROUTER = APIRouter(route_class=ReaderRoute, include_in_schema=False)
FRAMES = APIRouter(route_class=FrameRoute, include_in_schema=False)
STUDIES_A_PAGE, LINES_A_PAGE, EVENTS_A_PAGE, CHANGES_A_PAGE = 50, 200, 30, 30
PageToken = Annotated[str | None, Query(max_length=2000)]


class ProgressRow(NamedTuple):
    """Progress of one label, or of all together.

    Attributes:
        name: The label.
        search: Search trials by state, in words.
        confirmation: Confirmation trials by state, in words.
        done: Rounds done.
        total: Rounds expected.
    """

    name: str
    search: str
    confirmation: str
    done: int
    total: int

    @property
    def percent(self) -> int:
        """Percentage of the rounds, rounded down."""
        return 100 * min(self.done, self.total) // self.total if self.total else 0

    @classmethod
    def of(cls, name: str, labels: Iterable[LabelProgress]) -> ProgressRow:
        """The row for some labels together."""
        search: Counter[TrialState] = Counter()
        confirmation: Counter[TrialState] = Counter()
        done = total = 0
        for label in labels:
            search.update(label.search)
            confirmation.update(label.confirmation)
            done, total = done + label.rounds_done, total + label.rounds_total
        return cls(name, _counts(search), _counts(confirmation), done, total)


@ROUTER.get("/")
def studies(app_context: AppContext, allowed: Allowed, request: Request, page_token: PageToken = None) -> Response:
    """The project's studies, newest first."""
    allowed.require("read")
    listing = ("studies page", allowed.project)
    before = position(listing, page_token, BY_ID)
    shown, more = app_context.store.studies.page(project=allowed.project, before=before, most=STUDIES_A_PAGE)
    older = pagination.token(listing, shown[-1].id) if more else None
    owners = app_context.store.audit.owners(shown)
    listed = [(study, owners.get(study.id, ""), ProgressRow.of("", study.progress.values())) for study in shown]
    return page(request, "studies.html", listed=listed, older=older, newest=page_token is None)


@ROUTER.get("/studies/{study_id}")
def study(
    study_id: ReadableStudy,
    app_context: AppContext,
    allowed: Allowed,
    request: Request,
    log: PageToken = None,
    events: PageToken = None,
    changes: PageToken = None,
) -> Response:
    """A study: its state, progress, frontier, log and events, and for admins who changed it."""
    store = app_context.store
    record = store.studies.get(study_id)
    log_listing, events_listing, changes_listing = (("log", study_id), ("events", study_id), ("changes", study_id))
    before = position(log_listing, log, BY_NUMBER)
    lines = store.logs.newest(study_id, before=before, limit=LINES_A_PAGE + 1)
    before = position(events_listing, events, BY_NUMBER)
    history = store.events.newest(study_id, before=before, limit=EVENTS_A_PAGE + 1)
    trail = None
    if "admin" in allowed.scopes:  # whom the API shows the audit trail, too
        before = position(changes_listing, changes, BY_NUMBER)
        entries = store.audit.find(project=record.project, target=study_id, before=before, limit=CHANGES_A_PAGE + 1)
        trail = pagination.page(changes_listing, entries, CHANGES_A_PAGE, lambda change: change.id)
    return page(
        request,
        "study.html",
        study=record,
        owner=store.audit.owners([record]).get(study_id, ""),
        labels=[ProgressRow.of(name, [label]) for name, label in record.progress.items()],
        whole=ProgressRow.of("all", record.progress.values()),
        log=pagination.page(log_listing, lines, LINES_A_PAGE, lambda line: line.id),
        events=pagination.page(events_listing, history, EVENTS_A_PAGE, lambda event: event.id),
        changes=trail,
    )


@FRAMES.get("/studies/{study_id}/frontier")
async def frontier(study_id: ReadableStudy, app_context: AppContext, request: Request) -> Response:
    """The study's frontier.html as far as it has come, for the frame in its page."""
    glance: Glance = request.state.glance
    key = ("page", study_id, glance.state)
    body = await app_context.bodies.get(key, glance.version, lambda: _body(app_context.page(study_id)))
    return body.answer(request)


def _body(html: str) -> Body:
    return Body.text(html, "text/html; charset=utf-8")


def _counts(states: Counter[TrialState]) -> str:
    return ", ".join(f"{number} {state.lower()}" for state, number in states.most_common())
