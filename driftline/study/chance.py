"""Whether anything in a study is random besides its search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from trainers import REGISTRIES
from trainers.registry import tasks

if TYPE_CHECKING:
    from driftline.study.entries import MethodEntry, PartEntry
    from driftline.study.spec import Study

_FIXED_START = ("softmax", "linear")  # models that start from 0
_ONE_CLIENT = ("lookahead",)  # methods that draw one client a round
_EXACT_TASKS = ("quadratic", "linear_regression")


def nothing_random(study: Study) -> bool:
    """Whether all trials of a configuration are certain to be equal, whatever their seed.

    All clients take part with all their examples, gradients are exact, models start from the same parameters, and
    evaluations measure all held-out clients. False where the study's document alone does not tell, as of plug-ins from
    installed packages.
    """
    task = study.task
    model = task.get("model", "softmax")
    name = model.get("name") if isinstance(model, Mapping) else model
    fixed = task["name"] in _EXACT_TASKS or name in _FIXED_START
    whole = study.clients_per_round is None and study.batch_size is None and not task.get("gradient_noise")
    whole = whole and study.evaluation is None
    return bool(fixed and whole and tasks().built_in(task["name"]) and not any(map(_draws, study.methods)))


def _draws(entry: MethodEntry) -> bool:
    """Whether an entry draws clients or the server's examples, or may draw something because it is no built-in one."""
    batches = entry.space.get("central_batch_size")
    drawn = entry.name in _ONE_CLIENT or (batches is not None and any(size is not None for size in batches.ends()))
    named: dict[str, MethodEntry | PartEntry] = {"method": entry, **entry.parts()}
    return drawn or not all(REGISTRIES[kind]().built_in(part.name) for kind, part in named.items())
