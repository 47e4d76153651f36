"""Whether anything in a study is random besides its search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from driftline.study.spec import Study

_FIXED_START = ("softmax", "linear")  # models that start from 0
_ONE_CLIENT = ("lookahead",)  # methods that draw one client a round
_EXACT_TASKS = ("quadratic", "linear_regression")


def nothing_random(study: Study) -> bool:
    """Whether all trials of a configuration are certain to be equal, whatever their seed.

    All clients take part with all their examples, gradients are exact, models start from the same parameters, and
    evaluations measure all held-out clients. False where the study's document alone does not tell.
    """
    task = study.task
    model = task.get("model", "softmax")
    name = model.get("name") if isinstance(model, Mapping) else model
    fixed = task["name"] in _EXACT_TASKS or name in _FIXED_START
    whole = study.clients_per_round is None and study.batch_size is None and not task.get("gradient_noise")
    whole = whole and study.evaluation is None
    return bool(fixed and whole and not any(entry.name in _ONE_CLIENT for entry in study.methods))
