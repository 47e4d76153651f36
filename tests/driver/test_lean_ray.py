"""What is left out of Ray and Tune; tests/driver/test_ray.py and tests/embedded run studies with it."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from service.driver.ray import lean_ray

controller = pytest.importorskip("ray.tune.execution.tune_controller")
usage = pytest.importorskip("ray.air._internal.usage")
class_cache = pytest.importorskip("ray.tune.execution.class_cache")


@pytest.mark.parametrize("started", [True, False], ids=["starting", "waits_for_resources"])
def test_a_worker_that_is_starting_is_kept(started: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that still waits for resources may never start: the cached worker may hold them."""
    reused: list[Any] = []
    monkeypatch.setattr(
        controller.TuneController, "_maybe_reuse_cached_actor", lambda self, trial: reused.append(trial) or True
    )
    tune = SimpleNamespace(
        _trial_to_actor={"second": "actor"}, _actor_manager=SimpleNamespace(is_actor_started=lambda actor: started)
    )
    with lean_ray.lean_fit():
        reuse = controller.TuneController._maybe_reuse_cached_actor
        assert (reuse(tune, "second"), reuse(tune, "third")) == (not started, True)
    assert reused == (["third"] if started else ["second", "third"])


def test_tune_counts_no_callbacks_and_gets_everything_back() -> None:
    before = usage.tag_callbacks
    with lean_ray.lean_fit():
        assert usage.tag_callbacks([object()]) is False
    assert usage.tag_callbacks is before


def test_actors_of_a_private_ray_have_no_runtime_environment() -> None:
    class Trains:
        pass

    with lean_ray.waiting_workers():
        actor = class_cache._ActorClassCache().get(Trains)
    assert not actor._default_options.get("runtime_env")
    assert class_cache._ActorClassCache().get(Trains)._default_options["runtime_env"]["env_vars"]


def test_a_worker_becomes_the_program_that_ray_names(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import gc, sys; print(__name__, sys.argv[1:], sys.path[0], gc.get_threshold()[0], gc.isenabled())"
    )
    options = ["--language=PYTHON", "--serialized-runtime-env-context={}"]
    command = [sys.executable, str(lean_ray.START_WORKER), options[0], str(program), "--node=1", options[1]]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said == f"__main__ ['--node=1'] {tmp_path} 10000 False\n"
