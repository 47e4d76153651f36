"""FastAPI dependencies of the routes: the app's context, and what the request's token allows."""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from threading import Event
from typing import Annotated, Any

from fastapi import Depends, Header, Request, Security
from fastapi.dependencies.models import Dependant
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.concurrency import run_in_threadpool

from driftline.errors import DriftlineError, InvalidRequest, NotFound, RateLimited, Unauthorized
from driftline.wire.access import Quota
from driftline.wire.budgets import CheckedStudy
from driftline.wire.driver_messages import NONCE_HEADER
from driftline.wire.records import STUDY_FINISHED
from service.api.allowed_programs import AllowedPrograms
from service.api.auth.tokens import Access, Scope, Tokens
from service.api.event_streams import Streams
from service.api.metrics import Metrics
from service.api.rate_limits import Checking, Limits, Rates, Threads
from service.api.response_cache import Bodies
from service.store.store import Store
from trainers import hint, shown

_LOG = logging.getLogger(__name__)
_BEARER = HTTPBearer(auto_error=False, description="A token with the scope that the request needs, bound to a project.")


@dataclass(frozen=True)
class Context:
    """The objects that an app's routes share.

    Attributes:
        store: The database.
        tokens: Tokens and what they allow.
        frontier: Computes the frontiers of a study, as a JSON value or `Body`.
        page: Computes the frontier.html of a study.
        check: Checks a study's document.
        data_urls: What URLs of data must begin with; None allows all.
        programs: What the service allows the programs of studies; None checks nothing.
        stopping: Set when the server is about to stop; ends event streams.
        streams: The open event streams.
        wake: Called after an owner's request was stored.
        limits: Sizes, rates and default quotas.
        rates: How many requests each token has left.
        failures: How many more failed authentications may be written to the audit trail.
        strangers: How many requests without a known token each client address has left.
        parsing: Threads that parse large bodies.
        checking: Threads that check studies.
        reading: Threads that read curves; each needs a lot of memory.
        probing: Threads that check whether the database answers.
        metrics: Counters of this process.
        bodies: Cache of results.
    """

    store: Store
    tokens: Tokens
    frontier: Callable[[str], Any]
    page: Callable[[str], str]
    check: Callable[[Mapping[str, Any]], CheckedStudy]
    data_urls: tuple[str, ...] | None
    programs: AllowedPrograms | None
    stopping: Event
    streams: Streams
    wake: Callable[[], None]
    limits: Limits
    rates: Rates
    failures: Rates
    strangers: Rates
    parsing: Threads
    checking: Checking
    reading: Threads
    probing: Threads
    metrics: Metrics
    bodies: Bodies

    @property
    def quota(self) -> Quota:
        """The default quota of a project."""
        return self.limits.quota()


def context(request: Request) -> Context:
    """The context of the request's app."""
    app_context: Context = request.app.state.context
    return app_context


async def _context(request: Request) -> Context:
    """`context` as a dependency; a coroutine, because FastAPI runs other dependencies in a thread."""
    return context(request)


async def known_parameters(request: Request) -> None:
    """Reject query parameters that the route does not have: a misspelt filter must not be ignored.

    Raises:
        InvalidRequest: A parameter is unknown (the message names the nearest known one), or contains NUL, which some
            databases reject.
    """
    for name, value in (*request.path_params.items(), *request.query_params.multi_items()):
        if "\x00" in name or "\x00" in str(value):
            raise InvalidRequest(name.replace("\x00", ""), "must hold no NUL character")
    if not request.query_params:
        return
    names = list(query_names(request.scope["route"].dependant))
    for name in request.query_params:
        if name not in names:
            near = await run_in_threadpool(hint, name, names) if names else ""
            raise InvalidRequest(name, f"unknown parameter: {near}" if names else "takes no parameters")


def query_names(dependant: Dependant) -> Iterator[str]:
    """The query parameters of a route and of what it depends on, without making the whole OpenAPI document."""
    yield from (field.alias for field in dependant.query_params)
    for dependency in dependant.dependencies:
        yield from query_names(dependency)


async def authenticate(request: Request) -> Access:
    """What the request's token allows; determined once per request, before the body is read.

    Raises:
        Unauthorized: The request has no token, or an unknown one.
        RateLimited: The token was used too often.
    """
    rights: Access | None = getattr(request.state, "access", None)
    if rights is None:
        credentials = await _BEARER(request)
        token = None if credentials is None else credentials.credentials
        rights = request.state.access = await run_in_threadpool(access_of, request, token)
    return rights


def access_of(request: Request, token: str | None) -> Access:
    """What a token that came with the request allows; see `admitted`.

    Raises:
        Unauthorized: There is no token, or an unknown one.
        RateLimited: The token was used too often, or the address failed too often.
    """
    if token is None:
        error = Unauthorized("this needs a bearer token: set DRIFTLINE_TOKEN, or send 'Authorization: Bearer ...'")
        _slow_down(context(request), request, error)
        raise error
    return admitted(request, lambda: context(request).tokens.access(token))


def admitted(request: Request, check: Callable[[], Access]) -> Access:
    """The access that a check grants; failures are noted, and slowed down per client address.

    Args:
        request: The request.
        check: Verifies who sends it.

    Raises:
        Unauthorized: The check failed.
        RateLimited: The token was used too often, or the address failed too often.
    """
    app_context = context(request)
    try:
        rights = check()
    except Unauthorized as error:
        _note_failure(app_context, request)
        if type(error) is Unauthorized:  # not its subclass Forbidden: a known token without rights here
            _slow_down(app_context, request, error)
        raise
    app_context.rates.take(rights.id)
    return rights if rights.study is None else replace(rights, over=_over(app_context, request, rights.study))


def _over(app_context: Context, request: Request, study_id: str) -> bool:
    """Whether a driver's study has finished or was deleted."""
    try:
        glance = request.state.glance = app_context.store.studies.glance(study_id)
    except NotFound:
        return True
    return glance.state in STUDY_FINISHED


def _slow_down(app_context: Context, request: Request, error: Unauthorized) -> None:
    """Limit failed sign-ins per client address. Does not affect valid tokens.

    Raises:
        RateLimited: The address had too many.
    """
    try:
        app_context.strangers.take(_client(request))
    except RateLimited as limited:
        wait = limited.details["retry_after"]
        text = f"{error.message}; too many failed sign-ins came from this address: wait {wait:.2g} s"
        raise RateLimited(text, retry_after=wait) from error


def _client(request: Request) -> str:
    return request.client.host if request.client else ""


async def access(
    request: Request, _credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)]
) -> Access:
    """`authenticate` as a dependency that declares the token in the OpenAPI document."""
    return await authenticate(request)


def _note_failure(app_context: Context, request: Request) -> None:
    """Write a failed authentication to the audit trail, at most a few per minute."""
    app_context.metrics.refused.inc()
    try:
        app_context.failures.take("")
        client = {"client": _client(request)}
        app_context.store.audit.add("auth.failed", request.scope["route"].path_format, details=client)
    except RateLimited:
        pass
    except DriftlineError:
        _LOG.warning("a failed authentication could not be written to the audit trail", exc_info=True)


AppContext = Annotated[Context, Depends(_context)]
Allowed = Annotated[Access, Depends(access)]


def _permitted(scope: Scope) -> Callable[[str, Context, Access, Request], str]:
    def permit(study_id: str, app_context: AppContext, allowed: Allowed, request: Request) -> str:
        allowed.require(scope, study_id)
        glance = getattr(request.state, "glance", None) or app_context.store.studies.glance(study_id)
        request.state.glance = glance
        if glance.project != allowed.project:
            raise NotFound(f"no study {shown(study_id)}; list the studies to see their ids")
        return study_id

    return permit


async def admin(allowed: Allowed) -> Access:
    """What the request's token allows; it must have scope admin.

    Raises:
        Forbidden: It does not have the scope.
    """
    allowed.require("admin")
    return allowed


Admin = Annotated[Access, Depends(admin)]
ReadableStudy = Annotated[str, Depends(_permitted("read"))]
WritableStudy = Annotated[str, Depends(_permitted("write"))]
Nonce = Annotated[str, Header(alias=NONCE_HEADER, max_length=64, description="What this driver alone sends.")]
DrivenStudy = Annotated[str, Depends(_permitted("driver"))]
