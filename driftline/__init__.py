"""Driftline tunes local update methods and shows which quality each method reaches at which cost.

    from driftline import Client, Study

    study = Study.from_yaml("study.yaml")
    frontier = Client().submit(study).wait(progress=True).frontier()
    print(frontier.table())

This package is light: it needs no server code, and loads torch only to check a study in full.

    study/    studies as users write them: entries, budgets, YAML, checks
    wire/     messages between client, API and driver
    client/   HTTP: connection, retries, the API client
    results/  pure functions: curves -> frontier, comparison, ledger; show/: tables, pictures, pages
    sdk/      Client, Job, Frontier, AsyncClient, OfflineService
    trial     what a user's own training program imports: the standard library alone
    function_trial  runs a function as such a program
    archive   packs the files of such a program, to be sent to a service
    program_command  finds the file that its command begins with
    errors    every error that Driftline raises on purpose
    extras    optional packages, and the extra that installs each
    backoff   pauses between attempts

Imports run one way: sdk -> client -> results -> wire -> study; outside this package, only search_spaces and trainers
are imported. Without the address of a service, `Client` runs studies in this process, through the entry point group
``driftline.local``.
"""

from __future__ import annotations

import importlib
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from driftline.client.admin_client import AdminClient as AdminClient
    from driftline.errors import DriftlineError as DriftlineError
    from driftline.results.modelled_time import Time as Time
    from driftline.sdk.asynchronous import AsyncClient as AsyncClient
    from driftline.sdk.client import Client as Client
    from driftline.sdk.frontier import Frontier as Frontier
    from driftline.sdk.frontier import Recommendation as Recommendation
    from driftline.sdk.job import Job as Job
    from driftline.sdk.offline import OfflineService as OfflineService
    from driftline.sdk.shortcuts import compare as compare
    from driftline.sdk.shortcuts import frontier as frontier
    from driftline.sdk.shortcuts import log_models as log_models
    from driftline.sdk.shortcuts import run as run
    from driftline.sdk.tuning import tune as tune
    from driftline.study.examples import examples as examples
    from driftline.study.spec import Study as Study
    from search_spaces.parameters import Choice as Choice
    from search_spaces.parameters import Float as Float
    from search_spaces.parameters import Int as Int

__version__ = "0.3.0"

_HOMES = {
    "AdminClient": "driftline.client.admin_client",
    "AsyncClient": "driftline.sdk.asynchronous",
    "Choice": "search_spaces.parameters",
    "Client": "driftline.sdk.client",
    "DriftlineError": "driftline.errors",
    "Float": "search_spaces.parameters",
    "Frontier": "driftline.sdk.frontier",
    "Int": "search_spaces.parameters",
    "Job": "driftline.sdk.job",
    "OfflineService": "driftline.sdk.offline",
    "Recommendation": "driftline.sdk.frontier",
    "Study": "driftline.study.spec",
    "Time": "driftline.results.modelled_time",
    "compare": "driftline.sdk.shortcuts",
    "examples": "driftline.study.examples",
    "frontier": "driftline.sdk.shortcuts",
    "log_models": "driftline.sdk.shortcuts",
    "run": "driftline.sdk.shortcuts",
    "tune": "driftline.sdk.tuning",
}

__all__ = [
    "AdminClient",
    "AsyncClient",
    "Choice",
    "Client",
    "DriftlineError",
    "Float",
    "Frontier",
    "Int",
    "Job",
    "OfflineService",
    "Recommendation",
    "Study",
    "Time",
    "compare",
    "examples",
    "frontier",
    "log_models",
    "run",
    "tune",
]

_SIBLINGS = ("search_spaces", "trainers", "service")


def _refuse_hidden_siblings() -> None:
    """Raises ImportError if a user's file or folder hides one of Driftline's other packages."""
    home = Path(__file__).resolve().parent.parent
    for name in _SIBLINGS:
        spec = PathFinder.find_spec(name)
        folders = [] if spec is None else [Path(folder).resolve() for folder in spec.submodule_search_locations or ()]
        if spec is not None and home / name not in folders:
            hiding = folders[0] if folders else spec.origin
            raise ImportError(
                f"{hiding} hides Driftline's package {name!r} in {home}: rename it, or start Python elsewhere"
            )


if not TYPE_CHECKING:  # type checkers use the imports above; with __getattr__ they would accept any name

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'driftline' has no attribute {name!r} (it has: {', '.join(__all__)})")
        _refuse_hidden_siblings()  # only here: `driftline.trial` needs no sibling and runs beside users' files
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
