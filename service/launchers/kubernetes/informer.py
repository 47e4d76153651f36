"""A copy of some objects of the API server, kept up to date by a watch."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from driftline.backoff import pauses
from driftline.errors import DriftlineError, Unavailable
from service.launchers.kubernetes.api_server import Api, Expired, Item

_LOG = logging.getLogger(__name__)
STALE_S = 60.0
"""Age beyond which the last copy is not shown."""

_WATCH_S = 240
_FIRST_S = 20.0
_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 15.0
_REMEMBERED_S = 900.0
"""How long a remembered object is shown after it was deleted."""


class Mirror:
    """Objects of one kind with certain labels.

    A thread lists the objects, watches for changes, and lists them again when the watch ends, in case it has missed a
    change. While the API server is unreachable, the last copy is shown until it is `STALE_S` old.

    Args:
        api: The API server.
        kind: rayjobs or pods.
        selector: Label selector.
        watch_s: Seconds of watching, after which everything is listed again.
        remembered: Whether a deleted object is still shown for a while, marked as being deleted.
    """

    def __init__(
        self,
        api: Api,
        kind: str,
        selector: str,
        *,
        watch_s: int = _WATCH_S,
        remembered: Callable[[Item], bool] = lambda item: False,
    ) -> None:
        self._api = api
        self._kind = kind
        self._selector = selector
        self._watch_s = watch_s
        self._remembered = remembered
        self._lock = threading.Lock()
        self._items: dict[str, Item] = {}
        self._gone: dict[str, tuple[float, Item]] = {}  # by uid: when it was deleted
        self._seen = float("-inf")
        self._error = "the API server has not answered yet"
        self._ready = threading.Event()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def items(self) -> list[Item]:
        """The objects as they are, or were a moment ago; the first call starts the thread.

        Raises:
            Unavailable: The API server has been unreachable for too long.
        """
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"driftline-{self._kind}", daemon=True)
                self._thread.start()
        self._ready.wait(_FIRST_S)
        with self._lock:
            age = time.monotonic() - self._seen
            if age > STALE_S:
                raise Unavailable(f"{self._kind} cannot be seen: {self._error}")
            since = time.monotonic() - _REMEMBERED_S
            self._gone = {uid: (gone, item) for uid, (gone, item) in self._gone.items() if gone > since}
            return [*self._items.values(), *(item for _, item in self._gone.values())]

    def last(self) -> list[Item]:
        """The last copy, however old it is."""
        with self._lock:
            return list(self._items.values())

    def note(self, item: Item) -> None:
        """Takes an object from an answer of the API server, unless the watch has seen a newer version of it."""
        with self._lock:
            stored = self._items.get(item["metadata"]["uid"])
            if stored is None or _version(stored) < _version(item):
                self._items[item["metadata"]["uid"]] = item

    def close(self) -> None:
        """Ends the thread; a watch that is in progress is left to end with the process."""
        self._over.set()

    def _run(self) -> None:
        retries = pauses(_PAUSE_S, _LONGEST_PAUSE_S, jitter=0.5)
        while not self._over.is_set():
            try:
                self._follow()
                retries = pauses(_PAUSE_S, _LONGEST_PAUSE_S, jitter=0.5)
            except Expired:
                _LOG.debug("the watch of %s has expired: they are listed again", self._kind)
            except DriftlineError as error:
                with self._lock:
                    self._error = error.message
                _LOG.warning("%s cannot be watched at the moment: %s", self._kind, error)
                self._over.wait(next(retries))
            except Exception as error:
                with self._lock:
                    self._error = f"{type(error).__name__}: {error}"
                _LOG.exception("the watch of %s failed; it continues", self._kind)
                self._over.wait(_LONGEST_PAUSE_S)
            finally:
                self._ready.set()

    def _follow(self) -> None:
        """Lists, and watches from there until the watch ends."""
        items, version = self._api.items(self._kind, self._selector)
        with self._lock:
            before, self._items = self._items, {item["metadata"]["uid"]: item for item in items}
            for uid in before.keys() - self._items.keys():
                self._remember(before[uid])
            self._seen = time.monotonic()
        self._ready.set()
        ends = time.monotonic() + self._watch_s
        while (left := int(ends - time.monotonic())) > 0 and not self._over.is_set():
            # Short watches, so that the age of the copy shows whether the API server is reachable at all.
            for what, item in self._api.watch(self._kind, self._selector, version, min(left, int(STALE_S / 2))):
                version = item["metadata"]["resourceVersion"]
                self._take(what, item)
            with self._lock:
                self._seen = time.monotonic()

    def _take(self, what: str, item: Item) -> None:
        with self._lock:
            self._seen = time.monotonic()
            if what == "DELETED":
                self._items.pop(item["metadata"]["uid"], None)
                self._remember(item)
            elif what != "BOOKMARK":
                self._items[item["metadata"]["uid"]] = item

    def _remember(self, item: Item) -> None:
        """Keeps a deleted object, marked as being deleted, if it is to be remembered."""
        if self._remembered(item):
            meta = {"deletionTimestamp": item["metadata"].get("creationTimestamp", ""), **item["metadata"]}
            self._gone[meta["uid"]] = (time.monotonic(), {**item, "metadata": meta})


def _version(item: Item) -> int:
    """An object's version, which increases within a kind (Kubernetes 1.35 promises it; etcd always did it)."""
    return int(item["metadata"]["resourceVersion"])
