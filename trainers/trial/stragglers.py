"""Clients that do a part of the work: the key `stragglers` of a trial document.

    "stragglers": {"share": 0.5, "kept": true, "work": [0.1, 1.0]}

In every round, half of the cohort straggles. A straggler takes a part of the local steps that the method gives it: the
share w of them, rounded up, with w drawn uniformly from `work`. If stragglers are kept, their results count like all
others; if not, the server takes the means over the other clients alone, and the stragglers' work is lost.

Which clients straggle, and how much, are functions of (seed, round, client): the stragglers of a cohort are those with
the smallest random bits.

Source: "Federated Optimization in Heterogeneous Networks" (Li et al. 2020), section 5.2: of the devices of a round, 0,
50 or 90 % take a number of passes that is drawn uniformly from 1 to E, as with work [0, 1] here. FedAvg drops them, and
FedProx keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainers.contracts import Method
from trainers.errors import SpecError
from trainers.hyperparameters import check, tunable
from trainers.registry import methods
from trainers.trial.parts import Part
from trainers.values import shown

PATH = "stragglers"


@dataclass(frozen=True)
class Stragglers:
    """Checked stragglers.

    Args:
        share: share of the cohort that straggles.
        kept: whether what stragglers return counts.
        work: lowest and highest share of its steps that a straggler takes.
    """

    share: float = tunable(low=0, low_open=True, high=1, doc="of the clients of each round")
    kept: bool = tunable(doc="whether what stragglers return counts, as in FedProx; FedAvg drops them")
    work: tuple[float, ...] = tunable(
        (0.0, 1.0), low=0, high=1, longest=2, doc="lowest and highest share of its local steps that a straggler takes"
    )

    def count(self, clients: int) -> int:
        """Number of stragglers of a cohort of this size, rounded to the nearest number.

        Examples:
            >>> [Stragglers(share=0.5, kept=True).count(clients) for clients in (1, 4, 5)]
            [1, 2, 3]
            >>> Stragglers(share=0.29, kept=True).count(50)  # 0.29 * 50 is below 14.5 in floating point
            15
        """
        return int(round(self.share * clients, 6) + 0.5)

    def to_json(self) -> dict[str, Any]:
        """The object for a trial document."""
        return {"share": self.share, "kept": self.kept, "work": list(self.work)}


def parse(value: Any, method: Part[Method], clients: int) -> Stragglers | None:
    """The stragglers that a document asks for; None if it asks for none.

    Args:
        value: the value from the document.
        method: the method of the trial.
        clients: clients of a round.

    Raises:
        SpecError: unknown keys, wrong types or ranges, or a method whose clients cannot take a part of the steps.
    """
    if value is None:
        return None
    if not isinstance(value, Mapping):
        example = '{"share": 0.5, "kept": true}'
        raise SpecError(f"{PATH} must be like {example}, got {PATH}={shown(value)}", PATH)
    stragglers = Stragglers(**check(Stragglers, value, PATH))
    _check(stragglers, method, clients)
    return stragglers


def _check(stragglers: Stragglers, method: Part[Method], clients: int) -> None:
    if len(stragglers.work) != 2 or stragglers.work[0] > stragglers.work[1]:
        path = f"{PATH}.work"
        raise SpecError(
            f"{path} must be two shares such as [0.1, 1.0], the lower one first, got {shown(list(stragglers.work))}",
            path,
        )
    if not method.module.PARTIAL_WORK:
        able = ", ".join(name for name in methods() if methods().constant(name, "PARTIAL_WORK"))
        raise SpecError(
            f"{PATH} must be left out for {method.name}, whose clients cannot take a part of the local steps: it may "
            f"be given for {able}",
            PATH,
        )
    count, path = stragglers.count(clients), f"{PATH}.share"
    if count == 0:
        raise SpecError(
            f"{path} must be at least {0.5 / clients:.3g}, for one of the {clients} clients of a round to straggle, "
            f"got share={stragglers.share:g}",
            path,
        )
    if stragglers.kept:
        return
    if not method.module.ONE_UPLOAD:
        path = f"{PATH}.kept"
        raise SpecError(
            f"{path} must be true for {method.name}, whose clients send more than one tensor a round, got kept=false",
            path,
        )
    if count == clients:
        raise SpecError(
            f"{path} must be less with kept=false: all {clients} clients of a round would be dropped, "
            f"got share={stragglers.share:g}",
            path,
        )
