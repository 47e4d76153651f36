"""The files of programs, packed: clients send them before they submit a study, and its driver fetches them."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from driftline.archive import MOST_PACKED, ArchiveError, unpack
from driftline.errors import InvalidRequest
from driftline.wire.budgets import StoredArchive
from service.api.dependencies import Allowed, AppContext, Context, DrivenStudy
from service.api.rate_limits import Limits
from service.api.request_bodies import CheckedRoute, SubmissionRoute


class ArchiveRoute(SubmissionRoute):
    """A route that takes an archive."""

    def most_bytes(self, limits: Limits) -> tuple[int, str]:
        """The limit of an archive."""
        return min(MOST_PACKED, limits.body_bytes), ""


UPLOADS = APIRouter(prefix="/v1/archives", tags=["archives"], route_class=ArchiveRoute)
ROUTER = APIRouter(prefix="/v1/studies", tags=["driver"], route_class=CheckedRoute)
_BYTES = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
Digest = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="SHA-256 of the tar in the archive.")]


@UPLOADS.put("/{digest}", operation_id="putArchive", openapi_extra={"requestBody": {**_BYTES, "required": True}})
async def put(digest: Digest, request: Request, app_context: AppContext, allowed: Allowed) -> StoredArchive:
    """Store the files of a program, a tar compressed by gzip, for studies that name their digest. Idempotent.

    They are removed an hour after the last study that needs them.
    """
    allowed.require("write")
    body = await request.body()
    return await app_context.checking.run(lambda: _stored(app_context, allowed.project, digest, body))


def _stored(app_context: Context, project: str, digest: str, body: bytes) -> StoredArchive:
    if app_context.programs is not None:
        app_context.programs.require()
    try:
        unpack(body, digest)
    except ArchiveError as error:
        raise InvalidRequest("", f"the archive {error}") from error
    app_context.store.archives.put(project, digest, body, app_context.limits.archive_bytes)
    return StoredArchive(digest=digest, size=len(body))


@ROUTER.get(
    "/{study_id}/archive",
    operation_id="getArchive",
    response_class=Response,
    responses={200: {**_BYTES, "description": "The archive"}},
)
def archive(study_id: DrivenStudy, app_context: AppContext) -> Response:
    """The packed files of a study's program, for its driver."""
    return Response(app_context.store.archives.of_study(study_id), media_type="application/octet-stream")
