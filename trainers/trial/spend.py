"""What a trial spends in a round, known before it is trained: client gradients, examples and tokens.

The counts are those of the report lines (`costs.COSTS`). Where clients hold different numbers of examples, the count of
a cohort depends on who is drawn; here it is the expectation. Cohorts are drawn uniformly, so that this is the mean over
all clients times the size of a cohort.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.contracts import RoundGradients
from trainers.errors import SpecError
from trainers.trial.document import TrialSpec
from trainers.trial.passes import Passes

UNITS = ("examples", "tokens", "client_gradients")
"""Costs whose spend is known before training, beside rounds."""


class UncountedSpend(SpecError):
    """What a trial spends in a unit is not known before it is trained."""


@dataclass(frozen=True)
class Spend:
    """What a trial spends.

    Args:
        each: amount of every round.
        once: additional amount of the first round.
    """

    each: Fraction
    once: Fraction = Fraction(0)

    def rounds_within(self, amount: int) -> int:
        """The most rounds that together spend at most this amount.

        Examples:
            >>> Spend(Fraction(30)).rounds_within(100), Spend(Fraction(30), once=Fraction(20)).rounds_within(100)
            (3, 2)
        """
        return max(0, int((amount - self.once) // self.each))


def spend(spec: TrialSpec, unit: str, member: int = 0) -> Spend:
    """What a trial spends in a unit of `UNITS`.

    Args:
        spec: one trial or several.
        unit: the unit.
        member: index of the trial.

    Raises:
        UncountedSpend: the method does not say what its clients compute, or there are no tokens to count.
    """
    if unit == "tokens" and not spec.tokens:
        units = "rounds, examples or client_gradients"
        problem = f"task must be a task of tokens for a budget of tokens, got {spec.task_name}: take {units}"
        raise UncountedSpend(problem, "task")
    counted, values = spec.method.module.round_gradients, spec.method.member(member)
    if spec.stragglers is not None:
        raise UncountedSpend(f"stragglers must be left out with a budget of {unit}: give budget.rounds", "stragglers")
    if counted is None:
        raise UncountedSpend(
            f"method.name must be a method that defines round_gradients for a budget of {unit}, got {spec.method.name}",
            "method.name",
        )
    return _spend(spec, values, counted, unit)


def _spend(
    spec: TrialSpec,
    values: Mapping[str, Any],
    counted: RoundGradients | Callable[[Mapping[str, Any]], RoundGradients],
    unit: str,
) -> Spend:
    """What a trial without stragglers spends."""
    counted = counted if isinstance(counted, RoundGradients) else counted(values)
    first = RoundGradients(batches=counted.once)
    per_round, once = (_of_cohort(spec, values, part, unit) for part in (counted, first))
    return Spend(per_round, once)


def round_examples(spec: TrialSpec, member: int) -> float:
    """Expected examples in the client gradients of a round; of plain local steps if the method does not say.

    Stragglers count like other clients.

    Args:
        spec: one trial or several.
        member: index of the trial.
    """
    counted, values = spec.method.module.round_gradients, spec.method.member(member)
    if counted is not None:
        return float(_spend(spec, values, counted, "examples").each)
    steps = RoundGradients(per_step=1) if "local_steps" in values else RoundGradients(batches=1)
    return float(_of_cohort(spec, values, steps, "examples"))


def _of_cohort(spec: TrialSpec, values: Mapping[str, Any], counted: RoundGradients, unit: str) -> Fraction:
    """The expected sum over a cohort of what its clients compute."""
    gradients, examples = _of_clients(spec, values, counted)
    whole = int((gradients if unit == "client_gradients" else examples).sum())
    share = Fraction(spec.clients_per_round or spec.task.clients, spec.task.clients)
    return whole * share * (spec.tokens if unit == "tokens" else 1)


def _of_clients(
    spec: TrialSpec, values: Mapping[str, Any], counted: RoundGradients
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(gradients on mini-batches, examples in them) of every client in a round, (clients,) each."""
    passes = _passes(spec, spec.task.examples, spec.batch_size)
    if values.get("local_epochs"):
        steps = values["local_epochs"] * passes.steps
    else:
        steps = np.full_like(passes.sizes, values.get("local_steps") or 0)
    per_step, shared, first = counted.per_step, counted.central_per_step, counted.batches
    gradients = (per_step + shared) * steps + first + counted.passes * passes.in_pass
    examples = per_step * passes.examples(steps) + first * passes.examples(np.ones_like(steps))
    examples += counted.passes * passes.sizes
    if shared:
        examples += shared * steps * _central_batch(spec, values)
    return gradients, examples


def _passes(spec: TrialSpec, sizes: Any, batch_size: int | None) -> Passes:
    """The mini-batches of clients with these numbers of examples; a loss that is a formula counts as one example."""
    if sizes is None:
        return Passes(np.ones(spec.task.clients, np.int64), 1)
    sizes = np.asarray(sizes, np.int64)
    repeats = batch_size is not None and spec.batching == "with_replacement"
    return Passes(sizes, batch_size or int(sizes.max()), spec.pass_end, repeats)


def _central_batch(spec: TrialSpec, values: Mapping[str, Any]) -> int:
    """Examples in a batch of the server, as in engine/rounds/central_data.py."""
    if spec.task.examples is None:
        return 1
    cohort = spec.clients_per_round or spec.task.clients
    size = values.get("central_batch_size") or (None if spec.batch_size is None else cohort * spec.batch_size)
    passes = _passes(spec, [len(spec.task.central)], size)
    return int(passes.largest[0])
