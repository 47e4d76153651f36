"""How many GPUs a machine has, and that a service without any loads no torch to know it."""

import sys
from pathlib import Path

import pytest
import torch

from service import gpus
from service.gpus import machine_gpus


def test_a_machine_without_devices_has_none_and_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere")
    assert machine_gpus(tmp_path) == 0
    (tmp_path / "nvidia0").touch()
    assert machine_gpus(tmp_path) is None


def test_torch_counts_those_that_this_process_may_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "_PATIENCE_S", 600.0)  # on a busy machine torch takes minutes to load
    (tmp_path / "nvidia0").touch()
    assert machine_gpus(tmp_path) == torch.cuda.device_count()
