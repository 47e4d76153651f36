"""What a process without an API answers: healthz, readyz and metrics, and nothing else."""

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from driftline.errors import NotFound
from service.api.app import create_app
from service.api.auth.tokens import Tokens
from service.api.error_responses import answer
from service.store.store import Store

PATHS = frozenset({"/healthz", "/readyz", "/metrics"})


class OnlyProbes:
    """ASGI middleware that knows the probes' paths and answers 404 to every other one.

    Args:
        app: What is asked for those.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http" or scope["path"] in PATHS:
            await self._app(scope, receive, send)
            return
        error = NotFound(f"this process runs the scheduler and has {', '.join(sorted(PATHS))} alone; ask the API")
        await answer(error)(scope, receive, send)


def create_probes(store: Store) -> FastAPI:
    """The app of a process that runs the scheduler alone.

    Args:
        store: The database; stays the caller's to close.
    """
    app = create_app(store, Tokens())
    app.add_middleware(OnlyProbes)
    return app
