"""What tests of trials share."""

import math

import pytest

from trainers.contracts import Schedule
from trainers.plugins import load
from trainers.registry import schedules

from . import warm_up_and_fall


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
