"""What a label was granted and what it has spent: comparisons are fair only between equal ledgers."""

from __future__ import annotations

from collections.abc import Sequence
from operator import add

import numpy as np

from driftline.results.curves import TrialCurve, cost_per_round, finite
from driftline.results.runs import ENDED

SHARED = "shared_gradients"
COUNTERS = ("client_gradients", "bytes_up", "bytes_down", SHARED)
"""Columns whose largest value a ledger adds up."""

_NOTHING = np.zeros(1)


def ledger(curves: Sequence[TrialCurve]) -> dict[str, int]:
    """What all trials of a label have spent so far, in search and confirmation together, whatever their state.

    Returns:
        ``{"trials", "search_trials", "confirmation_trials", "rounds", "client_gradients", "bytes"}``; trials without a
        report are left out, and a counter that was not reported is 0. If trials may have been trained together, also
        ``"shared_gradients"``: those of `client_gradients` that were computed for another trial as well, and count once
        for each of them.
    """
    begun = [curve for curve in curves if curve.rounds.size]
    shared = [curve for curve in begun if SHARED in curve.columns]
    return {
        "trials": len(begun),
        "search_trials": sum(curve.phase == "search" for curve in begun),
        "confirmation_trials": sum(curve.phase == "confirmation" for curve in begun),
        "rounds": sum(curve.rounds_done for curve in begun),
        "client_gradients": round(sum(_largest(begun, "client_gradients"))),
        "bytes": round(sum(map(add, _largest(begun, "bytes_up"), _largest(begun, "bytes_down")))),
        **({SHARED: round(sum(_largest(shared, SHARED)))} if shared else {}),
    }


def granted(curves: Sequence[TrialCurve], cost: str, rungs: Sequence[int], unit: str = "rounds") -> dict[str, float]:
    """What the finished trials of a label were granted: the budget on which a verdict is judged.

    A diverged trial stops early and spends less, but it was granted its whole budget, or in the search the amount until
    its next rung: it counts with this amount times its cost per unit of the budget. If it diverged before its first
    round, the label's median cost per unit is used. A trial stopped at a rung was granted the amount until this rung.

    Args:
        curves: All trials of the label.
        cost: The chosen cost.
        rungs: Rungs of the search, as increasing amounts; the last one is the budget of a trial.
        unit: Unit of the rungs.

    Returns:
        ``{"trials", unit, "cost"}`` over trials that are COMPLETE, STOPPED or DIVERGED.
    """
    finished = [curve for curve in curves if curve.state in ENDED]
    rates = [_rate(curve, cost, unit) for curve in finished]
    known_rates = [rate for rate in rates if rate is not None]
    usual = float(np.median(known_rates)) if known_rates else 0.0
    amounts = [_allowed(curve, rungs, unit) for curve in finished]
    cost_of = [(usual if rate is None else rate) * allowed for rate, allowed in zip(rates, amounts, strict=True)]
    return {"trials": len(finished), unit: sum(amounts), "cost": sum(cost_of)}


def rounds_of(curve: TrialCurve, unit: str, amount: int) -> int:
    """The rounds of a trial with this budget, from the spend of its first rounds; an estimate where clients differ.

    Args:
        curve: The trial.
        unit: Unit of the budget.
        amount: The budget.
    """
    if unit == "rounds":
        return amount
    spent = curve.cost(unit)
    trained = np.flatnonzero((curve.rounds > 0) & (spent > 0))
    if not trained.size:
        return 1
    return max(1, int(amount * curve.rounds[trained[0]] / spent[trained[0]]))


def _rate(curve: TrialCurve, cost: str, unit: str) -> float | None:
    """Mean cost of one unit of the budget; None before the first round."""
    if unit == cost:
        return 1.0
    rate, spent = cost_per_round(curve, cost), cost_per_round(curve, unit)
    return rate / spent if rate is not None and spent else None


def _allowed(curve: TrialCurve, rungs: Sequence[int], unit: str) -> int:
    """What an ended trial was granted.

    A trial stops with the first round that reaches the rung's fraction of its rounds, so that its spend may differ from
    the rung by a round, and more where clients differ: a stopped trial was granted the rung nearest to its spend.
    """
    if curve.state == "COMPLETE" or curve.phase == "confirmation":
        return rungs[-1]
    if unit == "rounds" or not curve.rounds.size:
        return next((rung for rung in rungs if rung >= curve.rounds_done), rungs[-1])
    spent = float(curve.cost(unit)[-1])
    if curve.state == "STOPPED":
        return min(rungs, key=lambda rung: abs(rung - spent))
    per_round = spent / max(curve.rounds_done, 1)
    return next((rung for rung in rungs if rung + per_round > spent), rungs[-1])


def _largest(curves: Sequence[TrialCurve], column: str) -> list[float]:
    """The largest value of a counter in each of these curves, which have reports; 0 where it was not reported."""
    values = [curve.columns.get(column, _NOTHING) for curve in curves]
    starts = np.cumsum([0, *map(len, values)])[:-1]
    return np.maximum.reduceat(finite(np.concatenate(values)), starts).tolist() if values else []  # one pass for all
