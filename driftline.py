"""Driftline's front door: the names that people use. Everything is imported when it is first asked for.

from driftline import Client, Study
job = Client().submit(Study.from_yaml("examples/digits.yaml"))
print(job.wait(progress=True).frontier().table())
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from search_spaces.parameters import Choice, Float, Int
    from service.embedded.client import Client
    from service.embedded.shortcuts import compare, frontier, run
    from service.errors import DriftlineError
    from service.schemas.study import Study
    from service.sdk.asynchronous import AsyncClient
    from service.sdk.frontier import Frontier
    from service.sdk.job import Job
    from service.sdk.offline import OfflineService

__version__ = "0.1.0"

_HOMES = {
    "AsyncClient": "service.sdk.asynchronous",
    "Choice": "search_spaces.parameters",
    "Client": "service.embedded.client",
    "DriftlineError": "service.errors",
    "Float": "search_spaces.parameters",
    "Frontier": "service.sdk.frontier",
    "Int": "search_spaces.parameters",
    "Job": "service.sdk.job",
    "OfflineService": "service.sdk.offline",
    "Study": "service.schemas.study",
    "compare": "service.embedded.shortcuts",
    "frontier": "service.embedded.shortcuts",
    "run": "service.embedded.shortcuts",
}

__all__ = [
    "AsyncClient",
    "Choice",
    "Client",
    "DriftlineError",
    "Float",
    "Frontier",
    "Int",
    "Job",
    "OfflineService",
    "Study",
    "compare",
    "frontier",
    "run",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'driftline' has no attribute {name!r} (it has: {', '.join(__all__)})")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
