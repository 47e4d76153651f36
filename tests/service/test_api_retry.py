"""FAILED trials run again, over a real server."""

from driftline.errors import Conflict
from driftline.wire.ids import holder
from tests.waiting import together

from .api_setup import Service
from .test_store_retry import failed, mixed


def test_bodies_and_keys(service: Service) -> None:
    study, _, trials = mixed(service.store)
    path = f"/v1/studies/{study}:retry"
    with service.http() as http:
        for wrong in ({"trials": "x"}, {"trials": [1]}, {"trial": []}, []):
            assert http.post(path, json=wrong).status_code == 422, wrong
        key = {"Idempotency-Key": "k"}
        first = http.post(path, json={"trials": trials[:1]}, headers=key)
        assert (first.status_code, first.json()["state"]) == (200, "RUNNING")
        assert http.post(path, json={"trials": trials[:1]}, headers=key).json() == first.json()
        other = http.post(path, json={"trials": trials[1:2]}, headers=key)
        assert (other.status_code, other.json()["path"]) == (422, "Idempotency-Key")
        assert http.post(path).status_code == 200  # no body: all of them
        assert http.post(path).status_code == 409
        attempt = service.store.leases.acquire(study, holder()).attempt
        service.store.trials.finish(study, attempt, [failed(trials[0])])
        assert http.post(path, json={}).status_code == 200


def test_retries_at_the_same_time_are_one(service: Service) -> None:
    study, _, _ = mixed(service.store)

    def retry() -> str:
        with service.client() as client:
            try:
                return client.retry(study).state
            except Conflict:
                return "409"

    assert sorted(together([retry] * 4)) == ["409", "409", "409", "RUNNING"]
    assert len(service.store.audit.find(action="study.retry")) == 1
