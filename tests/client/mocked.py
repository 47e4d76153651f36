"""A client without a network."""

from collections.abc import Callable
from typing import Any

import httpx

from tests.clients import EveryClient
from tests.wire.made_records import study_record

STUDY = study_record(id="s1").model_dump(mode="json")

Handler = Callable[[httpx.Request], httpx.Response]


def client(handler: Handler, waits: list[float] | None = None, **options: Any) -> EveryClient:
    pauses = waits if waits is not None else []
    return EveryClient(
        "http://tuner/", "secret", transport=httpx.MockTransport(handler), sleep=pauses.append, **options
    )


def failing(
    times: int, failure: Callable[[], httpx.Response], answer: Any = STUDY
) -> tuple[Handler, list[httpx.Request]]:
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return failure() if len(seen) <= times else httpx.Response(200, json=answer)

    return handle, seen


def refused() -> httpx.Response:
    raise httpx.ConnectError("connection refused")


def timed_out() -> httpx.Response:
    raise httpx.ReadTimeout("slow")
