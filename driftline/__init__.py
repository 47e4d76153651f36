"""Driftline's front door: the names that people use. Everything is imported when it is first asked for.

from driftline import Client, Study
job = Client().submit(Study.from_yaml("examples/digits.yaml"))
print(job.wait(progress=True).frontier().table())
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from driftline.errors import DriftlineError
    from driftline.sdk.asynchronous import AsyncClient
    from driftline.sdk.frontier import Frontier
    from driftline.sdk.job import Job
    from driftline.sdk.offline import OfflineService
    from driftline.sdk.shortcuts import compare, frontier, run
    from driftline.study.spec import Study
    from search_spaces.parameters import Choice, Float, Int
    from service.embedded.client import Client

__version__ = "0.1.0"

_HOMES = {
    "AsyncClient": "driftline.sdk.asynchronous",
    "Choice": "search_spaces.parameters",
    "Client": "service.embedded.client",
    "DriftlineError": "driftline.errors",
    "Float": "search_spaces.parameters",
    "Frontier": "driftline.sdk.frontier",
    "Int": "search_spaces.parameters",
    "Job": "driftline.sdk.job",
    "OfflineService": "driftline.sdk.offline",
    "Study": "driftline.study.spec",
    "compare": "driftline.sdk.shortcuts",
    "frontier": "driftline.sdk.shortcuts",
    "run": "driftline.sdk.shortcuts",
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
