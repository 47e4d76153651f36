"""Whole numbers in inputs: word ids reach a module of ids to the bit, and a module of numbers gets floats."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from trainers import Pack, parse
from trainers.engine.oracles.oracle import ModelBuilder
from trainers.errors import SpecError
from trainers.models._network import Network
from trainers.problem import Examples, Problem
from trainers.registry import models

TYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool", ">i2", ">u4"]
OTHER = ["int8", "uint16", "uint32", "uint64", "bool", ">i2", ">u4"]  # held as int64; torch indexes with few types
CPU = torch.device("cpu")
SEEN: list[Tensor] = []


class Words(nn.Module):
    """Scores of a bag of words; ids are taken modulo the vocabulary."""

    def __init__(self, convert: bool) -> None:
        super().__init__()
        self.table, self.out, self.convert = nn.Embedding(64, 4), nn.Linear(4, 2), convert

    def forward(self, words: Tensor) -> Tensor:
        if words.device == CPU:
            SEEN.append(words)
        return self.out(self.table((words.long() if self.convert else words) % 64).mean(1))


class Numbers(nn.Module):
    """A network that computes with its inputs before any layer refuses them."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(3, 2)

    def forward(self, values: Tensor) -> Tensor:
        return self.out(values.flatten(1) * 2)


class Builder(ModelBuilder):
    """A model of a package."""

    DTYPES = ("float32", "bfloat16")

    def build(self, problem: Problem, dtype: torch.dtype, device: torch.device) -> Network:
        return Network(problem, lambda: Words(True), dtype, device)


def network(inputs: np.ndarray, make: Any, dtype: torch.dtype = torch.float32, **parts: Any) -> Network:
    count = len(inputs)
    data = Examples(inputs, np.arange(count) % 2, np.array([0, 2]), np.array([2, count - 2]))
    return Network(Problem("own", data, **parts), make, dtype, CPU)


def whole(kind: str) -> np.ndarray:
    return np.arange(18).reshape(6, 3).astype(kind)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", TYPES)
def test_ids_stay_whole_and_numbers_become_floats(kind: str, dtype: torch.dtype) -> None:
    inputs = whole(kind)
    for make in (lambda: Words(True), lambda: Words(False)):
        model = network(inputs, make, dtype)
        seen = model.gather(torch.arange(6)[None])["inputs"][0]
        assert (seen.dtype, seen.tolist()) == (torch.int64, inputs.astype(int).tolist())
        assert model.inputs.element_size() <= max(inputs.itemsize, 8 * (kind in OTHER))
    model = network(inputs, Numbers, dtype)
    assert (model.inputs.dtype, model.inputs.tolist()) == (model.like.dtype, inputs.astype(float).tolist())


MODELS = ["softmax", "linear", "mlp", "cnn"]  # in turn: a model does not know of which type its numbers were


@pytest.mark.parametrize(("kind", "name"), [*zip(TYPES, itertools.cycle(MODELS), strict=False)])
def test_models_of_numbers_compute_the_same_with_any_type(name: str, kind: str) -> None:
    generator = np.random.default_rng(0)
    inputs = generator.integers(0, 2, (6, 1, 4, 4)).astype(kind)
    losses = []
    for given in (inputs, inputs.astype(np.float64)):
        data = Examples(given, np.arange(6) % 2, np.array([0, 2]), np.array([2, 4]))
        problem = Problem(name, data, model_settings={"filters": [2], "dense": 3, "hidden": [3]})
        model = models()[name].build(problem, torch.float64, CPU)
        params = model.start(None, 0).expand(1, 1, -1)
        losses.append(model.full_loss(params, np.array([0.5, 0.5])))
    assert torch.equal(*losses)


class Counts(ModelBuilder):
    """A model of numbers."""

    TARGETS = "numbers"

    def build(self, problem: Problem, dtype: torch.dtype, device: torch.device) -> Network:
        return Network(problem, lambda: nn.Linear(3, 1), dtype, device)


@pytest.mark.parametrize("kind", ["int64", "uint8", "bool"])
def test_whole_numbers_to_predict_train_as_the_same_floats_do(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(models()._loaded, "counts", Counts())
    monkeypatch.setattr(models(), "_own", {*models()._own, "counts"})
    inputs = np.random.default_rng(0).standard_normal((40, 3))
    lines = []
    for target in (kind, "float64"):
        file = tmp_path / f"{target}.npz"
        np.savez(file, x=inputs, y=(np.arange(40) % 2).astype(target), client=np.arange(40) // 10)
        trial = {
            "task": {"name": "npz", "path": str(file), "model": "counts"},
            "method": {"name": "fedavg", "client_lr": 0.1, "server_lr": 0.1, "local_steps": 2},
            "adaptation": {"steps": [1]},
            "rounds": 2,
        }
        lines.append(Pack.from_spec(parse(trial), device="cpu").advance()[-1])
    assert "test_accuracy" not in lines[0]
    assert lines[0]["test_loss"] == lines[1]["test_loss"]
    assert lines[0]["train_loss"] == lines[1]["train_loss"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_large_ids_of_a_file_are_seen_to_the_bit_in_training_and_in_tests(
    dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(models()._loaded, "words", Builder())
    monkeypatch.setattr(models(), "_own", {*models()._own, "words"})
    ids = 2**24 + 1 + 2 * np.arange(120).reshape(40, 3)  # odd: a float32 holds none of them
    np.savez(tmp_path / "ids.npz", x=ids.astype(np.int32), y=np.arange(40) % 2, client=np.arange(40) // 10)
    trial = {
        "task": {"name": "npz", "path": str(tmp_path / "ids.npz"), "model": "words", "central": {"fraction": 0.2}},
        "method": {
            "name": "parallel_training",
            "client_lr": 0.1,
            "server_lr": 0.1,
            "central_lr": 0.1,
            "local_steps": 4,
        },
        "batch_size": 4,
        "rounds": 2,
        "dtype": dtype,
        "adaptation": {"steps": [1]},
        "members": [{"client_lr": 0.1}, {"client_lr": 0.2}],
    }
    SEEN.clear()
    lines = Pack.from_spec(parse(trial), device="cpu").advance()
    assert lines[-1]["test_loss"] > 0
    shown = torch.cat([seen.reshape(-1) for seen in SEEN])
    assert shown.dtype == torch.int64
    assert set(shown.tolist()) == set(ids.reshape(-1).tolist())


def test_a_module_that_takes_neither_is_refused_for_its_ids() -> None:
    with pytest.raises(
        SpecError, match=r"task.model: layer 0 \(Embedding\) fails .* of int64: IndexError: .*out of range"
    ):
        network(whole("int32") + 100, lambda: nn.Sequential(nn.Embedding(9, 2), nn.Flatten(), nn.Linear(6, 2)))


@pytest.mark.parametrize("where", ["train", "test"])
@pytest.mark.parametrize("number", [64, -1])
def test_ids_that_a_table_does_not_have_are_refused_before_training(where: str, number: int) -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Embedding(64, 4), nn.Flatten(), nn.Linear(12, 2))

    inputs = {"train": whole("int64"), "test": whole("int64")}
    inputs[where][4, 1] = number  # of neither of the first two examples
    test = Examples(inputs["test"], np.arange(6) % 2, np.array([0]), np.array([6]))
    with pytest.raises(SpecError, match=r"task.model: layer 0 \(Embedding\) fails .* of int64: IndexError"):
        network(inputs["train"], make, test=test)
    inputs[where][4] = [0, 1, 63]  # one example has the smallest and the largest id
    network(inputs["train"], make, test=test)


def test_ids_that_int64_cannot_hold_and_ids_beside_floats_are_refused() -> None:
    with pytest.raises(SpecError, match=r"task: inputs must be whole numbers below 2\^63, as .*, got uint64 up to 92"):
        network(whole("uint64") + np.uint64(2**63), lambda: Words(True))
    test = Examples(whole("float64"), np.arange(6) % 2, np.array([0]), np.array([6]))
    with pytest.raises(SpecError, match="got float64 up to 17"):
        network(whole("int64"), lambda: Words(True), test=test)
    assert network(whole("int64"), Numbers, test=test).inputs.dtype == torch.float32
