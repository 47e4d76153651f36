"""Evaluation after adaptation: the key `adaptation` of a trial document, and its metrics.

    "adaptation": {"steps": [0, 1, 5], "client_lr": 0.1, "support": 0.5}

Every held-out client takes the given numbers of gradient descent steps from the broadcast model on its support
examples. The adapted model is measured on its other examples, the query: `adapted_loss_5`, `adapted_accuracy_5`. This
works for any method; it is the objective of MAML and Reptile. 0 steps measures the broadcast model on the same query
examples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainers.contracts import Method
from trainers.errors import SpecError
from trainers.hyperparameters import check, tunable
from trainers.trial.parts import Part
from trainers.values import shown

PATH = "adaptation"


@dataclass(frozen=True)
class Adaptation:
    """A checked adaptation.

    Args:
        steps: numbers of gradient steps after which clients are measured, in ascending order.
        client_lr: step size, at least 0; None follows the trial's current client_lr.
        support: share of a held-out client's examples that it adapts on; the rest is the query.
    """

    steps: tuple[int, ...] = tunable(kind="ints", low=0, unit="steps", doc="after which held-out clients are measured")
    client_lr: float | None = tunable(None, low=0, doc="of the adaptation; null is the trial's own, as it is then")
    support: float = tunable(0.5, low=0, high=1, low_open=True, high_open=True, doc="share of examples adapted on")

    def metrics(self, evaluated: Sequence[str]) -> tuple[str, ...]:
        """Names of the metrics.

        Args:
            evaluated: names of the task's metrics.
        """
        kinds = ("loss", "accuracy") if "test_accuracy" in evaluated else ("loss",)
        return tuple(f"adapted_{kind}_{steps}" for steps in self.steps for kind in kinds)

    def to_json(self) -> dict[str, Any]:
        """The object for a trial document."""
        return {"steps": list(self.steps), "client_lr": self.client_lr, "support": self.support}


def parse(value: Any, task: Any, method: Part[Method]) -> Adaptation | None:
    """The adaptation that a document asks for; None if it asks for none.

    Args:
        value: the value from the document.
        task: settings of the task.
        method: the method of the trial.

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
        place = f"{PATH}.client_lr"
        raise SpecError(f"{place} must be given: {method.name} has no client_lr of its own", place)
    held_out = task.test
    if held_out is not None and not any(len(rows) > 1 for rows in held_out):
        raise SpecError(
            f"{PATH} must be left out for a task without held-out clients of at least 2 examples: each client adapts "
            "on some of its examples and is measured on the others",
            PATH,
        )
    return Adaptation(**{**values, "steps": steps})
