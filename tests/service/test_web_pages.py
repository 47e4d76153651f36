"""The service's pages: what they show to whom, that they run nobody's script, and how much they read."""

import re
from html import unescape
from typing import Any

import httpx
import pytest

from driftline.wire.driver_messages import TrialResult
from driftline.wire.ids import holder
from driftline.wire.logs import NewLine, NewLines
from service.api import computed_results
from service.store.session import Actor
from service.store.store import Store
from service.web.study_pages import CHANGES_A_PAGE, EVENTS_A_PAGE, LINES_A_PAGE, STUDIES_A_PAGE

from .api_setup import Service, running
from .conftest import SPEC
from .store_setup import complete, report, trained
from .test_web_sign_in import sign_in, signed_in

EVIL = "<script>alert(1)</script>\"'&\x1b[31m\u202e"
SHOWN = "&lt;script&gt;alert(1)&lt;/script&gt;&#34;&#39;&amp;\\u001b[31m\\u202e"
ANN = Actor("t1", "ann")


def log(store: Store, study: str, *texts: str) -> None:
    lines = [NewLine(at=1e9 + number, level="info", text=text) for number, text in enumerate(texts)]
    store.logs.write(study, NewLines(attempt=1, lines=lines))


def policy(answer: httpx.Response) -> dict[str, str]:
    parts = (part.split(maxsplit=1) for part in answer.headers["content-security-policy"].split("; "))
    return {name: " ".join(rest) for name, *rest in parts}


def test_the_studies_of_the_project_with_state_owner_and_progress(service: Service) -> None:
    study, *_ = trained(service.store, 1, 6)
    service.store.studies.create({**SPEC, "name": "mine"}, "f" * 64, actor=ANN)
    service.store.studies.create({**SPEC, "name": "not-ours"}, "f" * 64, project="other")
    with signed_in(service, "reader") as http:
        text = http.get("/").text
    rows = re.findall(r"<tr>.*?</tr>", text, re.DOTALL)[1:]
    assert len(rows) == 2
    assert [word in rows[0] for word in (">mine<", ">PENDING<", ">ann<", 'value="0"')] == [True] * 4
    labels = service.store.studies.get(study).progress.values()
    percent = 100 * sum(label.rounds_done for label in labels) // sum(label.rounds_total for label in labels)
    assert percent > 0
    assert [word in rows[1] for word in (">RUNNING<", f'value="{percent}"')] == [True] * 2
    assert "not-ours" not in text


def test_a_studys_page_shows_progress_log_and_events(service: Service) -> None:
    study, attempt, trials = trained(service.store, 2, 3)
    service.store.trials.finish(study, attempt, [complete(trials[0])])
    log(service.store, study, "first line", "second line")
    service.store.events.log(study, "info", "all is well")
    with signed_in(service, "reader") as http:
        text = http.get(f"/studies/{study}").text
    assert "1 complete" in text
    assert "1 running" in text
    assert text.index("first line") < text.index("second line")  # the newest last, as in a terminal
    assert text.index("all is well") < text.index(">PENDING<")  # the newest first
    assert f'<iframe title="Frontier" src="/studies/{study}/frontier" sandbox="allow-scripts"' in text


def test_a_study_without_results_has_no_frontier_yet(service: Service) -> None:
    study = service.store.studies.create(SPEC, "f" * 64).id
    with signed_in(service, "reader") as http:
        text = http.get(f"/studies/{study}").text
    assert "No results yet." in text
    assert '<td data-head="Search trials">none</td>' in text
    assert "<iframe" not in text


def test_other_projects_studies_are_not_there(service: Service) -> None:
    study = service.store.studies.create(SPEC, "f" * 64).id
    with signed_in(service, "stranger") as http:
        for path in (f"/studies/{study}", f"/studies/{study}/frontier", "/studies/none"):
            answer = http.get(path)
            assert answer.status_code == 404
            assert "small" not in answer.text


def test_an_address_that_no_database_can_hold_is_not_there(store: Store) -> None:
    with running(store) as either, signed_in(either, "reader") as http:
        for path in ("/studies/%00", "/studies/%00/frontier", "/studies/%ff", "/%00"):
            assert http.get(path).status_code == 404, path


@pytest.mark.parametrize(("token", "shown"), [("all", True), ("writer", False), ("reader", False)])
def test_who_changed_what_is_for_those_who_may_read_the_audit_trail(service: Service, token: str, shown: bool) -> None:
    study = service.store.studies.create(SPEC, "f" * 64, actor=ANN).id
    other = service.store.studies.create(SPEC, "f" * 64, actor=ANN).id
    service.store.studies.intend(study, "pause", actor=Actor("t2", "ben"))
    service.store.studies.intend(other, "cancel", actor=ANN)
    with signed_in(service, token) as http:
        text = http.get(f"/studies/{study}").text
    assert ("ben" in text, "study.pause" in text) == (shown, shown)
    assert "study.cancel" not in text
    assert ">ann<" in text  # the owner is for everybody in the project


def test_text_of_others_is_escaped_everywhere(service: Service) -> None:
    spec = {**SPEC, "name": EVIL, "methods": [{"label": EVIL, "name": "fedavg"}]}
    store = service.store
    study = store.studies.create(spec, "f" * 64, actor=Actor("t1", EVIL)).id
    attempt = store.leases.acquire(study, holder()).attempt
    log(store, study, EVIL)
    store.events.log(study, "info", EVIL)
    store.leases.release(study, attempt, "FAILED", EVIL)
    store.studies.set_mlflow_url(study, "javascript:alert(1)")
    with signed_in(service, "all") as http:
        for path, times in (("/", 3), (f"/studies/{study}", 10)):
            text = http.get(path).text
            assert text.count(SHOWN) == times, text
            assert "<script>" not in text
            assert "javascript:" not in text
            assert "\x1b" not in text
            assert "\u202e" not in text
        answer = sign_in(http, "<script>alert(1)</script>", wanted='"><script>alert(1)</script>')
        assert answer.status_code == 401
        assert "<script>" not in answer.text


@pytest.mark.parametrize(
    ("path", "status"),
    [("/", 200), ("/studies/{}", 200), ("/studies/none", 404), ("/docs", 200), ("/sign-in", 200),
     ("/?page_token=x", 400), ("/assets/page.css", 200), ("/assets/page.js", 200), ("/assets/icon.svg", 200),
     ("/assets/x", 404), (f"/?page_token={'x' * 3000}", 400), ("/studies/{}?log=%00", 400)],
)  # fmt: skip
def test_every_answer_has_a_strict_policy(service: Service, path: str, status: int) -> None:
    study = service.store.studies.create(SPEC, "f" * 64).id
    with signed_in(service, "reader") as http:
        answer = http.get(path.format(study))
    assert answer.status_code == status, answer.text
    rules = policy(answer)
    assert rules["default-src"] == rules["frame-ancestors"] == rules["base-uri"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == rules["form-action"] == "'self'"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] in ("no-store", "private, no-cache")
    if answer.headers["content-type"].startswith("text/html"):
        assert not re.search(r"<style|\bstyle=|\bon\w+=", answer.text)
        assert set(re.findall("<script.*?</script>", answer.text)) <= {'<script src="/assets/page.js" defer></script>'}
        assert not re.search(r"(src|href|action)=\"(?!/|#|\?)", answer.text)  # nothing from elsewhere


def test_the_frontier_runs_in_an_origin_of_its_own(service: Service) -> None:
    study, *_ = trained(service.store, 1, 6)
    with signed_in(service, "reader") as http:
        for path in (f"/studies/{study}/frontier", "/studies/none/frontier"):
            answer = http.get(path)
            rules = policy(answer)
            assert rules["sandbox"] == "allow-scripts"  # without allow-same-origin
            assert rules["default-src"] == "'none'"
            assert rules["frame-ancestors"] == "'self'"
            # nothing else is allowed; "form-action" is missing because the sandbox allows no forms
            assert rules.keys() == {"sandbox", "default-src", "script-src", "style-src", "frame-ancestors"}
        http.cookies.clear()
        assert http.get(f"/studies/{study}/frontier").status_code == 401


def test_the_frontier_page_is_made_once_per_version(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bool] = []  # whether with other costs
    original = computed_results.frontier_html

    def counted(*args: Any, others: bool) -> str:
        made.append(others)
        return original(*args, others=others)

    monkeypatch.setattr(computed_results, "frontier_html", counted)
    study, attempt, trials = trained(service.store, 1, 6)
    with signed_in(service, "reader") as http:
        answers = [http.get(f"/studies/{study}/frontier") for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200] * 3
        assert answers[0].headers["content-type"] == "text/html; charset=utf-8"
        assert answers[0].text.startswith("<!doctype html>")
        again = http.get(f"/studies/{study}/frontier", headers={"If-None-Match": answers[0].headers["etag"]})
        assert (again.status_code, policy(again)["sandbox"]) == (304, "allow-scripts")
        assert made == [False]
        service.store.curves.report(study, report(attempt, trials[0], range(6, 8)))
        assert http.get(f"/studies/{study}/frontier").headers["etag"] != answers[0].headers["etag"]
        service.store.trials.finish(study, attempt, [TrialResult(trial=trials[0], state="FAILED", error="lost")])
        assert "not finished" in http.get(f"/studies/{study}/frontier").text
        service.store.leases.release(study, attempt, "SUCCEEDED")  # a new state, but no new version
        assert ", finished " in http.get(f"/studies/{study}/frontier").text
        assert made == [False, False, False, True]


def older(text: str, parameter: str) -> str | None:
    found = re.search(rf'rel="next" href="(\?{parameter}=[^#"]+)', text)
    return None if found is None else unescape(found[1])


def test_the_list_of_studies_has_pages(service: Service) -> None:
    for number in range(STUDIES_A_PAGE + 2):
        service.store.studies.create({**SPEC, "name": f"study-{number}"}, "f" * 64)
    with signed_in(service, "reader") as http:
        first = http.get("/").text
        assert re.findall(r">study-(\d+)<", first) == [str(number) for number in range(STUDIES_A_PAGE + 1, 1, -1)]
        address = older(first, "page_token")
        last = http.get(f"/{address}").text
        assert re.findall(r">study-(\d+)<", last) == ["1", "0"]
        assert older(last, "page_token") is None


def test_log_events_and_changes_have_pages(service: Service) -> None:
    store = service.store
    study = store.studies.create(SPEC, "f" * 64, actor=ANN).id
    log(store, study, *(f"line {number}." for number in range(LINES_A_PAGE + 2)))
    for _ in range(CHANGES_A_PAGE // 2 + 1):
        store.studies.intend(study, "pause", actor=ANN)
        store.studies.intend(study, "resume", actor=ANN)
    for number in range(EVENTS_A_PAGE + 1):
        store.events.log(study, "info", f"note {number}.")
    with signed_in(service, "all") as http:
        first = http.get(f"/studies/{study}").text
        assert len(re.findall(r"line \d+\.", first)) == LINES_A_PAGE
        pages = {name: older(first, name) for name in ("log", "events", "changes")}
        assert None not in pages.values(), pages
        assert re.findall(r"line (\d+)\.", http.get(f"/studies/{study}{pages['log']}").text) == ["0", "1"]
        assert "note 0." not in first
        assert "note 0." in http.get(f"/studies/{study}{pages['events']}").text
        assert "study.submit" not in first
        assert "study.submit" in http.get(f"/studies/{study}{pages['changes']}").text
        swapped = str(pages["log"]).replace("log=", "events=")
        assert http.get(f"/studies/{study}{swapped}").status_code == 400  # a token of another list


def test_the_reference_lists_all_operations_and_messages(service: Service) -> None:
    with service.http(None) as http:
        document = http.get("/openapi.json").json()
        answer = http.get("/docs")
        assert http.get("/docs", headers={"If-None-Match": answer.headers["etag"]}).status_code == 304
    assert answer.status_code == 200
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    anchors = re.findall(r'<article id="([^"]+)">', answer.text)
    assert sorted(anchors) == sorted(
        [operation["operationId"] for operation in operations] + list(document["components"]["schemas"])
    )
    assert set(re.findall(r'href="#([^"]+)"', answer.text)) <= set(anchors)
    assert "Increases with every stored result." in answer.text  # of StudyRecord.version
    assert "<code>fingerprint</code>" in answer.text
    assert "`" not in answer.text
    assert "The same request with the same key returns the same study" in unescape(answer.text)
