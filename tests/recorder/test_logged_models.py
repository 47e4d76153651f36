"""A recommended model that is trained again must have the quality that the study measured."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from driftline.errors import InvalidSpec
from service.recorder import logged_models
from service.recorder.logged_models import FrontierModel, train
from trainers import Pack, parse

ROUNDS = 3


def point(dtype: str, off: float) -> FrontierModel:
    """A trial whose recorded quality differs by this share from what training gives."""
    trial = {
        "task": {"name": "digits", "clients": 10, "partition": "iid", "model": "mlp"},
        "method": {"name": "fedavg", "client_lr": 0.1, "server_lr": 0.1, "local_steps": 3},
        "batch_size": 8,
        "clients_per_round": 5,
        "rounds": ROUNDS,
        "dtype": dtype,
    }
    measured = Pack.from_spec(parse(trial), device="cpu").advance()[-1]["test_loss"]
    row: Any = SimpleNamespace(stop=ROUNDS, configuration={"configuration": 0})
    return FrontierModel("fedavg", row, 0, measured * (1 + off), trial, "stacked")


@pytest.mark.parametrize(("dtype", "close", "apart"), [("float32", 1e-4, 0.01), ("bfloat16", 0.02, 0.1)])
def test_another_quality_is_refused_beyond_what_rounding_moves(dtype: str, close: float, apart: float) -> None:
    assert train(point(dtype, close), "test_loss").metrics["round"] == ROUNDS
    with pytest.raises(InvalidSpec, match=r"test_loss after 3 rounds must be .* again, got"):
        train(point(dtype, apart), "test_loss")


def test_a_task_without_a_module_is_refused_before_its_model_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = {
        "task": {"name": "quadratic", "hessians": [[[2.0]]], "centers": [[1.0]]},
        "method": {"name": "fedavg", "client_lr": 0.1, "server_lr": 0.1, "local_steps": 3},
        "rounds": ROUNDS,
    }
    row: Any = SimpleNamespace(stop=ROUNDS, configuration={"configuration": 0})
    monkeypatch.delattr(Pack, "advance")
    with pytest.raises(InvalidSpec, match="task: its model cannot be written as a torch module"):
        train(FrontierModel("fedavg", row, 0, 0.0, trial, "closed_form"), "loss", lambda: pytest.fail("it trains"))


@pytest.mark.filterwarnings("ignore:.*Any type hint is inferred:UserWarning")  # MLflow's own, when it is imported
def test_a_module_of_a_file_is_stored_with_its_code(tmp_path: Path) -> None:
    from mlflow import pytorch

    net = tmp_path / "net.py"
    net.write_text(
        "from torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self, classes):\n"
        "        super().__init__()\n        self.last = nn.Linear(64, classes)\n\n    def forward(self, images):\n"
        "        return self.last(images.flatten(1))\n"
    )
    found = point("float32", 0)
    found.trial["task"]["model"] = {"module": f"{net}:Net"}
    pack = Pack.from_spec(parse(found.trial), device="cpu")
    trained = logged_models.TrainedModel(found, pack.torch_modules()[0], {})
    logged_models._save(trained, tmp_path)
    net.unlink()
    del sys.modules[type(trained.module).__module__]  # as in another process
    loaded = pytorch.load_model(str(tmp_path / "model"))
    assert loaded.last.weight.equal(trained.module.last.weight)
