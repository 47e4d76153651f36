"""Keeps a driver's lease alive while its main loop moves, and gathers the reasons to stop."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Literal, Self

from driftline.client.driver_client import DriverClient
from driftline.errors import DriftlineError, StaleDriver, Unavailable

_LOG = logging.getLogger(__name__)
Why = Literal["", "pause", "lost", "failed", "cancel", "stale"]
_WEIGHT: dict[Why, int] = {"": 0, "pause": 1, "lost": 2, "failed": 3, "cancel": 4, "stale": 5}
_LOOK_S = 0.2


class Watch:
    """Sends heartbeats from a thread and knows whether, and why, the driver should stop.

    Args:
        client: Speaks to the API.
        study_id: The study.
        attempt: Under which the driver holds it.
        every_s: Seconds between heartbeats.
        stop: Set by whoever runs the driver, to have it stop with checkpoints.
        grace_s: Seconds that packs are given to write their checkpoints.
        hang_s: When the main loop has not moved for so many seconds, heartbeats cease, so that the driver is replaced.
    """

    def __init__(
        self,
        client: DriverClient,
        study_id: str,
        attempt: int,
        *,
        every_s: float,
        stop: threading.Event,
        grace_s: float = 120.0,
        hang_s: float = float("inf"),
    ) -> None:
        self._client = client
        self._study_id = study_id
        self._attempt = attempt
        self._every_s = every_s
        self._stop = stop
        self._grace_s = grace_s
        self._moved: float | None = None  # when the main loop did last; None before it begins
        self._hangs = False
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"driftline-lease-{study_id}", daemon=True)
        self._since = 0.0
        self._hurried = False
        self._acting = threading.Lock()
        self._asked: Callable[[], None] = lambda: None
        self.hang_s = hang_s
        self.why: Why = ""
        self.reason = ""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def move(self) -> None:
        """Notes that the main loop moves."""
        self._moved = time.monotonic()

    def when_asked(self, action: Callable[[], None]) -> None:
        """Has an action done, once, when there is a first reason to stop; at once when there is one already."""
        with self._lock:
            self._asked = action
            due = bool(self.why)
        if due:
            self._act()

    def leave(self) -> None:
        """Has nothing done any more when there is a reason to stop: packs have ended. Waits for what is under way."""
        with self._acting:
            self._asked = lambda: None

    def ask(self, why: Why, reason: str = "", *, at_once: bool = False) -> None:
        """Notes a reason to stop; a weightier one replaces a lighter one.

        Args:
            why: What is to become of the study.
            reason: For people.
            at_once: Whether there are no packs left to be waited for.
        """
        with self._lock:
            self._hurried |= at_once
            if _WEIGHT[why] <= _WEIGHT[self.why]:
                return
            first = not self.why
            self.why, self.reason = why, reason
            if first:
                self._since = time.monotonic()
        _LOG.info("stopping (%s) %s", why, reason)
        if first:
            self._act()

    def look(self) -> Why:
        """Why the driver should stop; "" while it should not."""
        if self._stop.is_set():
            self.ask("pause", "stopped")
        return self.why

    def at_once(self) -> bool:
        """Whether packs are not to be waited for: nothing of theirs is wanted, or their time is up."""
        why = self.look()
        late = bool(why) and time.monotonic() - self._since > self._grace_s
        return why in ("cancel", "stale") or self._hurried or late

    def _act(self) -> None:
        try:
            with self._acting:
                self._asked()
        except Exception:
            _LOG.exception("packs could not be asked to stop; they are stopped after %.0f s", self._grace_s)

    def _run(self) -> None:
        due = time.monotonic()
        while not self._over.wait(_LOOK_S):
            self.look()
            if time.monotonic() >= due:
                if not self._stuck():
                    self._beat()
                due = time.monotonic() + self._every_s

    def _stuck(self) -> bool:
        """Whether the main loop hangs, said once; a loop that moves again has its heartbeats again."""
        moved = self._moved
        hangs = moved is not None and time.monotonic() - moved > self.hang_s
        if hangs and not self._hangs:
            _LOG.error("the driver has not moved for %.0f s: no more heartbeats, to be replaced", self.hang_s)
        self._hangs = hangs
        return hangs

    def _beat(self) -> None:
        try:
            desired = self._client.heartbeat(self._study_id, self._attempt)
        except StaleDriver as error:
            self.ask("stale", error.message)
        except Unavailable as error:
            _LOG.warning("no heartbeat: %s", error)
        except DriftlineError as error:
            self.ask("failed", error.message)
        except Exception as error:
            _LOG.exception("no heartbeat")
            self.ask("failed", f"{type(error).__name__}: {error}")
        else:
            if desired != "run":
                self.ask(desired)
