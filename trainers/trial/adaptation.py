"""How trials are evaluated after adaptation: what a document asks for, and the metrics that this gives.

    "adaptation": {"steps": [0, 1, 5], "client_lr": 0.1, "support": 0.5}

Every held-out client takes so many steps of gradient descent from the broadcast model on its support examples, and the
adapted model is measured on its other examples, the query: `adapted_loss_5`, `adapted_accuracy_5`. Any method can be
measured so; it is what MAML and Reptile train for. 0 steps is the broadcast model on the same query examples.
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
        steps: numbers of gradient steps after which clients are measured, rising.
        client_lr: step size, at least 0; None is the client_lr that the trial has in the round.
        support: share of a held-out client's examples that it adapts on; the rest is the query.
    """

    steps: tuple[int, ...] = tunable(kind="ints", low=0, unit="steps", doc="after which held-out clients are measured")
    client_lr: float | None = tunable(None, low=0, doc="of the adaptation; null is the trial's own, as it is then")
    support: float = tunable(0.5, low=0, high=1, low_open=True, high_open=True, doc="share of examples adapted on")

    def metrics(self, evaluated: Sequence[str]) -> tuple[str, ...]:
        """Names of the metrics.

        Args:
            evaluated: metrics of the task.
        """
        kinds = ("loss", "accuracy") if "test_accuracy" in evaluated else ("loss",)
        return tuple(f"adapted_{kind}_{steps}" for steps in self.steps for kind in kinds)

    def to_json(self) -> dict[str, Any]:
        """The object of a document."""
        return {"steps": list(self.steps), "client_lr": self.client_lr, "support": self.support}


def parse(value: Any, task: Any, method: Part[Method]) -> Adaptation | None:
    """The adaptation that a document asks for; None where it asks for none.

    Args:
        value: as it came from the document.
        task: settings of the task.
        method: of the trial.

    Raises:
        SpecError: unknown keys, wrong types or ranges, nobody to adapt, or no step size.
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
            f"{PATH} must be left out for a task without held-out clients of at least 2 examples: half of these are "
            "adapted on, the others measured",
            PATH,
        )
    return Adaptation(**{**values, "steps": steps})
