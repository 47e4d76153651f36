"""Models as plain torch modules: they score as the pack that trained them."""

from typing import Any

import pytest
import torch

from trainers import Pack, parse
from trainers.errors import SpecError
from trainers.registry import tasks

METHOD = {"name": "fedavg", "server_lr": 0.2, "local_steps": 2}


def digits(model: Any) -> dict[str, Any]:
    return {"name": "digits", "clients": 5, "model": model}


@pytest.mark.parametrize(
    "model",
    ["softmax", {"name": "mlp", "hidden": [8], "dropout": 0.5}, {"name": "cnn", "filters": [2], "dense": 8}],
    ids=["softmax", "mlp", "cnn"],
)
def test_a_module_scores_as_its_pack(model: Any) -> None:
    members = [{"client_lr": 0.1}, {"client_lr": 0.3}]
    pack = Pack.from_spec(parse({"task": digits(model), "method": METHOD, "rounds": 3, "members": members}))
    reported = {line["member"]: line["test_accuracy"] for line in pack.advance() if line["round"] == 3}
    task = tasks()["digits"]
    test = task.build(task.parse(digits(model), "task"), "float32").test
    assert test is not None
    inputs, targets = torch.as_tensor(test.inputs, dtype=torch.float32), torch.as_tensor(test.targets)
    modules = pack.torch_modules()
    with torch.no_grad():
        scores = [module(inputs) for module in modules]
    assert not torch.equal(scores[0], scores[1])
    for member, own in enumerate(scores):
        assert (own.argmax(1) == targets).float().mean().item() == pytest.approx(reported[member], abs=1e-6)


def test_losses_in_closed_form_have_no_module() -> None:
    task = {"name": "quadratic", "hessians": [[[2.0]]], "centers": [[1.0]]}
    pack = Pack.from_spec(parse({"task": task, "method": {**METHOD, "client_lr": 0.1}, "rounds": 1}))
    with pytest.raises(SpecError, match="task: its model cannot be written as a torch module"):
        pack.torch_modules()
