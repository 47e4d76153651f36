"""The contract of a method, run over every method, server optimizer and schedule that is found in the folders."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

import trainers.methods
from trainers.engine.packs.pack import Pack
from trainers.hyperparameters import describe, withdrawals
from trainers.registry import methods
from trainers.trial.document import parse

from .trials import document, quadratic, train


def test_every_method_has_a_file_of_its_own_tests():
    """For somebody who looks for the tests of a method by its name."""
    own = {file.stem for file in Path(*trainers.methods.__path__).glob("[!_]*.py")}
    here = {file.stem.removeprefix("test_") for file in Path(__file__).parent.glob("test_*.py")}
    assert own - here == set()


@pytest.mark.parametrize("method", methods())
def test_a_round_leaves_its_input_alone_and_pads_zero(method):
    pack = Pack.from_spec(parse({**document(method), "init": [1.0, -2.0, 0.5]}))
    pack.advance(1)
    for _ in range(3):
        before = pack._lanes[0].now.state
        copies = {name: held.clone() for name, held in tensors(before).items()}
        pack.advance(1)
        assert all(torch.equal(held, copies[name]) for name, held in tensors(before).items())
        after = pack._lanes[0].now.state
        assert not torch.equal(after.params, before.params)
        assert after.params.isfinite().all()
        assert (after.params[..., 3:] == 0).all()
        assert after.params.shape == before.params.shape


def tensors(state):
    return {
        "params": state.params,
        **state.optimizer_memory["server"],
        **{f"memory.{name}": held for name, held in state.memory.items()},
    }


@pytest.mark.parametrize("method", methods())
def test_lines_are_finite(method):
    """What they count is in test_costs.py."""
    lines = train(document(method))
    assert [line["round"] for line in lines] == list(range(7))
    assert lines[0]["train_loss"] is None
    assert lines[0]["update_norm"] is None
    for line in lines[1:]:
        assert all(np.isfinite(line[name]) for name in ("train_loss", "update_norm", "loss", "distance"))
        assert line["diverged"] is False


@pytest.mark.parametrize("method", methods())
def test_the_loss_falls_without_noise(method):
    given = document(method, task=quadratic(gradient_noise=0.0), clients_per_round=None, rounds=40)
    given["init"] = [3.0, -3.0, 3.0]
    lines = train(given)
    assert lines[-1]["loss"] < 0.2 * lines[0]["loss"]


@pytest.mark.parametrize("method", methods())
def test_hyperparameters_say_range_and_meaning(method):
    module = methods()[method]
    described = {item.name: item for item in describe(module.Hyper)}
    assert described.keys() | withdrawals(module.Hyper) == {field.name for field in dataclasses.fields(module.Hyper)}
    assert ("server_lr" in described) != module.TIED
    for item in described.values():
        assert item.doc
        assert item.kind in ("bool", "str", "any") or item.low is not None
    assert "Exchanges:" in module.__doc__
    assert "Source:" in module.__doc__
