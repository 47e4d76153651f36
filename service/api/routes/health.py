"""Liveness, readiness and metrics of the process. They need no token."""

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel

from service.api.dependencies import AppContext

ROUTER = APIRouter(tags=["health"])


class Health(BaseModel):
    """The answer to a probe."""

    status: str = "ok"


@ROUTER.get("/healthz", operation_id="healthz")
async def healthz() -> Health:
    """The process is alive."""
    return Health()


@ROUTER.get("/readyz", operation_id="readyz")
async def readyz(app_context: AppContext) -> Health:
    """The database answers and accepts writes; 503 otherwise."""
    await app_context.probing.run(app_context.store.ready)
    return Health()


@ROUTER.get(
    "/metrics",
    operation_id="metrics",
    response_class=Response,
    responses={
        200: {"description": "Prometheus' text format", "content": {"text/plain": {"schema": {"type": "string"}}}}
    },
)
def metrics(app_context: AppContext) -> Response:
    """Metrics of this process, for Prometheus."""
    return Response(app_context.metrics.text(), media_type=CONTENT_TYPE_LATEST)
