"""Whether the process lives, and whether it can serve. No token is needed."""

from fastapi import APIRouter
from pydantic import BaseModel

from service.api.context import Asked

ROUTER = APIRouter(tags=["health"])


class Health(BaseModel):
    """The answer to a probe."""

    status: str = "ok"


@ROUTER.get("/healthz", operation_id="healthz")
async def healthz() -> Health:
    """The process lives."""
    return Health()


@ROUTER.get("/readyz", operation_id="readyz")
def readyz(asked: Asked) -> Health:
    """The database answers; 503 otherwise."""
    asked.store.ready()
    return Health()
