"""Extensions, logs and metrics over a real server."""

from functools import partial

import pytest

from driftline.errors import Conflict, InvalidSpec
from driftline.wire.logs import NewLine
from service.api import study_checks
from service.scheduler.loop import Scheduler
from service.store.store import Store
from tests.waiting import together

from .api_setup import POINTS, Service, pages, running
from .conftest import SPEC
from .store_setup import packed, report

STUDY = POINTS | {"budget": {"trials_per_method": 8, "rounds": 5, "seeds": 2, "confirm": 3}}


# ---- extensions


def test_an_extension_over_the_api(sqlite_store: Store) -> None:
    with running(sqlite_store, check=study_checks.check) as real, real.client() as client, real.http() as http:
        study = client.create(STUDY, key="k")
        larger = client.extend(study.id, trials_per_method=12)
        assert larger.spec["budget"] == study.spec["budget"] | {"trials_per_method": 12}
        other = client.create(STUDY | {"budget": STUDY["budget"] | {"trials_per_method": 12}})
        assert larger.fingerprint == other.fingerprint != study.fingerprint
        assert client.extend(study.id, trials_per_method=12) == larger
        assert client.create(STUDY, key="k").id == study.id  # the key stands for the study, extended or not
        for wrong, problem in (
            ({"trials_per_method": 11}, "trials_per_method: must be at least 12, what the study has now"),
            ({"seeds": 1}, "seeds: must be at least 2"),
            ({"seeds": 10**9}, "budget.seeds: must be at most 10000"),
        ):
            with pytest.raises(InvalidSpec, match=problem):
                client.extend(study.id, **wrong)
        for body in ({}, {"seeds": "5"}, {"seeds": True}, {"rounds": 10}):
            assert http.post(f"/v1/studies/{study.id}:extend", json=body).status_code == 422
        assert client.study(study.id) == larger
        client.cancel(study.id)
        with pytest.raises(Conflict, match="extend needs a study that is"):
            client.extend(study.id, seeds=5)


def test_extensions_at_the_same_time_are_all_heard(service: Service) -> None:
    with service.client() as client:
        study = client.create(SPEC).id
        wishes: list[dict[str, int]] = [{"trials_per_method": 9}, {"seeds": 7}, {"trials_per_method": 9, "seeds": 7}]
        together([partial(client.extend, study, **wish) for wish in wishes])
        assert client.study(study).spec["budget"] == SPEC["budget"] | {"trials_per_method": 9, "seeds": 7}  # type: ignore[operator]


# ---- logs


def test_logs_from_the_driver_to_the_reader(service: Service) -> None:
    study = service.store.studies.create(SPEC, "f" * 64).id
    with service.client(service.tokens.driver(study)) as driver, service.client("reader") as reader:
        lines = [NewLine(at=1e9 + number, level="info", text=f"line {number}") for number in range(7)]
        assert [driver.send_logs(study, 1, lines) for _ in range(2)] == [7, 0]
        assert [line.text for line in reader.logs(study)] == [line.text for line in lines]
        last = reader.logs(study)[3].id
        assert [line.text for line in reader.logs(study, last)] == ["line 4", "line 5", "line 6"]
        assert [line.text for line in driver.logs(study)] == [line.text for line in lines]
    with service.http() as http:
        walked = [line["text"] for page in pages(http, f"/v1/studies/{study}/logs", "lines", 3) for line in page]
        assert walked == [line.text for line in lines]
        many = {"attempt": 1, "lines": [{"at": 1, "text": "x"}] * 1001}
        assert http.post(f"/v1/studies/{study}/logs", json=many).status_code == 422


# ---- metrics


def test_metrics_count_requests_studies_trials_and_leases(service: Service) -> None:
    store = service.store
    study, _, trials = packed(store, 3, running=1, project="secret-project")
    store.curves.report(study, report(1, trials[0], range(3)))
    assert store.sizes.measure()
    with service.http() as http:
        http.get("/v1/studies/none")
        http.get("/v1/studies/other")
        http.get("/nowhere")
        answer = http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    lines = answer.text.splitlines()
    for line in (
        'driftline_http_requests_total{method="GET",route="/v1/studies/{study_id}",status="404"} 2.0',
        'driftline_http_requests_total{method="GET",route="none",status="404"} 1.0',
        'driftline_http_request_seconds_count{method="GET",route="/v1/studies/{study_id}"} 2.0',
        "driftline_store_up 1.0",
        'driftline_studies{state="RUNNING"} 1.0',
        'driftline_trials{state="RUNNING"} 1.0',
        'driftline_trials{state="WAITING"} 2.0',
        'driftline_driver_leases{state="held"} 1.0',
        'driftline_driver_leases{state="expired"} 0.0',
        "driftline_recorder_studies_behind 1.0",
        "driftline_curve_rows 1.0",
        f"driftline_curve_bytes {float(store.quotas.get('secret-project').use.curve_bytes)}",
    ):
        assert line in lines
    assert "secret-project" not in answer.text
    assert study not in answer.text


def test_a_schedulers_looks_are_counted(service: Service) -> None:
    class Nothing:
        """A launcher that has nothing to do."""

        def collect(self, study_ids: object) -> None:
            pass

    scheduler = Scheduler(service.store, Nothing(), service.tokens.driver)  # type: ignore[arg-type]
    service.server.metrics.watch(scheduler)
    for _ in range(3):
        scheduler.step()
    with service.http(None) as http:
        lines = http.get("/metrics").text.splitlines()
    assert "driftline_scheduler_looks_total 3.0" in lines
    assert "driftline_scheduler_acting 1.0" in lines
    (last,) = (line for line in lines if line.startswith("driftline_scheduler_last_look_timestamp_seconds "))
    assert float(last.split()[1]) == scheduler.looked_at


def test_metrics_are_served_while_the_database_is_away(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    from driftline.errors import Unavailable

    def away() -> None:
        raise Unavailable("the database must be reachable")

    monkeypatch.setattr(service.store.stats, "overview", away)
    with service.http(None) as http:
        answer = http.get("/metrics")
    assert answer.status_code == 200
    assert "driftline_store_up 0.0" in answer.text
    assert "driftline_studies{" not in answer.text
