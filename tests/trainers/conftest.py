"""What tests of trials share."""

import math

import numpy as np
import pytest

from trainers.contracts import Schedule
from trainers.plugins import load
from trainers.registry import schedules

from . import warm_up_and_fall
from .plain_loops import CLASSES, INPUTS, SIZES


@pytest.fixture
def small_examples(monkeypatch):
    """Mini-batches run in example space wherever it applies, not only where it is faster by far."""
    for name, value in {"_LEAST_GAIN": 0, "_LEAST_ARITHMETIC": 0, "_MORE_MEMORY": math.inf}.items():
        monkeypatch.setattr(f"trainers.models._example_space.{name}", value)


@pytest.fixture
def by_steps(monkeypatch):
    """The name of a schedule whose rates change from one local step to the next."""
    monkeypatch.setitem(schedules()._loaded, "by_steps", load(Schedule, "schedule", warm_up_and_fall))
    monkeypatch.setattr(schedules(), "_own", {*schedules()._own, "by_steps"})
    return "by_steps"


@pytest.fixture(scope="session")
def unequal_clients(tmp_path_factory):
    """A table whose clients hold unequal numbers of examples."""
    generator = np.random.default_rng(1)
    x = generator.normal(size=(sum(SIZES), INPUTS))
    y = (x @ generator.normal(size=(INPUTS, CLASSES)) + generator.normal(size=(len(x), CLASSES))).argmax(1)
    path = tmp_path_factory.mktemp("passes") / "unequal.npz"
    np.savez(path, x=x, y=y, client=np.repeat(np.arange(len(SIZES)), SIZES))
    return path
