"""Answers that are kept, compressed once, and named by an ETag."""

import gzip
import json
import threading
import time
from collections.abc import Iterator

import pytest

from service.api.cached import Bodies
from service.store.store import Store

from .api_setup import Service, running
from .conftest import SPEC, new_trials


@pytest.fixture
def service(sqlite_store: Store) -> Iterator[Service]:
    with running(sqlite_store) as started:
        yield started


@pytest.mark.parametrize("what", ["", "/frontier"])
def test_what_has_not_changed_is_not_sent_again(service: Service, what: str) -> None:
    study = service.store.create_study(SPEC, "f" * 64).id
    with service.http() as http:
        path = f"/v1/studies/{study}{what}"
        first = http.get(path)
        etag = first.headers["etag"]
        for given in (etag, f'"x", {etag}', "*", etag.removeprefix("W/")):
            again = http.get(path, headers={"If-None-Match": given})
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
        assert http.get(path, headers={"If-None-Match": '"x"'}).json() == first.json()
        service.store.acquire(study, "h/1")
        service.store.create_trials(study, 1, new_trials("fedavg", 1))
        changed = http.get(path, headers={"If-None-Match": etag})
        assert changed.status_code == 200
        assert changed.headers["etag"] != etag


def test_a_large_answer_is_compressed_once(sqlite_store: Store) -> None:
    class Large:
        def frontier(self, study_id: str) -> dict[str, object]:
            return {"study": study_id, "points": list(range(5000))}

        def compare(self, study_id: str, a: str, b: str) -> dict[str, object]:
            return {}

    study = sqlite_store.create_study(SPEC, "f" * 64).id
    with running(sqlite_store, results=Large()) as service, service.http() as http:
        path = f"/v1/studies/{study}/frontier"
        with http.stream("GET", path) as response:
            raw = b"".join(response.iter_raw())
            assert response.headers["content-encoding"] == "gzip"
        assert json.loads(gzip.decompress(raw))["points"] == list(range(5000))
        plain = http.get(path, headers={"Accept-Encoding": "identity"})
        assert "content-encoding" not in plain.headers
        assert plain.json() == json.loads(gzip.decompress(raw))


def test_many_who_ask_at_once_have_it_made_once() -> None:
    bodies, made = Bodies(kept=2), []

    def make() -> dict[str, int]:
        made.append(1)
        time.sleep(0.1)
        return {"made": len(made)}

    threads = [threading.Thread(target=bodies.get, args=("s", 3, make)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert bodies.get("s", 2, make).raw == b'{"made":1}'  # newer than what was looked for
    assert bodies.get("s", 4, make).raw == b'{"made":2}'
    bodies.get("a", 1, make)
    bodies.get("b", 1, make)
    assert bodies.get("s", 4, make).raw == b'{"made":5}'  # only two are kept
