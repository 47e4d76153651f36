"""Starts Ray on this machine in a thread, while the program checks the study and prepares everything else.

Ray takes seconds to start, most of which it spends waiting for its own processes.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import threading
from collections.abc import Iterator
from pathlib import Path

from service.driver.ray.cluster import private
from service.garbage import collect_after_loading, loaded


class EarlyRay:
    """A Ray that is being started, for one driver of this process. Ends with its driver, or with the program.

    Args:
        num_cpus: CPU cores of this Ray; by default all that this process may use.
    """

    def __init__(self, num_cpus: int | None = None) -> None:
        self._num_cpus = num_cpus
        self._imported, self._ready, self._over = threading.Event(), threading.Event(), threading.Event()
        self._folder: Path | None = None
        self._error: BaseException | None = None
        collect_after_loading()  # until Ray has started: meanwhile the program imports its other modules, too
        self._thread = threading.Thread(target=self._run, name="driftline-ray", daemon=True)
        self._thread.start()
        atexit.register(self.close)
        self._imported.wait()  # Ray's processes take longest to start, and imports here would delay them

    @contextlib.contextmanager
    def taken(self) -> Iterator[Path]:
        """Waits until Ray answers, and yields its folder; ends Ray afterwards.

        Raises:
            Unavailable: Ray did not start.
        """
        self._ready.wait()
        with contextlib.closing(self):
            if self._folder is None or self._over.is_set():
                raise self._error or RuntimeError("this Ray has ended")
            yield self._folder

    def close(self) -> None:
        """Ends Ray; a second call does nothing. Does not wait for a Ray that is still starting: it ends once started.

        An error in the study is therefore not delayed: the thread and Ray's processes end with the program.
        """
        atexit.unregister(self.close)
        self._over.set()
        if self._ready.is_set():
            self._thread.join()
            self._folder = None

    def _run(self) -> None:
        """Starts and ends Ray in one thread: Ray's processes are killed when the thread that started them ends."""
        try:
            with private(lambda line: self._imported.set(), self._num_cpus) as self._folder:
                self._imported.set()
                importlib.import_module("service.driver.ray.tune")
                loaded()
                self._ready.set()
                self._over.wait()
        except BaseException as error:
            self._error = error
            self._folder = None
            loaded()
        finally:
            self._imported.set()
            self._ready.set()
