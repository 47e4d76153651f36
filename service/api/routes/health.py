"""Whether the process lives, whether it can serve, and what it counts. No token is needed."""

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel

from service.api.dependencies import Asked

ROUTER = APIRouter(tags=["health"])


class Health(BaseModel):
    """The answer to a probe."""

    status: str = "ok"


@ROUTER.get("/healthz", operation_id="healthz")
async def healthz() -> Health:
    """The process lives."""
    return Health()


@ROUTER.get("/readyz", operation_id="readyz")
async def readyz(asked: Asked) -> Health:
    """The database answers, and takes what is written; 503 otherwise."""
    await asked.probing.run(asked.store.ready)
    return Health()


@ROUTER.get(
    "/metrics",
    operation_id="metrics",
    response_class=Response,
    responses={
        200: {"description": "Prometheus' text format", "content": {"text/plain": {"schema": {"type": "string"}}}}
    },
)
def metrics(asked: Asked) -> Response:
    """What this process counts, for Prometheus."""
    return Response(asked.metrics.text(), media_type=CONTENT_TYPE_LATEST)
