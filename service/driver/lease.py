"""Renews a driver's lease while its main loop makes progress, and collects the reasons to stop."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
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
        client: Connection to the API.
        study_id: Id of the study.
        attempt: The attempt under which the driver holds it.
        every_s: Seconds between heartbeats.
        stop: Set by the caller to stop the driver with checkpoints.
        grace_s: Seconds that packs get to write their checkpoints.
        hang_s: Heartbeats cease when the main loop has made no progress for this many seconds, so that the driver is
            replaced.
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
        self._moved: float | None = None  # time of the main loop's last turn; None before the first
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

    def __exit__(self, *error: object) -> None:
        self.rest()

    def rest(self) -> None:
        """Sends no more heartbeats: the study is about to be released."""
        self._over.set()
        self._thread.join()

    def move(self) -> None:
        """Records that the main loop makes progress."""
        self._moved = time.monotonic()

    def when_asked(self, action: Callable[[], None]) -> None:
        """Sets an action that runs once, at the first reason to stop; runs it now if there is a reason already."""
        with self._lock:
            self._asked = action
            due = bool(self.why)
        if due:
            self._act()

    def leave(self) -> None:
        """Removes the action of `when_asked`, because the packs have ended; waits for it if it is running."""
        with self._acting:
            self._asked = lambda: None

    def ask(self, why: Why, reason: str = "", *, at_once: bool = False) -> None:
        """Records a reason to stop; a weightier one replaces a lighter one.

        Args:
            why: The kind of reason, which decides what happens to the study.
            reason: The reason in words.
            at_once: Whether to stop without waiting for packs.
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
        """Why the driver should stop; "" if it should not."""
        if self._stop.is_set():
            self.ask("pause", "stopped")
        return self.why

    def at_once(self) -> bool:
        """Whether to stop without waiting for packs: they have nothing to save, or their time is up."""
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
        """Whether the main loop hangs; logged once. Heartbeats resume when the loop does."""
        moved = self._moved
        hangs = moved is not None and time.monotonic() - moved > self.hang_s
        if hangs and not self._hangs:
            _LOG.error("the driver's main loop has hung for %.0f s: no more heartbeats", self.hang_s)
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
