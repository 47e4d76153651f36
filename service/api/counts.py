"""How much work a study is, counted by the engine itself: one round of each label with one local step, and with two.

Bytes do not depend on the number of local steps, gradients rise evenly with it: two rounds give both for every
configuration of a space, however many steps that has. Nothing of it is stored.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from driftline.errors import DriftlineError
from driftline.study.check import corners
from driftline.study.spec import LARGEST, Study
from driftline.study.trial_document import trial_document
from search_spaces.parameters import Parameter
from trainers.errors import SpecError

DRAWS = 256
"""Configurations that the mean number of local steps is taken over."""

_MOST_PARAMETERS = 1e7  # of a model that is built here
_LONGEST = 1000  # weights of a list that is tried as it is
_KEPT = 64
_STEPS = ("local_epochs", "local_steps")
_kept: OrderedDict[str, Mapping[str, Work]] = OrderedDict()
_turn = threading.Lock()


@dataclass(frozen=True)
class Work:
    """What a round of one trial takes, on average over its space.

    Attributes:
        client_gradients: Gradients that clients evaluate.
        bytes_up: Bytes that clients send.
        bytes_down: Bytes that clients receive.
    """

    client_gradients: float
    bytes_up: float
    bytes_down: float


def a_round(study: Study) -> Mapping[str, Work]:
    """The work of one round of one trial, by label; labels for which it cannot be counted are left out.

    The results for the last studies are kept. One study at a time.
    """
    key = study.fingerprint()
    with _turn:
        found = _kept.get(key)
        if found is None:
            found = {}
            for label in study.labels:
                try:
                    found[label] = _label(study, label)
                except (DriftlineError, SpecError, MemoryError, OverflowError, ValueError, RuntimeError):
                    continue  # it is too large for this process, or needs what is not here
            _kept[key] = found
            while len(_kept) > _KEPT:
                _kept.popitem(last=False)
        return found


def _label(study: Study, label: str) -> Work:
    space = study.entry(label).parameters()
    hyperparameters = next(corners(space))
    if _parameters(study.task.get("model")) > _MOST_PARAMETERS:
        raise ValueError("too large to be tried")
    if any(isinstance(value, list) and len(value) > _LONGEST for value in hyperparameters.values()):
        raise ValueError("too long to be tried")
    name = next((name for name in _STEPS if hyperparameters.get(name) is not None), None)
    if name is None:
        return _one_round(study, label, hyperparameters)
    one = _one_round(study, label, hyperparameters | {name: 1})
    two = _one_round(study, label, hyperparameters | {name: 2})
    steps = _mean(space[name], study.seed)
    gradients = one.client_gradients + (steps - 1) * (two.client_gradients - one.client_gradients)
    return Work(gradients, one.bytes_up, one.bytes_down)


def _parameters(value: Any) -> float:
    """At least about as many as the numbers in a model's configurations, taken for widths of layers, lead to."""
    if isinstance(value, Mapping):
        return sum(_parameters(inner) for inner in value.values())
    if isinstance(value, list):
        widths = [float(inner) for inner in value if isinstance(inner, int | float)]
        return sum(one * two for one, two in itertools.pairwise(widths)) + max(widths, default=0.0)
    return 0.0


def _one_round(study: Study, label: str, hyperparameters: Mapping[str, Any]) -> Work:
    from trainers.engine.pack import Pack
    from trainers.spec import parse

    document = trial_document(study, label, [hyperparameters], study.seed) | {"rounds": 1, "report": []}
    pack = Pack.from_spec(parse(document), device="cpu")
    last = pack.advance(max_rounds=1)[-1]
    return Work(float(last["client_gradients"]), float(last["bytes_up"]), float(last["bytes_down"]))


def _mean(parameter: Parameter, seed: int) -> float:
    generator = np.random.default_rng(seed)
    mean = float(np.mean([min(float(parameter.sample(generator) or 1), LARGEST) for _ in range(DRAWS)]))
    if not mean < LARGEST:
        raise OverflowError("more steps than can be counted")
    return mean
