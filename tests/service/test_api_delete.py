"""Deleting studies over a real server."""

import pytest

from driftline.errors import NotFound
from service.store.store import Store

from .api_setup import Service, problem, running
from .conftest import SPEC
from .store_setup import make


def test_a_study_is_deleted_once(service: Service) -> None:
    study = make(service.store)
    service.store.studies.intend(study, "cancel")
    with service.http("writer") as http:
        answer = http.delete(f"/v1/studies/{study}")
        assert (answer.status_code, answer.content) == (204, b"")
        for _ in range(2):
            problem(http.delete(f"/v1/studies/{study}"), 404, "not-found")
        problem(http.get(f"/v1/studies/{study}/frontier"), 404, "not-found")
        assert http.get("/v1/studies").json()["studies"] == []
    (event,) = service.store.audit.find(action="study.delete")
    assert (event.actor_name, event.target) == ("configured", study)


def test_the_stream_of_a_deleted_study_ends(service: Service) -> None:
    study = make(service.store)
    service.store.studies.intend(study, "pause")
    with service.client() as client:
        events = client.events(study)
        assert [next(events).data["state"] for _ in range(2)] == ["PENDING", "PAUSED"]
        service.store.deletions.request(study)
        with pytest.raises(NotFound):
            next(events)


def test_every_wish_wakes_a_scheduler_in_the_same_process(sqlite_store: Store) -> None:
    woken: list[int] = []
    with running(sqlite_store, wake=lambda: woken.append(1)) as service, service.client() as client:
        study = client.create(SPEC).id
        for before, wish in enumerate((client.pause, client.resume, client.cancel, client.delete), 1):
            assert len(woken) == before
            wish(study)
    assert len(woken) == 5
