"""Who may do what over the API with tokens of the configuration and of drivers, and whether a process is ready."""

from typing import Any

import pytest

from driftline.errors import Conflict, Forbidden, NotFound, StaleDriver, Unauthorized, Unavailable
from driftline.wire.driver_messages import Released
from driftline.wire.logs import NewLine
from service.api.auth.tokens import Access, Tokens

from .api_setup import Service, problem
from .conftest import SPEC
from .store_setup import complete, driven


def test_who_may_do_what(service: Service) -> None:
    study = service.store.studies.create(SPEC, "f" * 64).id
    other = service.store.studies.create(SPEC, "f" * 64).id
    with service.client("reader") as reader:
        assert reader.study(study).id == study
        for refused in (
            lambda: reader.create(SPEC),
            lambda: reader.cancel(study),
            lambda: reader.acquire(study, "h/1"),
        ):
            with pytest.raises(Forbidden, match="needs a token with scope"):
                refused()
    with service.client("writer") as writer:
        assert writer.pause(study).state == writer.pause(study).state == "PAUSED"
        with pytest.raises(Forbidden):
            writer.acquire(study, "h/1")
        writer.resume(study)
    with service.client("stranger") as stranger:
        assert stranger.studies() == []
        with pytest.raises(NotFound):
            stranger.study(study)
        assert stranger.create(SPEC).project == "other"
    with service.client(service.tokens.driver(study)) as driver:
        assert driver.acquire(study, "h/1").attempt == 1
        assert (driver.study(study).id, driver.trials(study)) == (study, [])
        for refused in (
            lambda: driver.acquire(other, "h/1"),
            lambda: driver.study(other),
            lambda: driver.cancel(study),
            lambda: driver.create(SPEC),
            lambda: driver.studies(),
        ):
            with pytest.raises(Forbidden):
                refused()


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


def test_readiness_is_the_databases(service: Service) -> None:
    from driftline.errors import Unavailable

    def away() -> None:
        raise Unavailable("the database must be reachable")

    service.store.ready = away  # type: ignore[method-assign]
    with service.http(None) as http, service.client() as client:
        response = http.get("/readyz")
        problem(response, 503, "unavailable")
        assert response.headers["retry-after"] == "1"
        assert http.get("/healthz").status_code == 200
        assert not client.ready()


def test_a_service_that_cannot_write_is_not_ready_until_it_can(service: Service) -> None:
    with service.store.session.read() as connection:  # the pool's one connection
        raw: Any = connection.connection.driver_connection
    with service.http() as http, service.client("writer") as writer:
        assert http.get("/readyz").status_code == 200
        raw.execute("PRAGMA query_only = ON")
        with pytest.raises(Unavailable, match="readonly"):
            service.store.studies.create(SPEC, "f" * 64)
        assert "readonly" in problem(http.get("/readyz"), 503, "unavailable")["detail"]
        assert writer.studies() == []  # reading works
        raw.execute("PRAGMA query_only = OFF")
        assert http.get("/readyz").status_code == 200


def test_nobody_is_given_a_drivers_token(service: Service) -> None:
    with service.http() as admin:
        found = problem(admin.post("/v1/tokens", json={"name": "x", "scopes": ["driver"]}), 422, "invalid-spec")
        assert found["path"] == "scopes[0]"
        assert admin.get("/v1/tokens").json()["tokens"] == []
