"""Answers that are kept, compressed once, and named by an ETag."""

import asyncio
import gzip
import json
import threading
from typing import Any

import pytest

from driftline.errors import NotFound
from service.api.computed_results import computed_frontier
from service.api.response_cache import Bodies
from service.store.store import Store

from .api_setup import Service, running
from .conftest import SPEC, new_trials
from .store_setup import driven
from .test_web_sign_in import signed_in


@pytest.mark.parametrize("what", ["", "/frontier"])
def test_what_has_not_changed_is_not_sent_again(service: Service, what: str) -> None:
    study = service.store.studies.create(SPEC, "f" * 64).id
    with service.http() as http:
        path = f"/v1/studies/{study}{what}"
        first = http.get(path)
        etag = first.headers["etag"]
        for given in (etag, f'"x", {etag}', "*", etag.removeprefix("W/")):
            again = http.get(path, headers={"If-None-Match": given})
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
        assert http.get(path, headers={"If-None-Match": '"x"'}).json() == first.json()
        service.store.leases.acquire(study, "h/1")
        service.store.trials.create(study, 1, new_trials("fedavg", 1))
        changed = http.get(path, headers={"If-None-Match": etag})
        assert changed.status_code == 200
        assert changed.headers["etag"] != etag


def test_a_new_state_is_a_new_answer_although_the_version_stays(sqlite_store: Store) -> None:
    study, attempt, _ = driven(sqlite_store, 0)
    with running(sqlite_store, frontier=None) as service, service.client() as client:
        assert client.frontier(study)["finished_at"] is None
        before = sqlite_store.studies.get(study).version
        sqlite_store.leases.release(study, attempt, "SUCCEEDED")
        assert sqlite_store.studies.get(study).version == before
        assert client.frontier(study)["finished_at"] is not None


def test_a_comparison_has_an_etag_too(sqlite_store: Store) -> None:
    study = sqlite_store.studies.create(SPEC, "f" * 64).id
    with running(sqlite_store, frontier=None) as service, service.http() as http:
        path = f"/v1/studies/{study}/compare"
        params = {"a": "fedavg", "b": "fedprox"}
        first = http.get(path, params=params)
        assert first.json()["a"] == "fedavg"
        given = {"If-None-Match": first.headers["etag"]}
        assert http.get(path, params=params, headers=given).status_code == 304
        turned = http.get(path, params={"a": "fedprox", "b": "fedavg"}, headers=given)
        assert turned.json()["a"] == "fedprox"


def test_a_comparison_is_not_the_cached_page_of_the_frontier(sqlite_store: Store) -> None:
    study = sqlite_store.studies.create(SPEC, "f" * 64).id
    with running(sqlite_store, frontier=None) as service:
        with signed_in(service, "reader") as http:
            assert http.get(f"/studies/{study}/frontier").status_code == 200
        with service.http() as http:
            labels = {"a": sqlite_store.studies.get(study).state, "b": "page"}
            assert http.get(f"/v1/studies/{study}/compare", params=labels).status_code == 404


def test_a_large_answer_is_compressed_once(sqlite_store: Store) -> None:
    def large(study_id: str) -> dict[str, object]:
        return {"study": study_id, "points": list(range(5000))}

    study = sqlite_store.studies.create(SPEC, "f" * 64).id
    with running(sqlite_store, frontier=large) as service, service.http() as http:
        path = f"/v1/studies/{study}/frontier"
        with http.stream("GET", path) as response:
            raw = b"".join(response.iter_raw())
            assert response.headers["content-encoding"] == "gzip"
        assert json.loads(gzip.decompress(raw))["points"] == list(range(5000))
        plain = http.get(path, headers={"Accept-Encoding": "identity"})
        assert "content-encoding" not in plain.headers
        assert plain.json() == json.loads(gzip.decompress(raw))


class Making:
    """Makes answers when it is let, and counts them."""

    def __init__(self) -> None:
        self.made = 0
        self.begun = threading.Event()
        self.let = threading.Event()

    def __call__(self) -> dict[str, int]:
        self.made += 1
        made = self.made
        self.begun.set()
        assert self.let.wait(120)
        return {"made": made}


async def begun(making: Making) -> None:
    while not making.begun.is_set():
        await asyncio.sleep(0.001)


def test_simultaneous_requests_share_one_answer() -> None:
    async def ask() -> None:
        bodies, making = Bodies(), Making()
        asked = [asyncio.create_task(bodies.get("s", 3, making)) for _ in range(8)]
        await begun(making)
        asked[0].cancel()  # one who gives up does not end it for the others
        later = [asyncio.create_task(bodies.get("s", version, making)) for version in (4, 5, 5)]
        await asyncio.sleep(0)
        making.let.set()
        found = await asyncio.gather(*asked[1:])
        assert {body.raw for body in found} == {b'{"made":1}'}
        newer = {body.raw for body in await asyncio.gather(*later)}
        assert making.made in (2, 3)  # one for version 4 and one for 5, or one for both
        assert newer <= {b'{"made":2}', b'{"made":3}'}
        assert (await bodies.get("s", 2, making)).raw == f'{{"made":{making.made}}}'.encode()  # newer than asked for

    asyncio.run(ask())


def test_what_cannot_be_made_is_tried_again() -> None:
    def fail() -> None:
        raise NotFound("no")

    async def ask() -> None:
        bodies = Bodies()
        for _ in range(2):
            found = await asyncio.gather(*(bodies.get("s", 1, fail) for _ in range(3)), return_exceptions=True)
            assert [type(error) for error in found] == [NotFound] * 3
        assert (await bodies.get("s", 1, lambda: 1)).raw == b"1"

    asyncio.run(ask())


@pytest.mark.parametrize("limits", [{"kept": 2}, {"bytes_kept": 25}])
def test_what_was_asked_for_last_is_kept(limits: dict[str, int]) -> None:
    async def ask() -> None:
        bodies, making = Bodies(**limits), Making()
        making.let.set()
        for key in ("a", "b", "a", "c", "a"):  # c puts b out
            await bodies.get(key, 1, making)
        assert making.made == 3
        await bodies.get("b", 1, making)
        assert making.made == 4
        await bodies.get("large", 1, lambda: "x" * 100)  # kept, whatever it takes
        assert (await bodies.get("large", 1, lambda: 0)).raw != b"0"

    asyncio.run(ask())


def test_others_are_answered_while_many_wait_for_a_result(sqlite_store: Store) -> None:
    """More clients than there are threads wait for the same cold frontier, and some for its comparison."""
    making = Making()

    def slow(study_id: str) -> dict[str, Any]:
        making()
        return computed_frontier(sqlite_store, study_id)

    study = sqlite_store.studies.create(SPEC, "f" * 64).id
    answers: list[bytes] = []
    with running(sqlite_store, frontier=slow) as service:

        def ask(path: str) -> None:
            with service.http() as http:
                answers.append(http.get(f"/v1/studies/{study}/{path}").content)

        paths = ["frontier"] * 50 + ["compare?a=fedavg&b=fedprox"] * 10
        threads = [threading.Thread(target=ask, args=(path,)) for path in paths]
        for thread in threads:
            thread.start()
        assert making.begun.wait(60)
        with service.http() as http:
            assert http.get("/healthz").status_code == 200
            assert http.get("/readyz").status_code == 200  # needs a thread
            assert http.get(f"/v1/studies/{study}").status_code == 200
        assert answers == []
        making.let.set()
        for thread in threads:
            thread.join()
    assert len(answers) == 60
    assert making.made == 1  # a frontier and its comparisons share one computation
    assert len(set(answers)) == 2
