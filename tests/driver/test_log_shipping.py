"""A driver's log on its way to the API: nothing waits, nothing is lost while the API is away for a while."""

import logging
import threading
import time

import pytest

from driftline.errors import Forbidden, NotFound, Unavailable
from driftline.wire.logs import NewLine
from service.driver import log_shipping
from service.driver.log_shipping import Shipper
from tests.waiting import until

LOG = logging.getLogger("tests.shipping")


class Api:
    """Keeps batches; can be away, refuse, or hang."""

    def __init__(self) -> None:
        self.away = False
        self.refuses: Exception | None = None
        self.hangs = threading.Event()
        self.hangs.set()
        self.lines: list[tuple[int, str, str]] = []
        self.asked = 0

    def send_logs(self, study_id: str, attempt: int, lines: list[NewLine]) -> int:
        LOG.warning("sending")  # as an HTTP library might: must not be sent in turn
        self.asked += 1
        self.hangs.wait(60)
        if self.away:
            raise Unavailable("away")
        if self.refuses is not None:
            raise self.refuses
        self.lines += [(attempt, line.level, line.text) for line in lines]
        return len(lines)

    @property
    def texts(self) -> list[str]:
        return [text for _, _, text in self.lines]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_shipping, "LONGEST_PAUSE_S", 0.05)
    monkeypatch.setattr(log_shipping, "CLOSE_S", 60.0)  # lines that can be sent are, on a busy machine too
    monkeypatch.setattr(logging.getLogger(), "level", logging.INFO)


def test_lines_arrive_in_their_order_under_the_attempt() -> None:
    api = Api()
    with Shipper(api, "study", every_s=0.01) as shipper:
        LOG.info("before the study was taken")
        time.sleep(0.05)
        assert api.asked == 0
        shipper.attempt = 3
        LOG.debug("not wanted")
        LOG.warning("two\nlines")
        try:
            raise ValueError("no good")
        except ValueError:
            LOG.exception("it failed")
        until(lambda: "ValueError: no good" in api.texts)
    assert api.texts[:4] == ["before the study was taken", "two", "lines", "it failed"]
    assert api.lines[0] == (3, "info", "before the study was taken")
    assert {level for _, level, _ in api.lines} == {"info", "warning", "error"}
    assert "sending" not in api.texts
    LOG.warning("after the end")
    assert "after the end" not in api.texts


def test_what_is_left_is_sent_at_the_end() -> None:
    api = Api()
    with Shipper(api, "study", every_s=60.0) as shipper:
        shipper.attempt = 1
        for number in range(1200):  # more than one batch
            LOG.info("line %d", number)
    assert api.texts == [f"line {number}" for number in range(1200)]


def test_lines_wait_while_the_api_is_away_and_dropped_lines_are_counted() -> None:
    api = Api()
    api.away = True
    with Shipper(api, "study", lines_kept=5, every_s=0.01) as shipper:
        shipper.attempt = 1
        LOG.info("first")
        until(lambda: api.asked > 2)
        for number in range(8):
            LOG.info("line %d", number)
        api.away = False
        until(lambda: "line 7" in api.texts)
    kept = [f"line {number}" for number in range(3, 8)]
    assert api.texts == ["first", "3 lines before this one were dropped: the API was unreachable for too long", *kept]


def test_logging_never_waits_for_the_api() -> None:
    api = Api()
    with Shipper(api, "study", every_s=0.01) as shipper:
        shipper.attempt = 1
        api.hangs.clear()
        LOG.info("first")
        until(lambda: api.asked)
        began = time.monotonic()
        for number in range(1000):
            LOG.info("line %d", number)
        assert api.asked == 1
        assert time.monotonic() - began < 30  # half of what the API hangs
        api.hangs.set()
    assert len(api.texts) == 1001


def test_an_api_that_stays_away_does_not_keep_a_driver_from_ending(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(log_shipping, "CLOSE_S", 0.3)
    api = Api()
    api.away = True
    with Shipper(api, "study", every_s=0.01) as shipper:
        shipper.attempt = 1
        LOG.info("first")
    assert not shipper._thread.is_alive()
    assert "1 lines of the log could not be sent" in capsys.readouterr().err


@pytest.mark.parametrize(("error", "said"), [(Forbidden("no"), "rejected: no"), (NotFound("none"), "")])
def test_lines_that_are_refused_are_not_sent_again(
    error: Exception, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    api = Api()
    api.refuses = error
    with Shipper(api, "study", every_s=0.01) as shipper:
        shipper.attempt = 1
        LOG.info("first")
        until(lambda: api.asked)
        time.sleep(0.05)
    assert api.asked == 1
    assert said in capsys.readouterr().err


def test_a_receiver_that_breaks_is_asked_again(capsys: pytest.CaptureFixture[str]) -> None:
    api = Api()
    api.refuses = RuntimeError("a bug")
    with Shipper(api, "study", every_s=0.01) as shipper:
        shipper.attempt = 1
        LOG.info("first")
        until(lambda: api.asked > 1)
        api.refuses = None
        until(lambda: api.texts)
    assert "RuntimeError: a bug" in capsys.readouterr().err
