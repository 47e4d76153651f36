"""Lets one study at a time use a Ray cluster: an actor that dies with its driver marks the study."""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from driftline.errors import Conflict

_NAMESPACE = "driftline"
_NAME = "driftline-driver"
TURN_S = 120.0
"""How long a driver waits for a cluster that does not answer or that another driver uses; then the driver ends.

The scheduler starts it again: at once if the cluster did not answer, which counts as a lost driver, otherwise later.
"""

_TURN_LOOK_S = 0.5


class NotJoined(Conflict):
    """The driver no longer waits for the cluster: it was told to stop, or has waited too long for another driver."""


@contextlib.contextmanager
def alone(study_id: str, progress: Callable[[str], None], patient: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Holds the cluster's mark: an actor with a fixed name, owned by this driver.

    Waits while another driver has the mark, which ends with that driver's process. A driver that is cut off from the
    API ends when its patience does; until then its packs train, although their reports are lost.

    Args:
        study_id: The study that will use the cluster.
        progress: Called with a message that names the driver it waits for.
        patient: Whether to keep waiting.

    Raises:
        NotJoined: Another driver has the mark, and `patient` gave False or `TURN_S` seconds have passed.
    """
    ray: Any = importlib.import_module("ray")
    holder = ray.remote(num_cpus=0)(_Holder)
    deadline = time.monotonic() + TURN_S
    told = ""
    while True:
        try:
            mark = holder.options(name=_NAME, namespace=_NAMESPACE).remote(study_id)
            ray.get(mark.study.remote())
            break
        except ValueError:
            other_driver = _other()
            reason = f"waits for its turn: one study at a time uses a Ray cluster, and {other_driver} uses this one"
            if time.monotonic() >= deadline or not patient():
                raise NotJoined(reason) from None
            if reason != told:
                progress(f"this study {reason}")
                told = reason
            time.sleep(_TURN_LOOK_S)
    try:
        yield
    finally:
        with contextlib.suppress(Exception):
            ray.kill(mark)


class _Holder:
    def __init__(self, study_id: str) -> None:
        self._study_id = study_id

    def study(self) -> str:
        return self._study_id


def _other() -> str:
    """The holder of the mark, in words."""
    ray: Any = importlib.import_module("ray")
    try:
        return f"the driver of study {ray.get(ray.get_actor(_NAME, namespace=_NAMESPACE).study.remote(), timeout=5)}"
    except Exception:
        return "another driver"
