"""Tokens, quotas and the audit trail. All routes but `whoami` and `quota` need scope admin."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from driftline.wire.access import (
    PROJECT,
    AuditPage,
    MadeToken,
    NewToken,
    ProjectQuota,
    Quota,
    TokenPage,
    TokenRecord,
    Whoami,
)
from service.api.dependencies import Admin, Allowed, AppContext
from service.api.pagination import BY_ID, BY_NUMBER, PageSize, PageToken, page, position
from service.api.request_bodies import CheckedRoute

ROUTER = APIRouter(prefix="/v1", tags=["access"], route_class=CheckedRoute)
Project = Annotated[str, Path(pattern=PROJECT, description="Name of a project; it need not have studies.")]


@ROUTER.get("/whoami", operation_id="whoami")
def whoami(allowed: Allowed) -> Whoami:
    """What the request's token allows."""
    allowed.require_current()
    return Whoami(
        id=allowed.id,
        name=allowed.name,
        project=allowed.project,
        scopes=sorted(allowed.scopes),
        study=allowed.study,
        expires_at=allowed.expires_at,
    )


@ROUTER.post("/tokens", operation_id="createToken", status_code=201)
def create_token(body: NewToken, app_context: AppContext, admin: Admin) -> MadeToken:
    """Make a token. It is shown only once, because only its hash is stored."""
    return app_context.store.tokens.create(body, admin.actor)


@ROUTER.get("/tokens", operation_id="listTokens")
def tokens(app_context: AppContext, admin: Admin, page_size: PageSize = 100, page_token: PageToken = None) -> TokenPage:
    """The tokens of all projects, newest first, including expired and revoked ones."""
    listing = ("tokens",)
    rows = app_context.store.tokens.find(before=position(listing, page_token, BY_ID), limit=page_size + 1)
    shown, following = page(listing, rows, page_size, lambda token: token.id)
    return TokenPage(tokens=shown, next_page_token=following)


@ROUTER.delete("/tokens/{token_id}", operation_id="revokeToken")
def revoke_token(token_id: str, app_context: AppContext, admin: Admin) -> TokenRecord:
    """Revoke a token: the next request with it is rejected. Idempotent."""
    return app_context.store.tokens.revoke(token_id, admin.actor)


@ROUTER.get("/quota", operation_id="getQuota")
def quota(app_context: AppContext, allowed: Allowed) -> ProjectQuota:
    """Limits and use of the token's project."""
    allowed.require("read", allowed.study)
    return app_context.store.quotas.get(allowed.project, app_context.quota)


@ROUTER.get("/projects/{project}/quota", operation_id="getProjectQuota")
def project_quota(project: Project, app_context: AppContext, admin: Admin) -> ProjectQuota:
    """Limits and use of a project."""
    return app_context.store.quotas.get(project, app_context.quota)


@ROUTER.put("/projects/{project}/quota", operation_id="setProjectQuota")
def set_project_quota(project: Project, body: Quota, app_context: AppContext, admin: Admin) -> ProjectQuota:
    """Set a project's limits, in place of the service's defaults; null is no limit. Existing studies stay."""
    app_context.store.quotas.set(project, body, admin.actor)
    return app_context.store.quotas.get(project, app_context.quota)


@ROUTER.get("/audit", operation_id="listAudit")
def audit(
    app_context: AppContext,
    admin: Admin,
    project: Annotated[str | None, Query(max_length=64, description="Only events about this project.")] = None,
    action: Annotated[str | None, Query(max_length=32, description="Only events with this action.")] = None,
    page_size: PageSize = 100,
    page_token: PageToken = None,
) -> AuditPage:
    """Who did what, newest first."""
    listing = ("audit", project, action)
    before = position(listing, page_token, BY_NUMBER)
    rows = app_context.store.audit.find(project=project, action=action, before=before, limit=page_size + 1)
    shown, following = page(listing, rows, page_size, lambda event: event.id)
    return AuditPage(events=shown, next_page_token=following)
