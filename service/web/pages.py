"""Adds the pages to the API's app."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from fastapi import APIRouter, FastAPI, Request, Response

from driftline.errors import NotFound
from service.api.response_cache import Body
from service.web import api_reference, issuer_sign_in, sign_in, study_pages
from service.web.page_route import PageRoute

ROUTER = APIRouter(route_class=PageRoute, include_in_schema=False)
ROUTERS = (ROUTER, sign_in.ROUTER, issuer_sign_in.ROUTER, study_pages.ROUTER, study_pages.FRAMES, api_reference.ROUTER)
_MEDIA_TYPES = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}


def add_pages(app: FastAPI) -> None:
    """Add the pages to an app from `create_app`. The app's OpenAPI document does not list them."""
    for router in ROUTERS:
        app.include_router(router)


@ROUTER.get("/assets/{name}")
async def asset(name: str, request: Request) -> Response:
    """Style, script or icon of the pages."""
    if name not in _MEDIA_TYPES:
        raise NotFound("no such file")
    return _asset(name).answer(request)


@cache
def _asset(name: str) -> Body:
    text = files("service.web").joinpath("assets", name).read_text(encoding="utf-8")
    return Body.text(text, _MEDIA_TYPES[name])
