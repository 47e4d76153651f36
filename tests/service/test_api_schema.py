"""The API holds to its own document: generated requests, good and bad, get documented answers and never a failure."""

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import APIRouter
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, Phase, given, settings

from driftline.wire.ids import holder
from service.api import app, routes, study_checks
from service.api.dependencies import query_names
from service.api.rate_limits import Limits
from service.store.store import Store

from .api_setup import running
from .conftest import SPEC, new_trials

WHY = "install schemathesis to test the API against its document"
schemathesis = pytest.importorskip("schemathesis", reason=WHY)
CHECKS = pytest.importorskip("schemathesis.specs.openapi.checks", reason=WHY)

PROBES = ["healthz", "readyz", "metrics"]  # take nothing that could be wrong
ENDLESS = "streamEvents"  # ends only when the study does
ROUTES = [
    route
    for module in pkgutil.iter_modules(routes.__path__)
    for router in vars(importlib.import_module(f"{routes.__name__}.{module.name}")).values()
    if isinstance(router, APIRouter)
    for route in router.routes
    if isinstance(route, APIRoute)
]
OPERATIONS = [route.operation_id for route in ROUTES if route.operation_id not in (*PROBES, ENDLESS)]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, str]]:
    """The document, and a study that is driven."""
    store = Store(tmp_path_factory.mktemp("api") / "driftline.db")
    unlimited = Limits(requests_per_second=None)  # a fast machine sends more than the burst of one token
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(app, "SIGN_INS_AT_ONCE", 10**6)  # many generated requests have no valid token
        with running(store, loopback=True, check=study_checks.check, frontier=None, limits=unlimited) as service:
            study = store.studies.create(SPEC, "f" * 64).id
            store.leases.acquire(study, holder())
            store.trials.create(study, 1, new_trials("fedavg", 3))
            yield schemathesis.openapi.from_url(f"{service.server.url}/openapi.json"), study
    store.close()


def test_the_query_parameters_that_routes_accept_are_those_of_the_document(api: tuple[Any, str]) -> None:
    documented = {
        operation["operationId"]: {one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"}
        for path in api[0].raw_schema["paths"].values()
        for operation in path.values()
    }
    accepted = {str(route.operation_id): set(query_names(route.dependant)) for route in ROUTES}
    assert {name: accepted[name] for name in documented} == documented
    assert sum(map(len, documented.values())) > 10


@pytest.mark.parametrize(
    ("name", "mode"),
    [(name, "POSITIVE") for name in [*OPERATIONS, *PROBES]] + [(name, "NEGATIVE") for name in OPERATIONS],
)
def test_generated_requests(api: tuple[Any, str], name: str, mode: str) -> None:
    schema, study = api
    operation = schema.find_operation_by_id(name)

    @given(case=operation.as_strategy(generation_mode=schemathesis.GenerationMode[mode]))
    @settings(
        max_examples=6,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def send(case: Any) -> None:
        if mode == "POSITIVE" and "study_id" in case.path_parameters:
            case.path_parameters["study_id"] = study
        case.call_and_validate(
            headers={"Authorization": "Bearer all"},
            timeout=120,
            excluded_checks=[CHECKS.positive_data_acceptance],  # there are rules that a schema cannot say
        )

    send()
