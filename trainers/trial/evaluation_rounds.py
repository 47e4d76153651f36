"""The rounds after which a trial is evaluated, and their share of its work."""

from __future__ import annotations

from functools import lru_cache

from trainers.registry import reports
from trainers.trial.document import TrialSpec
from trainers.trial.spend import round_examples

GROWTH = 20
"""On the automatic grid, the evaluation after round t is followed by one after at most max(1, t / 20) rounds."""

_GRADIENT_WORK = 3.0  # cost of a gradient, in forward passes


@lru_cache(maxsize=64)
def evaluation_grid(rounds: int) -> frozenset[int]:
    """The rounds after which ``eval_every: auto`` evaluates, from 0 to the last.

    Round t is followed by max(t + 1, floor(1.05 t)): every round up to 40, then about 14 evaluations whenever the
    rounds double. The grid depends on the round alone. All trials of all tasks therefore share it, on any machine, and
    a longer budget only adds rounds.

    Args:
        rounds: rounds of the trial.

    Examples:
        >>> sorted(evaluation_grid(47))[-5:]
        [40, 42, 44, 46, 47]
    """
    grid, last = {rounds}, 0
    while last < rounds:
        grid.add(last)
        last += max(1, last // GROWTH)
    return frozenset(grid)


def is_evaluated(number: int, rounds: int, eval_every: int | str) -> bool:
    """Whether a trial is evaluated after this round.

    Args:
        number: server updates so far.
        rounds: rounds of the trial.
        eval_every: rounds between evaluations, or "auto" for `evaluation_grid`.
    """
    if isinstance(eval_every, str):
        return number in evaluation_grid(rounds)
    return number % eval_every == 0 or number == rounds


def evaluation_work(spec: TrialSpec) -> tuple[float, float]:
    """(work of all evaluations, work of all local training) of a trial or pack, in forward passes of one example.

    The counts follow from the document alone; nothing is built or measured. A gradient costs three forward passes. An
    evaluation costs the test examples, and the passes of its reports over the training examples. Evaluation after
    adaptation is left out.

    Args:
        spec: one trial or several.
    """
    sizes = spec.task.examples
    parts = (spec.task.test or (), getattr(spec.task, "validation", None) or ())
    held_out = float(sum(len(rows) for part in parts for rows in part))
    if spec.evaluation is not None:
        held_out *= spec.evaluation.clients / len(spec.task.test or ())
    passes = sum(reports()[name].PASSES for name in spec.report if name in reports())
    evaluation = held_out + (0.0 if sizes is None else passes * float(sizes.sum()))
    every = spec.eval_every
    evaluations = len(evaluation_grid(spec.rounds)) if isinstance(every, str) else 1 - -spec.rounds // every
    trained = sum(round_examples(spec, member) for member in range(spec.members))
    return spec.members * evaluations * evaluation, spec.rounds * trained * _GRADIENT_WORK
