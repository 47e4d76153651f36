"""Evaluation after adaptation: the key `adaptation` of a trial document, and its metrics.

    "adaptation": {"steps": [0, 1, 5], "client_lr": 0.1, "support": 0.5}

Every held-out client takes the given numbers of gradient descent steps from the broadcast model on its support
examples. The adapted model is measured on its other examples, the query: `adapted_loss_5`, `adapted_accuracy_5`. This
works for any method; it is the objective of MAML and Reptile. 0 steps measures the broadcast model on the same query
examples.

With `{"steps": [1, 5], "client_lr": 0.1, "shots": 5}` the support has 5 examples of each of the client's classes, in
place of a share of all. Clients with a class of 5 or fewer examples are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from trainers.contracts import Method
from trainers.errors import SpecError
from trainers.hyperparameters import check, tunable
from trainers.problem import Problem, TaskSettings
from trainers.trial.parts import Part
from trainers.values import shown

PATH = "adaptation"

_rarest: WeakKeyDictionary[TaskSettings, NDArray[np.int64]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Adaptation:
    """A checked adaptation.

    Args:
        steps: numbers of gradient steps after which clients are measured, in ascending order.
        client_lr: step size, at least 0; None follows the trial's current client_lr.
        support: share of a held-out client's examples that it adapts on; the rest is the query.
        shots: examples of each of its classes that a held-out client adapts on, in place of `support`.
    """

    steps: tuple[int, ...] = tunable(kind="ints", low=0, unit="steps", doc="after which held-out clients are measured")
    client_lr: float | None = tunable(None, low=0, doc="of the adaptation; null is the trial's own, as it is then")
    support: float = tunable(0.5, low=0, high=1, low_open=True, high_open=True, doc="share of examples adapted on")
    shots: int | None = tunable(None, low=1, unit="examples of each class", doc="adapted on, in place of support")

    def metrics(self, evaluated: Sequence[str]) -> tuple[str, ...]:
        """Names of the metrics.

        Args:
            evaluated: names of the task's metrics.
        """
        kinds = ("loss", "accuracy") if "test_accuracy" in evaluated else ("loss",)
        return tuple(f"adapted_{kind}_{steps}" for steps in self.steps for kind in kinds)

    def to_json(self) -> dict[str, Any]:
        """The object for a trial document."""
        chosen = {"support": self.support} if self.shots is None else {"shots": self.shots}
        return {"steps": list(self.steps), "client_lr": self.client_lr, **chosen}


def parse(value: Any, task: Any, method: Part[Method], problem: Callable[[], Problem]) -> Adaptation | None:
    """The adaptation that a document asks for; None if it asks for none.

    Args:
        value: the value from the document.
        task: settings of the task.
        method: the method of the trial.
        problem: returns the problem with the held-out clients' data; called only for `shots`.

    Raises:
        SpecError: unknown keys, wrong types or ranges, no client that can adapt, or no step size.
    """
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise SpecError(f'{PATH} must be like {{"steps": [1, 5], "client_lr": 0.1}}, got {PATH}={shown(value)}', PATH)
    values = check(Adaptation, value, PATH)
    steps = tuple(sorted(set(values["steps"])))
    if values["client_lr"] is None and "client_lr" not in method.values:
        path = f"{PATH}.client_lr"
        raise SpecError(f"{path} must be given: {method.name} has no client_lr of its own", path)
    held_out = task.test
    if held_out is not None and not any(len(rows) > 1 for rows in held_out):
        raise SpecError(
            f"{PATH} must be left out for a task without held-out clients of at least 2 examples: each client adapts "
            "on some of its examples and is measured on the others",
            PATH,
        )
    values = {**values, "steps": steps}
    if values["shots"] is None:
        return Adaptation(**values)
    if value.get("support") is not None:
        raise SpecError(f"{PATH}.support must not be given beside shots, got both: leave one out", f"{PATH}.support")
    _check_shots(values["shots"], task, problem)
    return Adaptation(**values)


def warnings(chosen: Adaptation | None, task: TaskSettings) -> list[str]:
    """A line if held-out clients are left out.

    Args:
        chosen: from `parse`.
        task: settings of the task.
    """
    if chosen is None or chosen.shots is None or not (few := int((_rarest[task] <= chosen.shots).sum())):
        return []
    least = f"at most {chosen.shots} example{'s' * (chosen.shots > 1)} of a class"
    return [f"{PATH}.shots leaves out {few} of {len(_rarest[task])} held-out clients, which have {least}"]


def rarest_class(targets: NDArray[Any], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """(clients,) the fewest examples that any class of each client has.

    Args:
        targets: (examples,) class numbers, one client after the other.
        sizes: (clients,) examples of each client, at least 1.
    """
    owner = np.repeat(np.arange(len(sizes)), sizes)
    order = np.lexsort((targets, owner))
    begins = np.flatnonzero(np.diff(owner, prepend=-1) | np.diff(targets[order], prepend=0))
    return np.minimum.reduceat(
        np.diff(begins, append=len(owner)), np.searchsorted(owner[begins], np.arange(len(sizes)))
    )


def _check_shots(shots: int, task: TaskSettings, problem: Callable[[], Problem]) -> None:
    """Raises a SpecError if no held-out client has more than `shots` examples of each of its classes."""
    path = f"{PATH}.shots"
    if task not in _rarest:
        test = problem().test
        if test is None or test.kind != "classes" or test.targets.ndim != 1:
            raise SpecError(f"{path} must be left out for a task without classes: give support", path)
        offsets, sizes = test.offsets[test.held_out], test.sizes[test.held_out]
        rows = np.concatenate([first + np.arange(size) for first, size in zip(offsets, sizes, strict=True)])
        _rarest[task] = rarest_class(test.targets[rows], sizes)
    most = int(_rarest[task].max()) - 1
    if most < shots:
        rule = f"be at most {most}" if most > 0 else "be left out"
        raise SpecError(
            f"{path} must {rule} for this task, got shots={shots}: a held-out client needs more than `shots` examples "
            f"of each of its classes, and none has more than {most + 1} of its rarest class",
            path,
        )
