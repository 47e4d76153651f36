"""Shortcuts for the start of Ray and Tune: they leave out what is not needed here, and keep signals away from Ray.

They replace private parts of the known version of Ray for a while (service/known_versions.py). With another version
nothing is replaced: studies start later and have more processes, and an interrupt also ends Ray's processes.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from service.known_versions import known

START_WORKER = Path(__file__).with_name("start_worker.py")
"""Runs a worker's program; takes the place of Ray's `setup_worker.py`."""
Shortcut = Callable[[], contextlib.AbstractContextManager[None]]


def shortcut(make: Shortcut) -> Shortcut:
    """The context manager that `make` makes, if Ray is the known version; otherwise one that does nothing."""

    @functools.wraps(make)
    def chosen() -> contextlib.AbstractContextManager[None]:
        return make() if known("ray") else contextlib.nullcontext()

    return chosen


@shortcut
@contextlib.contextmanager
def fewer_processes() -> Iterator[None]:
    """For `ray.init`: starts neither the autoscaler's monitor nor the dashboard's server, for which it would wait.

    Workers start with `start_worker.py`, a third of a second earlier than with Ray's `setup_worker.py`.
    """
    node, constants = import_module("ray._private.node").Node, import_module("ray._private.ray_constants")
    with (
        _replaced(node, start_monitor=lambda self: None, start_api_server=lambda self, **settings: None),
        _replaced(constants, SETUP_WORKER_FILENAME=str(START_WORKER)),
    ):
        yield


@shortcut
@contextlib.contextmanager
def own_session() -> Iterator[None]:
    """For `ray.init`: signals to the process group of this process do not reach Ray's processes.

    A closed terminal, `timeout` and batch systems signal the whole group. If Ray ended with it, packs could write no
    checkpoints, and Ray would end this process after a minute. Where Ray needs the group to end its processes after
    this one (not on Linux), they stay in the group.
    """
    services, support = import_module("ray._private.services"), import_module("ray._private.utils")
    if not support.detect_fate_sharing_support():
        yield
        return
    with _replaced(services, ConsolePopen=functools.partial(services.ConsolePopen, start_new_session=True)):
        yield


@shortcut
@contextlib.contextmanager
def own_modules() -> Iterator[None]:
    """For `ray.init`: workers import nothing from this process's working directory and the folder of its script.

    Ray would put both in front of the workers' module search path, where a `json.py` hides Python's.
    """
    config = import_module("ray.job_config").JobConfig
    serialize = config._serialize

    def without_folders(self: Any) -> Any:
        self._py_driver_sys_path = []
        return serialize(self)

    with _replaced(config, _serialize=without_folders):
        yield


@shortcut
@contextlib.contextmanager
def waiting_workers() -> Iterator[None]:
    """For a private Ray: Tune's actors need no runtime environment, so that they take the workers that already wait.

    Tune gives each actor environment variables of this process, which Ray's processes here have anyway.
    """
    cache = import_module("ray.tune.execution.class_cache")._ActorClassCache
    with _replaced(cache, get=lambda self, trainable: import_module("ray").remote(trainable)):
        yield


@shortcut
@contextlib.contextmanager
def lean_fit() -> Iterator[None]:
    """For Tune's `fit`: keeps workers that are starting, and imports no MLflow, W&B and Comet to count callbacks.

    If a trial's worker is starting when another trial ends, Tune gives the trial the other's worker, and ends the
    starting one. With short packs this repeats: one worker trains everything, while others load modules and end.
    """
    controller = import_module("ray.tune.execution.tune_controller").TuneController
    reuse = controller._maybe_reuse_cached_actor

    def reuse_unless_starting(self: Any, trial: Any) -> bool:
        starting = self._trial_to_actor.get(trial)
        if starting is not None and self._actor_manager.is_actor_started(starting):  # it has the resources it needs
            return False
        return bool(reuse(self, trial))

    with (
        _replaced(controller, _maybe_reuse_cached_actor=reuse_unless_starting),
        _replaced(import_module("ray.air._internal.usage"), tag_callbacks=lambda callbacks: False),
    ):
        yield


@contextlib.contextmanager
def _replaced(owner: Any, **values: Any) -> Iterator[None]:
    before = {name: getattr(owner, name) for name in values}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)
