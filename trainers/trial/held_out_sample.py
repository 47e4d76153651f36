"""Evaluation on a sample of held-out clients: the key `evaluation` of a trial document.

    "evaluation": {"clients": 10}

Every evaluation measures the model on 10 held-out clients, drawn without replacement by the trial's seed and the round.
Metrics keep their definitions, over the drawn clients: test_loss and test_accuracy are means over their examples.
Training is the same to the bit. Trials of equal seed share the sample of a round.

Source: Kuo and others, "On Noisy Evaluation in Federated Hyperparameter Tuning", MLSys 2023, on what such noise does to
a search.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainers.errors import SpecError
from trainers.hyperparameters import check, tunable
from trainers.problem import TaskSettings
from trainers.values import shown

PATH = "evaluation"


@dataclass(frozen=True)
class HeldOutSample:
    """A checked sample of held-out clients.

    Args:
        clients: number of held-out clients that an evaluation measures.
    """

    clients: int = tunable(low=1, unit="clients", doc="drawn for each evaluation")

    def to_json(self) -> dict[str, Any]:
        """The object for a trial document."""
        return {"clients": self.clients}


def parse(value: Any, task: TaskSettings, adapts: bool) -> HeldOutSample | None:
    """The sample that a document asks for; None if all held-out clients are measured.

    Args:
        value: the value from the document.
        task: settings of the task.
        adapts: whether held-out clients adapt before they are measured.

    Raises:
        SpecError: unknown keys, wrong types or ranges, or a task or an adaptation that cannot have a sample.
    """
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise SpecError(f'{PATH} must be like {{"clients": 10}}, got {PATH}={shown(value)}', PATH)
    sample = HeldOutSample(**check(HeldOutSample, value, PATH))
    most = len(task.test or ())
    if most < 2:
        raise SpecError(f"{PATH} must be left out for a task without at least 2 held-out clients, got {most}", PATH)
    if sample.clients > most:
        path = f"{PATH}.clients"
        raise SpecError(
            f"{path} must be at most {most}, the held-out clients of the task, got clients={sample.clients}", path
        )
    if getattr(task, "validation", None) is not None:
        raise SpecError(
            f"{PATH} must be left out beside task.validation, on which all configurations are measured", PATH
        )
    if getattr(task, "apart", ()):
        raise SpecError(
            f"{PATH} must be left out beside task.central, whose own test examples a sample would not have", PATH
        )
    if adapts:
        raise SpecError(f"{PATH} must be left out beside adaptation, which measures all held-out clients", PATH)
    return sample
