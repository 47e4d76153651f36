"""The FastAPI app: routes, errors, limits and the OpenAPI document."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Event
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.middleware.gzip import GZipMiddleware

from service.api import error_responses, study_checks
from service.api.allowed_files import Check
from service.api.allowed_programs import AllowedPrograms
from service.api.auth.tokens import Tokens
from service.api.computed_results import computed_frontier, computed_page
from service.api.dependencies import Context, known_parameters
from service.api.event_streams import StreamLimits, StreamPace, Streams
from service.api.metrics import Counted, Metrics
from service.api.rate_limits import Checking, Limits, Rates, Threads
from service.api.request_bodies import BodyLimit
from service.api.response_cache import Bodies
from service.api.routes import access, driver, events, health, logs, studies, trials, uploads
from service.store.store import Store

FAILURES_A_MINUTE = 10.0
"""Failed authentications that a process writes to the audit trail; the metrics count all of them."""

SIGN_INS_A_MINUTE, SIGN_INS_AT_ONCE = 20.0, 20
"""Requests without a known token that a client address may send, in the long run and at once; 429 above that."""


@dataclass(frozen=True)
class ApiOptions:
    """What an API may do, and who does the work; by default as in a personal service.

    Attributes:
        frontier: Computes the frontiers of a study, as a JSON value or `Body`; by default from the store, in a thread.
        page: Computes the frontier.html of a study, in the same way.
        check: Checks a study's document before it is stored.
        limits: Sizes, rates and default quotas.
        data_urls: What every URL of a study's data must begin with, for its driver; None allows all.
        programs: What the service allows the programs of studies; None checks nothing.
        streams: How many event streams may be open.
        pace: How often event streams act.
        wake: Called after an owner's request was stored, so that a scheduler in this process acts at once.
    """

    frontier: Callable[[str], Any] | None = None
    page: Callable[[str], str] | None = None
    check: Check = study_checks.check
    limits: Limits = field(default_factory=Limits)
    data_urls: Sequence[str] | None = None
    programs: AllowedPrograms | None = None
    streams: StreamLimits = field(default_factory=StreamLimits)
    pace: StreamPace = field(default_factory=StreamPace)
    wake: Callable[[], None] = lambda: None


def create_app(store: Store, tokens: Tokens, options: ApiOptions | None = None) -> FastAPI:
    """Make the API for a store.

    Args:
        store: The database; the caller closes it.
        tokens: Tokens and what they allow.
        options: By default, those of a personal service.

    Returns:
        The app; setting ``app.state.context.stopping`` ends its event streams.
    """
    options = options or ApiOptions()
    limits, programs = options.limits, options.programs
    app = FastAPI(
        title="Driftline",
        version="1",
        summary="Tunes local update methods and shows their trade-off between speed and quality.",
        responses=error_responses.RESPONSES,
        redoc_url=None,
        docs_url=None,  # its page loads scripts from a CDN
    )
    metrics = Metrics(store)
    stopping = Event()
    app.state.context = Context(
        store=store,
        tokens=tokens,
        frontier=options.frontier or partial(computed_frontier, store),
        page=options.page or partial(computed_page, store),
        check=options.check if programs is None else programs.before(options.check),
        data_urls=None if options.data_urls is None else tuple(options.data_urls),
        programs=programs,
        stopping=stopping,
        streams=Streams(store, tokens, stopping, options.streams, options.pace),
        wake=options.wake,
        limits=limits,
        rates=Rates(limits.requests_per_second, limits.burst),
        failures=Rates(FAILURES_A_MINUTE / 60, int(FAILURES_A_MINUTE)),
        strangers=Rates(SIGN_INS_A_MINUTE / 60, SIGN_INS_AT_ONCE),
        parsing=Threads(2),
        checking=Checking(),
        reading=Threads(2),
        probing=Threads(2),
        metrics=metrics,
        bodies=Bodies(),
    )
    routers = [module.ROUTER for module in (studies, trials, events, logs, driver, uploads, access, health)]
    for router in (studies.SUBMISSIONS, uploads.UPLOADS, *routers):
        app.include_router(router, dependencies=[Depends(known_parameters)])
    error_responses.install(app)
    app.add_middleware(GZipMiddleware, minimum_size=1024, compresslevel=5)
    app.add_middleware(BodyLimit, bytes_allowed=limits.body_bytes)
    app.add_middleware(Counted, metrics=metrics)
    _describe_problems(app)
    return app


def _describe_problems(app: FastAPI) -> None:
    """Put the schema that error answers refer to into the OpenAPI document."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        schema = error_responses.ProblemDetails.model_json_schema(ref_template="#/components/schemas/{model}")
        document.setdefault("components", {}).setdefault("schemas", {}).setdefault("ProblemDetails", schema)
        return document

    app.openapi = openapi  # type: ignore[method-assign]
