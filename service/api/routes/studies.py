"""Routes for studies: submit, list, pause, resume, cancel, extend, retry, delete."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi import Body as InBody
from pydantic import BaseModel

from driftline.errors import Conflict
from driftline.wire.budgets import CheckedStudy, Extension, Retry
from driftline.wire.records import StudyPage, StudyRecord
from service.api.auth.tokens import Access
from service.api.dependencies import Allowed, AppContext, Context, ReadableStudy, WritableStudy
from service.api.pagination import BY_ID, PageSize, PageToken, position, token
from service.api.request_bodies import CheckedRoute, SubmissionRoute
from service.api.response_cache import NOT_MODIFIED, Body
from service.api.study_checks import extended, request_hash, with_room_checked
from service.api.study_estimate import estimate

ROUTER = APIRouter(prefix="/v1/studies", tags=["studies"], route_class=CheckedRoute)
SUBMISSIONS = APIRouter(prefix="/v1/studies", tags=["studies"], route_class=SubmissionRoute)
_EXAMPLE = {
    "name": "digits-fedavg",
    "task": {"name": "digits", "clients": 50, "partition": {"dirichlet": 0.3}},
    "methods": [{"name": "fedavg", "space": "default"}],
    "budget": {"trials_per_method": 16, "rounds": 100},
}

StudyDocument = Annotated[dict[str, Any], InBody(examples=[_EXAMPLE], description="A study as in its YAML file.")]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="The same request with the same key returns the same study and changes nothing. Kept for a week.",
    ),
]


@SUBMISSIONS.post(
    "",
    operation_id="createStudy",
    status_code=201,
    response_model=StudyRecord,
    responses={200: {"model": CheckedStudy, "description": "Only checked, not stored (validate_only)"}},
)
async def create(
    body: StudyDocument,
    app_context: AppContext,
    allowed: Allowed,
    key: Key = None,
    validate_only: Annotated[bool, Query(description="Check the study, store nothing.")] = False,
) -> Response:
    """Submit a study. It stays PENDING until the scheduler starts a driver for it.

    Everything in it is checked before it is stored, except what follows from data at a URL: these are read when the
    study starts, which then ends as FAILED if they do not fit.
    """
    if validate_only:
        return await app_context.checking.run(lambda: _validated(app_context, allowed, body))
    return await app_context.checking.run(lambda: _created(app_context, allowed, body, key))


def _checked(app_context: Context, allowed: Access, body: dict[str, Any]) -> CheckedStudy:
    return with_room_checked(app_context.store, allowed.project, app_context.check(body))


def _validated(app_context: Context, allowed: Access, body: dict[str, Any]) -> Response:
    checked = _checked(app_context, allowed, body)
    return _json(checked.estimated(estimate(checked.spec)))


def _created(app_context: Context, allowed: Access, body: dict[str, Any], key: str | None) -> Response:
    checked = _checked(app_context, allowed, body)
    study = app_context.store.studies.create(
        checked.spec,
        checked.fingerprint,
        project=allowed.project,
        key=key,
        request_hash=request_hash(body),
        actor=allowed.actor,
        limits=app_context.quota,
    )
    app_context.wake()
    return _json(study, 201, {"Location": f"/v1/studies/{study.id}"})


@ROUTER.get("", operation_id="listStudies")
def studies(
    app_context: AppContext,
    allowed: Allowed,
    page_size: PageSize = 50,
    page_token: PageToken = None,
    owners: Annotated[bool, Query(description="Also say who submitted each study.")] = False,
) -> StudyPage:
    """The project's studies, newest first. If their documents are long, a page holds fewer than requested."""
    allowed.require("read")
    listing = ("studies", allowed.project)
    before = position(listing, page_token, BY_ID)
    shown, more = app_context.store.studies.page(project=allowed.project, before=before, most=page_size)
    following = token(listing, shown[-1].id) if more else None
    names = app_context.store.audit.owners(shown) if owners else {}
    return StudyPage(studies=shown, owners=names, next_page_token=following)


@ROUTER.get("/{study_id}", operation_id="getStudy", response_model=StudyRecord, responses=NOT_MODIFIED)
def study(study_id: ReadableStudy, app_context: AppContext, request: Request) -> Response:
    """One study: its state, specification and progress. The answer has an ETag for If-None-Match."""
    return Body.of(app_context.store.studies.get(study_id).model_dump(mode="json")).answer(request)


@ROUTER.delete("/{study_id}", operation_id="deleteStudy", status_code=204)
def delete(study_id: WritableStudy, app_context: AppContext, allowed: Allowed) -> None:
    """Delete a study with everything that belongs to it: trials, curves, checkpoints, logs, runs in MLflow.

    The study is hidden at once, and removed soon after. A study that runs or waits to run is refused: cancel it first.
    Its entries in the audit trail stay, and its GPU-hours still count for the project.
    """
    app_context.store.deletions.request(study_id, actor=allowed.actor)
    app_context.wake()


@ROUTER.post("/{study_id}:pause", operation_id="pauseStudy")
def pause(study_id: WritableStudy, app_context: AppContext, allowed: Allowed) -> StudyRecord:
    """Pause a study; its packs write checkpoints."""
    return _intend(app_context, allowed, study_id, "pause")


@ROUTER.post("/{study_id}:resume", operation_id="resumeStudy")
def resume(study_id: WritableStudy, app_context: AppContext, allowed: Allowed) -> StudyRecord:
    """Resume a paused or failed study; finished trials are not repeated."""
    return _intend(app_context, allowed, study_id, "resume")


@ROUTER.post("/{study_id}:cancel", operation_id="cancelStudy")
def cancel(study_id: WritableStudy, app_context: AppContext, allowed: Allowed) -> StudyRecord:
    """End a study for good; its results stay."""
    return _intend(app_context, allowed, study_id, "cancel")


@SUBMISSIONS.post("/{study_id}:extend", operation_id="extendStudy", response_model=StudyRecord)
async def extend(study_id: WritableStudy, body: Extension, app_context: AppContext, allowed: Allowed) -> Response:
    """Give a study a larger budget; a finished one becomes PENDING and continues, a paused one stays paused.

    The numbers are the new totals, so the request is idempotent. The study's `spec` and `fingerprint` become those of
    the larger study; its idempotency key stays valid.
    """
    return await app_context.checking.run(lambda: _json(_extended(app_context, allowed, study_id, body)))


def _extended(app_context: Context, allowed: Access, study_id: str, body: Extension) -> StudyRecord:
    while True:
        was = app_context.store.studies.get(study_id)
        checked = _checked(app_context, allowed, extended(was.spec, body))
        try:
            record = app_context.store.studies.extend(
                study_id,
                checked.spec["budget"],
                checked.fingerprint,
                was=was.fingerprint,
                actor=allowed.actor,
                limits=app_context.quota,
            )
        except Conflict:
            if app_context.store.studies.get(study_id).fingerprint == was.fingerprint:
                raise
            continue  # another request has extended the study meanwhile
        app_context.wake()
        return record


@ROUTER.post("/{study_id}:retry", operation_id="retryTrials")
def retry(
    study_id: WritableStudy, app_context: AppContext, allowed: Allowed, body: Retry | None = None, key: Key = None
) -> StudyRecord:
    """Run FAILED trials again, all of them or the given ones; a finished study becomes PENDING.

    Trials resume from their newest checkpoints if these still exist. The errors stay in the study's events.
    """
    trials = body.trials if body is not None else []
    record = app_context.store.retries.request(
        study_id,
        trials,
        project=allowed.project,
        key=key,
        request_hash=request_hash({"retry": study_id, "trials": trials}),
        actor=allowed.actor,
        limits=app_context.quota,
    )
    app_context.wake()
    return record


def _json(record: BaseModel, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A record as a response; serialized in the calling thread, not in the event loop."""
    return Response(record.model_dump_json(), status, headers, "application/json")


def _intend(app_context: Context, allowed: Access, study_id: str, intent: str) -> StudyRecord:
    record = app_context.store.studies.intend(study_id, intent, actor=allowed.actor, limits=app_context.quota)
    app_context.wake()
    return record
