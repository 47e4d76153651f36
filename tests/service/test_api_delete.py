"""Deleting studies over a real server."""

from collections.abc import Iterator

import httpx
import pytest

from driftline.errors import Conflict, Forbidden, NotFound
from service.store.store import Store

from .api_setup import Service, problem, running
from .conftest import SPEC
from .store_setup import driven, make


@pytest.fixture
def service(store: Store) -> Iterator[Service]:
    with running(store) as started:
        yield started


def test_a_study_is_deleted_once(service: Service) -> None:
    study = make(service.store)
    service.store.studies.intend(study, "cancel")
    with service.http("writer") as http:
        answer = http.delete(f"/v1/studies/{study}")
        assert (answer.status_code, answer.content) == (204, b"")
        for _ in range(2):
            problem(http.delete(f"/v1/studies/{study}"), 404, "not-found")
        problem(http.get(f"/v1/studies/{study}"), 404, "not-found")
        problem(http.get(f"/v1/studies/{study}/trials"), 404, "not-found")
        problem(http.get(f"/v1/studies/{study}/frontier"), 404, "not-found")
        problem(http.post(f"/v1/studies/{study}:resume"), 404, "not-found")
        assert http.get("/v1/studies").json()["studies"] == []
    (event,) = service.store.audit.find(action="study.delete")
    assert (event.actor_name, event.target) == ("configured", study)


def test_a_study_that_runs_is_refused(service: Service) -> None:
    study, attempt, _ = driven(service.store)
    with service.client("writer") as client:
        with pytest.raises(Conflict, match="running cannot be deleted") as refused:
            client.delete(study)
        assert "cancel it first" in str(refused.value)
        client.cancel(study)
        with pytest.raises(Conflict, match="cancelling"):
            client.delete(study)
        service.store.leases.release(study, attempt, "CANCELLED")
        client.delete(study)
        with pytest.raises(NotFound):
            client.delete(study)


def test_who_may_delete(service: Service) -> None:
    study = make(service.store)
    service.store.studies.intend(study, "pause")
    for token, error in (("reader", Forbidden), ("stranger", NotFound), (service.tokens.driver(study), Forbidden)):
        with service.client(token) as client:
            with pytest.raises(error):
                client.delete(study)
            with pytest.raises(error):
                client._request("DELETE", f"/v1/studies/{study}")
    assert service.store.studies.get(study).state == "PAUSED"


def test_an_answer_that_is_lost_costs_nothing(service: Service) -> None:
    """The first request deletes the study and its answer is lost; the retry gets 404."""
    study = make(service.store)
    service.store.studies.intend(study, "cancel")
    inside = httpx.HTTPTransport(uds=str(service.server.socket))
    lost = []

    class Lossy(httpx.BaseTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            answer = inside.handle_request(request)
            if request.method == "DELETE" and not lost:
                lost.append(answer.read())
                raise httpx.ReadError("connection reset")
            return answer

        def close(self) -> None:
            inside.close()

    with service.client("all", transport=Lossy()) as client:
        client.delete(study)
        with pytest.raises(NotFound):
            client.study(study)
    assert lost == [b""]


def test_the_stream_of_a_deleted_study_ends(service: Service) -> None:
    study = make(service.store)
    service.store.studies.intend(study, "pause")
    with service.client() as client:
        events = client.events(study)
        assert [next(events).data["state"] for _ in range(2)] == ["PENDING", "PAUSED"]
        service.store.deletions.request(study)
        with pytest.raises(NotFound):
            next(events)


def test_a_scheduler_in_the_same_process_looks_at_once(store: Store) -> None:
    woken: list[int] = []
    with running(store, wake=lambda: woken.append(1)) as service, service.client() as client:
        study = client.create(SPEC).id
        client.cancel(study)
        before = len(woken)
        client.delete(study)
        assert len(woken) == before + 1
