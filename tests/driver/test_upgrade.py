"""Drivers while an upgrade replaces the replicas of the API."""

import hashlib
import itertools
import json
import logging
import math
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from driftline.client.driver_client import DriverClient
from driftline.errors import NotFound, StaleDriver, Unavailable
from driftline.wire import driver_messages
from driftline.wire.driver_messages import CODE_HEADER, PROTOCOL, PROTOCOL_HEADER
from driftline.wire.records import StudyPlan, StudyRecord, TrialRecord
from service.api.app import create_app
from service.api.auth.tokens import Access, Tokens
from service.api.http_server import Server
from service.code_digest import code_digest
from service.driver import lifecycle
from service.driver.lease import Watch
from tests.driver.store_client import StoreClient, quadratic
from tests.driver.test_search import Bench, OneRound, facts, ran


class Replicas(httpx.BaseTransport):
    """A load balancer before an API of this version and one of 0.2.0, which know the same database.

    The older one refuses curves in blocks, knows no plans, fails to read the blocks of unfinished curves, and says
    nothing of its protocol.
    """

    def __init__(self, server: Server, older: Iterator[bool]) -> None:
        self._newer = httpx.HTTPTransport(uds=str(server.socket))
        self._older = older
        self.refused: list[str] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        older = next(self._older)
        end = request.url.path.rpartition("/")[2]
        if older and (end == "plan" or end == "curves" or (end == "reports" and b'"reports":{"' in request.content)):
            self.refused.append(end)
            return httpx.Response({"plan": 404, "curves": 500, "reports": 422}[end], json={"detail": "an older API"})
        answer = self._newer.handle_request(request)
        answer.read()
        if not older:
            return answer
        body = json.loads(answer.content)
        body.pop("plan", None)
        return httpx.Response(answer.status_code, json=body)

    def close(self) -> None:
        self._newer.close()


@pytest.fixture
def server(client: StoreClient) -> Iterator[Server]:
    with Server(create_app(client.store, Tokens({"driver": Access()}, b"secret"))) as server:
        yield server


def driver(server: Server, older: Iterator[bool], **options: float) -> tuple[DriverClient, Replicas]:
    replicas = Replicas(server, older)
    return DriverClient(server.url, "driver", transport=replicas, sleep=lambda seconds: None, **options), replicas


def test_a_study_goes_on_between_replicas_of_two_versions(client: StoreClient, server: Server, tmp_path: Path) -> None:
    study = quadratic(budget={"trials_per_method": 4, "rounds": 10, "seeds": 1, "confirm": 1})
    alone, mixed = ran(client, study, tmp_path / "alone"), client.submit(study)
    rolling, replicas = driver(server, itertools.cycle((True, False, True)))
    with rolling:
        first = Bench(rolling, mixed, study, tmp_path / "mixed", OneRound)
        pack = first.begin()
        first.step(pack)
        bench = Bench(rolling, mixed, study, tmp_path / "mixed")  # the next driver reads curves that still grow
        bench.run()
        assert bench.search.outcome() == ("SUCCEEDED", "")
        rolling.release(mixed, bench.attempt, "SUCCEEDED")
    assert set(replicas.refused) == {"plan", "curves", "reports"}
    assert client.store.studies.get(mixed).state == "SUCCEEDED"
    assert client.store.studies.get(mixed).plan == client.store.studies.get(alone).plan
    assert facts(client, mixed) == facts(client, alone)


def test_an_api_that_stays_old_is_waited_for_within_patience(
    client: StoreClient, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    study_id = client.submit(quadratic())
    waiting, replicas = driver(server, iter(lambda: True, False), patience_s=0.5)
    plan = StudyPlan(generation=0, width=1, confirmation_width=1)
    with waiting, caplog.at_level(logging.WARNING, "driftline"):
        attempt = waiting.acquire(study_id, "h/1").attempt
        for _ in range(2):
            with pytest.raises(Unavailable, match=r"older than this driver .*: an older API"):
                waiting.store_plan(study_id, attempt, plan)
        with pytest.raises(Unavailable, match="older than this driver"):  # it may leave out the plan
            waiting.study(study_id)
        assert waiting.heartbeat(study_id, attempt) == "run"  # the lease is kept meanwhile
        client.acquire(study_id, "h/1")
        with pytest.raises(StaleDriver):
            waiting.heartbeat(study_id, attempt)
    assert len(replicas.refused) > 2
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(
        f"the API at http://driftline is older than this driver (protocol 0, this driver has {PROTOCOL})"
    )


class Recoded(httpx.BaseTransport):
    """An API whose first answers are those of replicas with other code."""

    def __init__(self, server: Server, others: float, code: str = "0123456789ab") -> None:
        self._api = httpx.HTTPTransport(uds=str(server.socket))
        self._others = others
        self._code = code

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self._api.handle_request(request)
        if self._others > 0:
            self._others -= 1
            answer.headers[CODE_HEADER] = self._code
        return answer

    def close(self) -> None:
        self._api.close()


def test_a_driver_waits_for_an_api_of_its_code_and_asks_no_more_of_later_ones(
    client: StoreClient, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle.time, "sleep", lambda seconds: None)
    study_id = client.submit(quadratic())
    told: list[str] = []
    with DriverClient(server.url, "driver", transport=Recoded(server, 3)) as waiting:
        attempt = waiting.acquire(study_id, "h/1").attempt
        watch = Watch(waiting, study_id, attempt, every_s=1.0, stop=threading.Event())
        lifecycle._agree(waiting, study_id, attempt, watch, told.append)
        assert waiting.api_code == code_digest()
    (line,) = told
    assert line.startswith(
        f"the API at http://driftline runs other code of Driftline (0123456789ab) than this driver ({code_digest()}): "
    )


@pytest.mark.parametrize("named", ["0123456789ab", ""])
def test_a_driver_of_other_code_than_the_api_is_refused_in_one_line(
    client: StoreClient, server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, named: str
) -> None:
    monkeypatch.setattr(lifecycle, "CODE_S", 0.0)
    monkeypatch.setattr(lifecycle.cluster, "connect", lambda *_, **__: pytest.fail("it starts Ray"))
    study_id = client.submit(quadratic())
    recoded = Recoded(server, math.inf, named)
    with DriverClient(server.url, "driver", transport=recoded) as other, pytest.raises(Unavailable) as caught:
        lifecycle.run_driver(other, study_id, threading.Event(), lifecycle.DriverOptions(tmp_path))
    assert f"runs other code of Driftline ({named or 'unknown'}) than this driver" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert client.store.studies.get(study_id).state == "RUNNING"  # the scheduler starts another driver


@pytest.mark.parametrize("said", ["", "0", "-1", "one", "1.0"])
def test_an_api_that_says_nothing_readable_of_its_protocol_is_older(said: str) -> None:
    answer = httpx.MockTransport(lambda request: httpx.Response(200, json={}, headers={PROTOCOL_HEADER: said}))
    with (
        DriverClient("http://driftline", "driver", transport=answer, patience_s=0.0) as waiting,
        pytest.raises(Unavailable, match=r"older than this driver \(protocol 0, "),
    ):
        waiting.study("s")


def test_refusals_by_an_api_of_this_version_are_final(client: StoreClient, server: Server) -> None:
    with DriverClient(server.url, "driver", socket=server.socket) as current, pytest.raises(NotFound):
        current.study("unknown")


def shape(value: object) -> object:
    """A JSON schema without its prose."""
    if isinstance(value, dict):
        return {key: shape(part) for key, part in value.items() if key not in ("title", "description")}
    return [shape(part) for part in value] if isinstance(value, list) else value


def test_messages_change_with_a_decision_about_their_version() -> None:
    """Raise PROTOCOL if the API before the change would refuse or ignore it. Put the new digest here in any case."""
    names = ("Acquire", "Lease", "Heartbeat", "HeartbeatAnswer", "StorePlan", "CreateTrials", "StartPack", "Report")
    messages = [getattr(driver_messages, name) for name in (*names, "Results", "Stored", "Release")]
    schemas = [shape(model.model_json_schema()) for model in (*messages, StudyPlan, StudyRecord, TrialRecord)]
    digest = hashlib.sha256(json.dumps(schemas, sort_keys=True).encode()).hexdigest()[:12]
    assert {PROTOCOL: digest} == {4: "48bcc7a5b871"}


def test_every_answer_names_the_protocol(server: Server) -> None:
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(server.socket)), base_url=server.url) as http:
        answers = [http.get("/healthz"), http.get("/v1/studies"), http.get("/nowhere"), http.post("/v1/studies")]
    assert [answer.status_code for answer in answers] == [200, 401, 404, 401]
    assert {answer.headers[PROTOCOL_HEADER] for answer in answers} == {str(PROTOCOL)}
    assert {answer.headers[CODE_HEADER] for answer in answers} == {code_digest()}
