"""The service's pages in a real browser: signing in, a study that changes on the screen, no foreign scripts."""

from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from driftline.wire.logs import NewLine, NewLines
from service.api.app import create_app
from service.api.auth.tokens import Access, Tokens
from service.api.http_server import Server
from service.store.store import Store
from service.web.pages import add_pages
from tests.service.conftest import SPEC
from tests.service.store_setup import complete, driven, report, trained
from tests.waiting import until

from .chromium import CHROMIUM, Chromium

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.timeout(600),
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
]
REFUSED_ONCE = "status of 401"
"""What the console says about the page that asks for a token."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "pages.db")
    yield opened
    opened.close()


@pytest.fixture
def url(store: Store) -> Iterator[str]:
    app = create_app(store, Tokens({"secret-token": Access(name="reader")}, b"secret", store=store))
    add_pages(app)
    with Server(app, loopback=True) as server:
        yield server.url


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chromium]:
    with Chromium(tmp_path / "profile") as started:
        yield started


def sign_in(browser: Chromium) -> None:
    """Fill in the form as a person does, with the keyboard."""
    browser.wait("document.activeElement.id == 'token'")
    browser.send("Input.insertText", text="secret-token")
    for kind in ("keyDown", "keyUp"):
        browser.send(
            "Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", text="\r", windowsVirtualKeyCode=13
        )


def answered(url: str, route: str, status: int) -> bool:
    """Whether the service has answered a GET of a route with this status."""
    with urlopen(f"{url}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    return f'driftline_http_requests_total{{method="GET",route="{route}",status="{status}"}}' in text


def test_a_study_is_watched_to_its_end(browser: Chromium, store: Store, url: str) -> None:
    study, attempt, trials = driven(store, 2)
    browser.open(f"{url}/studies/{study}")
    sign_in(browser)
    browser.wait("document.querySelector('h1').textContent.includes('RUNNING')")
    assert browser.run("location.pathname") == f"/studies/{study}"
    assert browser.run("document.cookie") == ""  # HttpOnly
    assert browser.run("document.querySelector('iframe') === null")

    store.trials.start_pack(study, attempt, "p1", trials)
    store.curves.report(study, report(attempt, trials[0], range(6)))
    store.events.log(study, "info", "seen without reloading")
    browser.wait("document.body.innerText.includes('seen without reloading')")
    browser.wait("document.querySelector('iframe') !== null")
    store.trials.finish(study, attempt, [complete(trial) for trial in trials])
    store.leases.release(study, attempt, "SUCCEEDED")
    browser.wait("document.querySelector('h1').textContent.includes('SUCCEEDED')")
    browser.wait("document.body.dataset.refresh == '60'")

    for width, dark in ((1280, False), (1280, True), (390, False)):
        browser.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        browser.send("Emulation.setEmulatedMedia", features=[scheme])
        assert browser.run("document.documentElement.scrollWidth <= innerWidth"), width
        light = browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert light is not dark
    assert [text for text in browser.complaints if REFUSED_ONCE not in text] == []


def test_the_frontier_has_no_rights_of_the_reader(browser: Chromium, store: Store, url: str) -> None:
    study, *_ = trained(store, 1, 6)
    browser.open(f"{url}/studies/{study}")
    sign_in(browser)
    browser.wait("document.querySelector('iframe') !== null")
    until(lambda: answered(url, "/studies/{study_id}/frontier", 200))  # the frame's request has the strict cookie, too

    browser.open(f"{url}/studies/{study}/frontier")
    browser.wait("typeof DATA === 'object' && DATA.labels.length > 0")  # its own scripts run
    assert browser.run("origin") == "null"
    assert browser.run("fetch('/').then(() => 'read', () => 'refused')") == "refused"
    assert browser.run("(() => { try { return document.cookie } catch { return 'refused' } })()") == "refused"
    assert any("Content Security Policy" in text for text in browser.complaints)


def test_a_log_that_is_being_read_stays(browser: Chromium, store: Store, url: str) -> None:
    def write(*texts: str) -> None:
        store.logs.write(study, NewLines(attempt=1, lines=[NewLine(at=1e9, text=text) for text in texts]))

    study, _, _ = driven(store, 1)
    write(*(f"line {number}" for number in range(150)))
    browser.open(f"{url}/studies/{study}")
    sign_in(browser)
    browser.wait("document.querySelector('.log') !== null")
    assert browser.run("document.querySelector('.log').scrollTop") == 0  # the newest line is in sight
    browser.run("document.querySelector('.log').scrollTop = -500")
    write("while reading")
    store.events.log(study, "info", "an event")
    browser.wait("document.body.innerText.includes('an event')")
    assert browser.run("document.querySelector('.log').scrollTop") == -500
    assert not browser.run("document.body.innerText.includes('while reading')")
    browser.run("document.querySelector('.log').scrollTop = 0")
    browser.wait("document.body.innerText.includes('while reading')")


def test_a_link_on_another_site_leads_to_the_study(browser: Chromium, store: Store, url: str) -> None:
    study = store.studies.create(SPEC, "f" * 64).id
    browser.open(f"{url}/")
    sign_in(browser)
    browser.wait("document.title.startsWith('Studies')")
    browser.open("data:text/html,")
    browser.run(f"location.assign('{url}/studies/{study}')")
    browser.wait("document.title.startsWith('small')")  # after a page that asks again from its own site
    browser.run("document.querySelector('.reader button').click()")
    browser.wait("location.pathname == '/sign-in'")
    browser.open(f"{url}/studies/{study}")
    assert browser.run("document.getElementById('token') !== null")
