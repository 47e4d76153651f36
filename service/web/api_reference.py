"""The API's reference for people, rendered from its OpenAPI document: works offline and needs no script."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from service.api.response_cache import Body
from service.web.page_route import PageRoute, render

ROUTER = APIRouter(route_class=PageRoute, include_in_schema=False)
_FIELD = re.compile(r"^    (\w+): ", re.MULTILINE)


@ROUTER.get("/docs")
async def reference(request: Request) -> Response:
    """All operations and messages of the API."""
    state = request.app.state
    if not hasattr(state, "reference"):
        html = await run_in_threadpool(lambda: text(request.app.openapi()))
        state.reference = Body.text(html, "text/html; charset=utf-8")
    body: Body = state.reference
    return body.answer(request)


def text(document: Mapping[str, Any]) -> str:
    """The page for an OpenAPI document."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            groups.setdefault(operation["tags"][0], []).append({**operation, "path": path, "method": method.upper()})
    schemas = document["components"]["schemas"]
    messages = [_message(name, schema) for name, schema in sorted(schemas.items())]
    return render("reference.html", reader=None, info=document["info"], groups=groups, messages=messages)


def _message(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """A message with its fields; their texts stand in the docstring that is the schema's description."""
    summary, _, attributes = schema.get("description", "").partition("\n\nAttributes:\n")
    texts = dict(_texts(attributes))
    fields = [
        {"name": key, "schema": value, "text": texts.get(key, ""), "required": key in schema.get("required", ())}
        for key, value in schema.get("properties", {}).items()
    ]
    return {"name": name, "summary": summary, "fields": fields, "schema": schema}


def _texts(attributes: str) -> Iterator[tuple[str, str]]:
    """Name and text of each entry of a docstring's section."""
    _, *parts = _FIELD.split(attributes)
    for name, described in zip(parts[::2], parts[1::2], strict=True):
        yield name, " ".join(described.split())
