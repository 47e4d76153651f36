"""Who may do what over the API with tokens of the configuration and of drivers, and whether a process is ready."""

from typing import Any

import pytest

from driftline.errors import Conflict, NotFound, StaleDriver, Unauthorized, Unavailable
from driftline.wire.driver_messages import Released
from driftline.wire.logs import NewLine
from service.api.auth.tokens import Access, Tokens

from .api_setup import Service, problem
from .conftest import SPEC
from .store_setup import complete, driven

NEEDS = {
    "": "whoami",
    "read": "getQuota listStudies getStudy listTrials getCurves getFrontier compareLabels streamEvents getLogs",
    "write": "createStudy putArchive pauseStudy resumeStudy cancelStudy extendStudy retryTrials deleteStudy",
    "driver": (
        "acquireStudy heartbeat releaseStudy storePlan createTrials startPack reportPack finishTrials "
        "sendLogs getArchive getDataUrls"
    ),
    "admin": "createToken listTokens revokeToken getProjectQuota setProjectQuota listAudit",
}
"""The operations that need each scope."""
HELD = {"reader": ("read",), "writer": ("read", "write"), "all": ("read", "write", "driver", "admin")}


@pytest.mark.parametrize("scope", NEEDS)
def test_every_operation_needs_its_scope_and_a_study_of_the_tokens_own(service: Service, scope: str) -> None:
    with service.http(None) as http:
        routes = {
            operation["operationId"]: (method, path)
            for path, methods in http.get("/openapi.json").json()["paths"].items()
            for method, operation in methods.items()
        }
        assert routes.keys() - {"healthz", "readyz", "metrics"} == set(" ".join(NEEDS.values()).split())
        for name in NEEDS[scope].split():
            method, path = routes[name]
            study, other = (service.store.studies.create(SPEC, "f" * 64).id for _ in range(2))

            def status(token: str, study: str = study, method: str = method, path: str = path) -> int:
                address = path.format(study_id=study, token_id="x", project="other", digest="0" * 64)
                headers = {"Authorization": f"Bearer {token}"}
                with http.stream(method, address, json={}, headers=headers) as response:
                    return response.status_code

            driver = service.tokens.driver(study)
            if "{study_id}" in path:
                assert status("stranger") == 404, name
                assert status(driver, other) == 403, name
            may = scope in ("", "driver") or name == "getQuota" or (scope == "read" and "{study_id}" in path)
            assert (status(driver) != 403) is may, name
            for token, held in HELD.items():
                assert (status(token) != 403) is (scope in ("", *held)), (name, token)


def test_a_project_sees_its_own_studies_alone(service: Service) -> None:
    service.store.studies.create(SPEC, "f" * 64)
    with service.client("stranger") as stranger:
        assert stranger.studies() == []
        assert stranger.create(SPEC).project == "other"


@pytest.mark.parametrize("token", [None, "wrong", "driver.x.default.00", "driver", "driver...", "é"])
def test_without_a_known_token(service: Service, token: str | None) -> None:
    study = service.store.studies.create(SPEC, "f" * 64).id
    with service.http(None) as http:
        headers = {"Authorization": f"Bearer {token}".encode()} if token else {}
        for path in ("/v1/studies", f"/v1/studies/{study}", f"/v1/studies/{study}/events", "/v1/studies/none"):
            response = http.get(path, headers=headers)
            problem(response, 401, "unauthorized")
            assert response.headers["www-authenticate"] == "Bearer"
        assert http.get("/healthz").json() == {"status": "ok"}
        assert http.get("/readyz").json() == {"status": "ok"}


def test_a_drivers_token_cannot_be_bent_to_another_study_or_project() -> None:
    tokens = Tokens({}, b"secret")
    good = tokens.driver("s1", "team.a")
    assert tokens.access(good) == Access("team.a", frozenset({"driver"}), "s1")
    assert Tokens({}, b"secret").access(good).study == "s1"
    for bad in (good.replace("s1", "s2"), good.replace("team", "tem"), good[:-1], good + "0"):
        with pytest.raises(Unauthorized):
            tokens.access(bad)
    with pytest.raises(Unauthorized):
        Tokens({}, b"other").access(good)


@pytest.mark.parametrize("state", ["SUCCEEDED", "FAILED", "CANCELLED"])
def test_a_drivers_token_ends_with_its_study(service: Service, state: Released) -> None:
    study, attempt, trials = driven(service.store)
    service.store.trials.finish(study, attempt, [complete(trial) for trial in trials])
    line = [NewLine(at=1.0, text="the end")]
    with service.client(service.tokens.driver(study)) as driver:
        assert driver.study(study).state == "RUNNING"
        if state == "CANCELLED":
            service.store.studies.intend(study, "cancel")
        assert driver.release(study, attempt, state).state == state
        for refused in (
            lambda: driver.study(study),
            lambda: driver.trials(study),
            lambda: driver.curves(study),
            lambda: driver.logs(study),
            lambda: driver.quota(),
            lambda: driver.whoami(),
            lambda: next(driver.events(study)),
        ):
            with pytest.raises(Unauthorized, match=f"this driver's token has expired: study {study} is over"):
                refused()
        with pytest.raises(Conflict, match="needs no driver"):
            driver.acquire(study, "h/2")
        with pytest.raises(StaleDriver):
            driver.heartbeat(study, attempt)
        with pytest.raises(StaleDriver, match="its log takes no more lines of attempt 7"):
            driver.send_logs(study, 7, line)
        assert driver.release(study, attempt, state).state == state  # its answer was lost
        assert driver.send_logs(study, attempt, line) == 1
    with service.client("reader") as reader:
        assert [one.text for one in reader.logs(study)] == ["the end"]


def test_a_drivers_token_is_good_again_when_its_study_goes_on(service: Service) -> None:
    study, attempt, _ = driven(service.store)
    with service.client(service.tokens.driver(study)) as driver:
        driver.release(study, attempt, "FAILED", "no")
        with pytest.raises(Unauthorized):
            driver.study(study)
        service.store.studies.intend(study, "resume")
        assert driver.study(study).state == "PENDING"
        assert driver.acquire(study, "h/2").attempt == 2
        assert (driver.whoami().study, driver.whoami().scopes) == (study, ["driver"])
        driver.release(study, 2, "FAILED", "no")
        service.store.deletions.request(study)
        with pytest.raises(Unauthorized):
            driver.whoami()
        with pytest.raises(NotFound):
            driver.acquire(study, "h/3")


def test_a_random_token_allows_everything() -> None:
    tokens, token = Tokens.random()
    assert tokens.access(token).scopes == Access().scopes
    assert len(token) > 40


def test_a_service_that_cannot_write_is_not_ready_until_it_can(service: Service) -> None:
    with service.store.session.read() as connection:  # the pool's one connection
        raw: Any = connection.connection.driver_connection
    with service.http() as http, service.client("writer") as writer:
        assert http.get("/readyz").status_code == 200
        raw.execute("PRAGMA query_only = ON")
        with pytest.raises(Unavailable, match="readonly"):
            service.store.studies.create(SPEC, "f" * 64)
        response = http.get("/readyz")
        assert "readonly" in problem(response, 503, "unavailable")["detail"]
        assert response.headers["retry-after"] == "1"
        assert not writer.ready()
        assert http.get("/healthz").status_code == 200
        assert writer.studies() == []  # reading works
        raw.execute("PRAGMA query_only = OFF")
        assert http.get("/readyz").status_code == 200
