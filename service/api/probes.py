"""The app of a process without an API: healthz, readyz and metrics, and nothing else."""

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from driftline.errors import NotFound
from service.api.app import create_app
from service.api.auth.tokens import Tokens
from service.api.error_responses import answer
from service.store.store import Store

PATHS = frozenset({"/healthz", "/readyz", "/metrics"})


class OnlyProbes:
    """ASGI middleware that passes on the probes' paths and answers 404 to all others.

    Args:
        app: Answers the probes.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or reject it."""
        if scope["type"] != "http" or scope["path"] in PATHS:
            await self._app(scope, receive, send)
            return
        error = NotFound(f"this process runs the scheduler and serves only {', '.join(sorted(PATHS))}; ask the API")
        await answer(error)(scope, receive, send)


def create_probes(store: Store) -> FastAPI:
    """The app of a process that runs only the scheduler.

    Args:
        store: The database; the caller closes it.
    """
    app = create_app(store, Tokens())
    app.add_middleware(OnlyProbes)
    return app
