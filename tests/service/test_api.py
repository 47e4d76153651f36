"""The API over a real server: routes, errors, pages, limits, its document."""

import base64
import gzip
import json
from collections.abc import Iterator

import pytest

from driftline.errors import InvalidRequest, InvalidSpec, StaleDriver
from driftline.wire.curve_codec import encode
from driftline.wire.driver_messages import Report, TrialResult
from driftline.wire.ids import holder
from driftline.wire.records import Values
from service.api.rate_limits import Limits
from service.store.store import Store

from .api_setup import Service, pages, problem, running
from .conftest import SPEC, new_trials
from .store_setup import complete, driven, make, report

PROBLEM = "application/problem+json"


# ---- studies


def test_validate_only_stores_nothing(service: Service) -> None:
    with service.client() as client:
        checked = client.validate(SPEC)
        assert (checked.spec, len(checked.fingerprint)) == (SPEC, 64)
        assert client.studies() == []
        with pytest.raises(InvalidSpec, match="name: must be given") as caught:
            client.validate({})
        assert caught.value.path == "name"


def test_an_idempotency_key_stands_for_one_study(service: Service) -> None:
    with service.client() as client, service.http() as http:
        made = http.post("/v1/studies", json=SPEC, headers={"Idempotency-Key": "k1"})
        first = client.study(made.json()["id"])
        assert (made.status_code, made.headers["location"]) == (201, f"/v1/studies/{first.id}")
        shuffled = dict(reversed(SPEC.items()))
        assert client.create(shuffled, key="k1") == first
        assert client.create(SPEC).id != first.id
        response = http.post("/v1/studies", json=SPEC | {"name": "other"}, headers={"Idempotency-Key": "k1"})
        assert problem(response, 422, "invalid-spec")["path"] == "Idempotency-Key"
        assert len(client.studies()) == 2


# ---- the driver's protocol


def test_a_driver_from_acquire_to_release(service: Service) -> None:
    study = service.store.studies.create(SPEC, "f" * 64).id
    with service.client(service.tokens.driver(study)) as driver, service.client() as owner:
        lease = driver.acquire(study, "here/1")
        assert (lease.attempt, lease.lease_seconds) == (1, 30.0)
        made = driver.create_trials(study, 1, new_trials("fedavg", 3))
        assert [trial.number for trial in made] == [0, 1, 2]
        assert driver.create_trials(study, 1, new_trials("fedavg", 3)) == made
        ids = [trial.id for trial in made]
        assert [trial.attempt for trial in driver.start_pack(study, 1, "p", ids[:2])] == [1, 1]
        columns = {"round": [0, 1], "train_loss": [1.0, None], "bytes_up": [0, 2**40]}
        body = Report(
            attempt=1, pack="p", reports={ids[0]: encode(columns)}, rounds_done=1, checkpoint="c", plan={"width": 2}
        )
        stored = driver.report(study, body)
        assert stored.desired == "run"
        assert driver.report(study, body) == stored
        assert owner.curves(study) == {ids[0]: columns, ids[1]: {"round": []}, ids[2]: {"round": []}}
        assert owner.curves(study, ids[:1]) == {ids[0]: columns}
        assert driver.heartbeat(study, 1) == "run"
        assert owner.pause(study).state == "PAUSING"
        assert driver.heartbeat(study, 1) == driver.report(study, body).desired == "pause"
        assert driver.finish(study, 1, []).desired == "pause"
        owner.resume(study)
        assert driver.report(study, body).desired == "run"
        done = [TrialResult(trial=trial, state="COMPLETE", values=Values(quality=1.0, speed=0.5)) for trial in ids]
        assert driver.finish(study, 1, done) == driver.finish(study, 1, done)
        assert {trial.state for trial in owner.trials(study, label="fedavg", phase="search")} == {"COMPLETE"}
        assert owner.trials(study, state="WAITING") == []
        assert driver.release(study, 1, "SUCCEEDED").state == "SUCCEEDED"
        with pytest.raises(StaleDriver, match="attempt 1 no longer holds"):
            driver.heartbeat(study, 1)


# ---- pages


def test_trials_and_curves_in_pages(service: Service) -> None:
    study, _, everything = driven(service.store, 7)
    with service.http() as http:
        trials, curves = (pages(http, f"/v1/studies/{study}/{name}", name, 3) for name in ("trials", "curves"))
        assert [[trial["id"] for trial in page] for page in trials] == curves
        assert [one for page in curves for one in page] == everything
        assert [len(page) for page in curves] == [3, 3, 1]
        # seven on one page need no second one
        assert http.get(f"/v1/studies/{study}/trials", params={"page_size": 7}).json()["next_page_token"] is None


def test_page_tokens_are_good_for_their_listing_only(service: Service) -> None:
    study, _, _ = driven(service.store, 3)
    with service.http() as http:
        token = http.get(f"/v1/studies/{study}/trials", params={"page_size": 1}).json()["next_page_token"]
        for where, params, told in (
            ("trials", {"page_token": "nonsense"}, "page_token"),
            ("trials", {"page_token": token, "label": "fedavg"}, "page_token"),
            ("trials", {"page_token": "é"}, "page_token"),
            ("curves", {"page_token": token}, "page_token"),
            ("trials", {"page_size": 0}, "page_size"),
            ("trials", {"page_size": 1001}, "page_size"),
            ("trials", {"page_size": "many"}, "page_size: must be a valid integer, unable to parse"),
            ("trials", {"phase": "sprint"}, """phase: must be 'search' or 'confirmation', got "sprint\""""),
            ("trials", {"lable": "fedavg"}, "lable"),
        ):
            body = problem(http.get(f"/v1/studies/{study}/{where}", params=params), 400, "invalid-request")
            assert f"{body['path']}: {body['problem']}".startswith(told)


def test_drivers_may_quote_anything(store: Store) -> None:
    with running(store) as service, service.client() as driver:
        study = make(store)
        attempt = driver.acquire(study, holder()).attempt
        (trial,) = driver.create_trials(study, attempt, new_trials("fedavg", 1))
        driver.start_pack(study, attempt, "p", [trial.id])
        failed = TrialResult(trial=trial.id, state="FAILED", error="ValueError: 'a\x00b \ud800'")
        for _ in range(2):
            driver.finish(study, attempt, [failed])
        assert store.trials.get(study, trial.id).error == "ValueError: 'a\ufffdb ?'"
        assert driver.release(study, attempt, "FAILED", "it said a\x00b \ud800").reason == "it said a\ufffdb ?"


# ---- errors


def test_errors_are_problems(service: Service) -> None:
    study = service.store.studies.create(SPEC, "f" * 64).id
    with service.http() as http:
        problem(http.get("/v1/studies/none"), 404, "not-found")
        body = problem(http.post(f"/v1/studies/{study}/driver:acquire", json={"holders": "x"}), 422, "invalid-spec")
        assert body["path"] in ("holder", "holders")
        problem(
            http.post("/v1/studies", content="{", headers={"Content-Type": "application/json"}), 400, "invalid-request"
        )
        problem(http.post("/v1/studies", json=[1]), 422, "invalid-spec")
        new = new_trials("a", 1)[0].model_dump() | {"configuration": 1}  # a search trial must not name another one
        response = http.post(f"/v1/studies/{study}/trials", json={"attempt": 1, "trials": [new]})
        assert problem(response, 422, "invalid-spec")["path"] == "trials[0]"
        missing = http.get("/v2/nothing")
        assert (missing.status_code, missing.headers["content-type"]) == (404, PROBLEM)
        wrong = http.put(f"/v1/studies/{study}")
        assert (wrong.status_code, wrong.headers["content-type"]) == (405, PROBLEM)


def test_curves_that_no_worker_sends_are_refused(sqlite_store: Store) -> None:
    study, attempt, (trial, _) = driven(sqlite_store)
    sqlite_store.trials.start_pack(study, attempt, "p", [trial])
    (block,) = encode({"round": [0, 1], "loss": [0.5] * 2})
    (late,) = encode({"round": [1, 2]})
    (many,) = encode({"round": [0, 1, 2, 3], **{f"m{number}": [0.5] * 4 for number in range(4000)}})

    with running(sqlite_store, limits=Limits(body_bytes=100_000)) as service, service.http() as http:

        def refused(reports: object, status: int = 422, code: str = "invalid-spec") -> tuple[str, str]:
            body = {"attempt": attempt, "pack": "p", "rounds_done": 1, "reports": {trial: reports}}
            told = problem(http.post(f"/v1/studies/{study}/reports", json=body), status, code)
            return told["path"].replace(trial, "t"), told["problem"]

        def texts(*blocks: bytes) -> list[str]:
            return [base64.b64encode(block).decode() for block in blocks]

        assert refused(5) == ("reports.t", "must be a valid list")
        assert refused(["no base64"])[0] == "reports.t[0]"
        path, told = refused(texts(block, late))
        assert (path, told) == ("reports.t", "blocks must be of different segments, in ascending order")
        path, told = refused(texts(block[:-1] + b"x"))
        assert (path, "compressed by zlib" in told) == ("reports.t[0]", True)
        path, told = refused(texts(many), 400, "invalid-request")
        assert (path, "at most 100000 bytes decompressed (body_bytes)" in told) == ("reports", True)
        assert sqlite_store.curves.columns(study, [trial]) == {trial: {"round": []}}
        accepted = {"attempt": attempt, "pack": "p", "rounds_done": 1, "reports": {trial: texts(block)}}
        assert http.post(f"/v1/studies/{study}/reports", json=accepted).status_code == 200
        assert sqlite_store.curves.columns(study, [trial]) == {trial: {"round": [0, 1], "loss": [0.5, 0.5]}}


def test_a_report_reads_the_study_once_before_its_own_transaction(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, attempt, (trial, _) = driven(sqlite_store)
    sqlite_store.trials.start_pack(study, attempt, "p1", [trial])
    reads = []
    read = sqlite_store.session.database.read
    with running(sqlite_store) as service, service.client() as driver:
        monkeypatch.setattr(sqlite_store.session.database, "read", lambda: reads.append(1) or read())
        assert driver.report(study, report(attempt, trial, range(3))).desired == "run"
        assert len(reads) == 1  # its project, for the token
        assert driver.finish(study, attempt, [complete(trial)]).desired == "run"
        assert len(reads) == 2


def test_what_fails_unexpectedly_is_a_problem_without_secrets(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("password=hunter2")

    monkeypatch.setattr(service.store.studies, "page", fail)
    with service.http() as http:
        body = problem(http.get("/v1/studies"), 500, "error")
    assert "hunter2" not in json.dumps(body)
    assert "hunter2" in caplog.text


def test_bodies_that_are_too_large(sqlite_store: Store) -> None:
    with running(sqlite_store, limits=Limits(body_bytes=200_000)) as service, service.http() as http:
        large = b'{"name": "' + b"x" * 300_000 + b'"}'
        headers = {"Content-Type": "application/json"}
        problem(http.post("/v1/studies", content=large, headers=headers), 413, "invalid-request")

        def parts() -> Iterator[bytes]:
            yield large[:150_000]
            yield large[150_000:]

        response = http.post("/v1/studies", content=parts(), headers=headers)  # sent without a length
        assert (response.status_code, response.headers["content-type"]) == (413, PROBLEM)
        assert http.get("/v1/studies").json()["studies"] == []


def test_large_answers_are_compressed(service: Service) -> None:
    study, _, _ = driven(service.store, 20)
    with service.http() as http, http.stream("GET", f"/v1/studies/{study}/trials") as response:
        raw = b"".join(response.iter_raw())
        assert response.headers["content-encoding"] == "gzip"
        assert len(json.loads(gzip.decompress(raw))["trials"]) == 20


# ---- the document


def test_the_openapi_document(service: Service) -> None:
    with service.http(None) as http:
        document = http.get("/openapi.json").json()
    operations = {
        operation["operationId"]: operation for path in document["paths"].values() for operation in path.values()
    }
    for name, operation in operations.items():
        assert operation.get("summary"), name
        assert "4XX" in operation["responses"], name
        assert bool(operation.get("security")) == (name not in ("healthz", "readyz", "metrics")), name
    schemas = document["components"]["schemas"]
    assert {"StudyRecord", "TrialPage", "CurvesPage", "Lease", "ProblemDetails"} <= set(schemas)
    assert "/v1/studies/{study_id}:pause" in document["paths"]
    text = json.dumps(document)
    assert all(f'"{name}"' in text for name in ("Idempotency-Key", "Last-Event-ID", "page_token"))


def test_the_client_raises_invalid_request_for_a_malformed_request(service: Service) -> None:
    with service.client() as client, pytest.raises(InvalidRequest, match="a: must be given"):
        client._request("GET", f"/v1/studies/{client.create(SPEC).id}/compare", params={"b": "x"})
