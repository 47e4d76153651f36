"""The definitions that are written into every result, with their parameters."""

from __future__ import annotations

from typing import Any

from driftline.results.curves import UNITS
from driftline.results.directions import direction
from driftline.results.points import COUNTS_FROM, SETTLED_WITHIN, window

LEDGER_TOLERANCE = 0.05  # largest relative difference of two ledgers that may be compared
LEAST_SEEDS = 3  # seeds that both labels must have for a verdict


def definitions(metric: str, cost: str, rounds: int) -> dict[str, Any]:
    """The meaning of every term in a result, and the parameters of the definitions.

    Args:
        metric: Metric chosen as quality.
        cost: Chosen cost.
        rounds: Budget of a trial in rounds.

    Returns:
        Definitions by term, and ``"parameters"``.
    """
    width, within, half, tolerance = window(rounds), *map(_percent, (SETTLED_WITHIN, COUNTS_FROM, LEDGER_TOLERANCE))
    better = "larger is better" if direction(metric) == "rises" else "smaller is better"
    return {
        "quality": f"{metric} ({better}), averaged over the evaluations of the last {width} rounds",
        "cost": f"{UNITS[cost]}, counted from the start of a trial",
        "tail": "the last quality of a trial",
        "point": f"cost from which the quality stays within {within} of the way from the start to the trial's own "
        f"tail; quality is the tail. A point counts only when its tail has come {half} of the way from the trial's "
        "start to the study's best tail, so a frozen model is no point",
        "frontier": "best quality within a cost over the label's trials, a step function for each seed; quality is "
        "the median over seeds, low and high the smallest and the largest",
        "pareto": "points that no other point of the label beats in cost and quality. Each row of configurations has "
        "the medians over the seeds on which the configuration ended; it is in the Pareto set only if it counts on "
        "more than half of its seeds",
        "hypervolume": "share of the plane that a seed's points dominate: log10 cost from one round (0) to the budget "
        "(1), quality from the start (0) to the study's best tail (1); the median over seeds, low and high beside it",
        "speed": "mean quality over log10 cost up to the last evaluation; what the sampler maximises beside the tail",
        "trials": "points and the frontier are of the confirmation trials of a label (its best configurations, run "
        "again on fresh seeds) as soon as one has finished, and of its search trials until then; see reported",
        "diverged": "trials whose loss became infinite or exploded; counted, shown as diverged, never imputed",
        "ledger": "what all of a label's trials have spent, search and confirmation; granted: what the finished ones "
        "were allowed to spend, a diverged trial with all its rounds",
        "comparison": f"pairs seeds; no verdict when trials or granted cost differ by more than {tolerance}, when the "
        f"bands of the hypervolume overlap, or with fewer than {LEAST_SEEDS} common seeds",
        "parameters": {
            "metric": metric,
            "direction": direction(metric),
            "cost": cost,
            "rounds": rounds,
            "window_rounds": width,
            "settled_within": SETTLED_WITHIN,
            "counts_from": COUNTS_FROM,
            "ledger_tolerance": LEDGER_TOLERANCE,
            "least_seeds": LEAST_SEEDS,
        },
    }


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
