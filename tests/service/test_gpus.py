"""The most GPUs that a machine can have, by its devices alone: programs need not use Driftline's torch."""

import sys
from pathlib import Path

import pytest
import torch

from driftline.errors import InvalidSpec
from driftline.study.spec import Resources, Study
from service.embedded import room
from service.gpus import machine_gpus
from tests.study.test_program import DOCUMENT

BUDGET = {"trials_per_method": 2, "rounds": 2}


def test_a_machine_without_devices_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine_gpus(tmp_path) == 0
    monkeypatch.setattr(sys, "platform", "darwin")  # where Ray counts Apple's
    assert machine_gpus(tmp_path) is None


@pytest.mark.parametrize(
    ("visible", "count"),
    [(None, 2), ("", 0), ("1", 1), ("0,1,2", 2), ("GPU-8d2b", 1)],
    ids=["all", "none", "one", "more than there are", "by name"],
)
def test_nvidias_are_counted_as_far_as_this_process_may_use_them(
    visible: str | None, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "dri/renderD128"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert machine_gpus(tmp_path) == count


@pytest.mark.parametrize("device", ["kfd", "dxg", "dri/renderD128"])
def test_how_many_of_another_kind_there_are_is_unknown(device: str, tmp_path: Path) -> None:
    (tmp_path / device).parent.mkdir(exist_ok=True)
    (tmp_path / device).touch()
    assert machine_gpus(tmp_path) is None


def test_a_program_may_use_gpus_that_this_build_of_torch_does_not_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    program = Study.from_json(DOCUMENT)
    asked = program.model_copy(update={"resources": Resources(gpu=2, packs=1)})
    for most in (2, None):
        monkeypatch.setattr(room, "machine_gpus", lambda most=most: most)
        room.require_room(asked)
    monkeypatch.setattr(room, "machine_gpus", lambda: 1)
    with pytest.raises(InvalidSpec, match=r"resources\.gpu: a pack needs 1 CPU and 2 GPU"):
        room.require_room(asked)
    document = {"name": "x", "task": "digits", "methods": ["fedavg"], "budget": BUDGET, "resources": {"gpu": 1}}
    trained_here = Study.from_json(document)
    with pytest.raises(InvalidSpec, match=r"resources\.gpu"):
        room.require_room(trained_here)
