"""The definitions that are written into every result, with their parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from driftline.results.curves import WINDOW
from driftline.results.importance import BEST
from driftline.results.modelled_time import Time
from driftline.results.paired_tests import LEVEL, POWER
from driftline.results.scale import RESOLUTION
from driftline.results.settling import LEARNED_FROM, SETTLED_WITHIN
from driftline.study.budget import LEAST_PAIRS
from driftline.study.directions import direction
from trainers import cost_named, reporting

LEDGER_TOLERANCE = 0.05  # largest relative difference of two ledgers that may be compared
TIE = 0.01  # of the scale: a smaller difference of two areas of a deterministic study is a tie

_TEST = (
    "{test} of the recommended run, on examples by which nothing was chosen: smoothed as the quality, the mean over "
    "the same seeds, on the axis, without a correction"
)


def budget_of(result: Mapping[str, Any]) -> tuple[str, int]:
    """(unit, amount) of the budget of a trial in a result."""
    parameters = result["definitions"]["parameters"]
    unit = str(parameters.get("unit", "rounds"))
    return unit, parameters[unit]


def definitions(metric: str, cost: str, amount: int, time: Time | None = None, unit: str = "rounds") -> dict[str, Any]:
    """The meaning of every term in a result, and the parameters of the definitions.

    Args:
        metric: Metric chosen as quality.
        cost: Chosen cost.
        amount: Budget of a trial.
        time: How the cost "time" is modelled.
        unit: The budget's unit, which is also the name of its parameter.

    Returns:
        Definitions by term, and ``"parameters"``.
    """
    within, half, tolerance, tie = map(_percent, (SETTLED_WITHIN, LEARNED_FROM, LEDGER_TOLERANCE, TIE))
    counted = cost_named(cost).unit if time is None else _modelled(time)
    better = "larger is better" if direction(metric) == "rises" else "smaller is better"
    return {
        "quality": f"{metric} ({better}), averaged over the evaluations of the last max(1, t / 10) rounds at round t. "
        "From the round in which a trial diverges it is that of the untrained model; beyond its last round a trial "
        "keeps its last quality",
        "cost": f"{counted}, counted from the start of a trial. The cost of a configuration at a round is the mean "
        "over the seeds that choose. Costs run from the cheapest first round to the largest cost that configurations "
        "of every label reach, without labels all of whose runs diverged (scale: first, last)",
        "axis": "qualities are compared on a logarithm if the metric falls and is positive (scale: logarithmic), "
        "otherwise as they are",
        "recommendations": "for each cost, the configuration to run and the round to stop at, among the confirmed "
        "configurations of all searches: of all rounds that the cost pays for, the best mean over the configuration's "
        "seeds, on the axis; of equals the one with fewer rounds, then the lower number. With one confirmation seed, "
        "or none, the search chooses. A configuration is not recommended from the round in which it diverged on a "
        "choosing seed. A recommendation holds until the next begins",
        "frontier": "what to expect of the recommendations. quality is the mean of the recommended run over its own "
        "seeds, on the axis, made worse by the label's optimism: one run has one number. low and high are the smallest "
        "and the largest of these seeds. With one confirmation seed it is that seed's; without confirmation it is the "
        "search's own best, which flatters (see reported)",
        **({} if (test := reporting(metric)) is None else {"test": _TEST.format(test=test)}),
        "optimism": "how much better a recommended run looks on the seeds that choose it than on another one: the "
        "difference on the axis between the choosing seeds' mean and the cross-fitted quality, averaged over the seeds "
        "and over log10 cost, times (K - 1) / K with K seeds, at least 0. A factor on a logarithmic axis, otherwise an "
        "amount",
        "cross_fitted": "for each confirmation seed, the quality on this seed of what the others recommend, by the "
        "same rule, within its search: no number is from a seed that helped to choose. Areas and comparisons use it. "
        "With one confirmation seed, the search chooses",
        "area": "mean over log10 cost of the scaled cross-fitted quality of a seed: (q - start) / (best - start) on "
        "the axis, not clipped. One scale for all labels and seeds: start is the mean quality of untrained models, "
        "best the best median final cross-fitted quality of a label, unless objective.scale fixes both. area is the "
        "mean over seeds, low and high the smallest and largest. Areas of different scales cannot be compared",
        "settles": f"cost from which a run's quality stays within {within} of the way from start to end, on the axis; "
        "the median over the seeds without divergence",
        "ends": "last quality of a run; the median over the seeds without divergence",
        "pareto": "configurations that no other configuration of the label beats in settles and ends, among those that "
        f"diverged on no seed and came at least {half} of the longest way from start to end in the study",
        "speed": "mean quality over log10 cost up to the last evaluation; what the sampler maximises beside the last "
        "quality",
        "reported": "the confirmation trials of a label (its best configurations, run again on fresh seeds) as soon as "
        "one has ended, its search trials until then; incomplete counts configurations left out because a seed is "
        "missing",
        "diverged": "trials whose loss became infinite or exploded",
        "ledger": "what all of a label's trials have spent, search and confirmation, each as if it were trained alone; "
        "shared_gradients: how many of its client_gradients were computed for another trial as well, because the "
        "trials differed only in what their schedules did later; granted: what the ended ones were "
        "allowed to spend, a diverged trial with all its rounds, or with those until its next rung",
        "comparison": "the configurations found: the search alone chooses, fresh seeds judge, paired over seeds. The "
        "methods: paired over independent searches. A verdict if the paired t interval of the difference of the areas "
        f"excludes 0 at {_percent(LEVEL)} after Holm's correction over the pairs of labels, if a test by sign flips of "
        f"the differences agrees at {_percent(LEVEL)}, with at least {LEAST_PAIRS} pairs, and if the "
        f"trials, all granted the same {unit.replace('_', ' ')}, agree within {tolerance}. Where "
        "nothing is random and all seeds give equal curves, areas are compared as they are, and a difference below "
        f"{tie} of the scale is a tie. Seconds give no verdict",
        "ranges": "costs at which a band of the difference excludes 0, from the largest statistic over "
        "all costs and all pairs of labels under sign flips of the searches or seeds",
        "importance": "PED-ANOVA of the search trials of a label: how unlike those of all trials the values are among "
        f"the best {_percent(BEST)}, less what as many random trials give, as shares of sum 1. quality: best within "
        "the largest cost; speed: mean of what is reached over log10 cost; along: best within a cost. No share where "
        f"random trials give as much in more than {_percent(1 - LEVEL)} of draws: too few trials to tell",
        "parameters": {
            "metric": metric,
            "direction": direction(metric),
            "cost": cost,
            **({} if time is None else {"time": time.to_json()}),
            "unit": unit,
            unit: amount,
            "window": WINDOW,
            "resolution": RESOLUTION,
            "settled_within": SETTLED_WITHIN,
            "learned_from": LEARNED_FROM,
            "ledger_tolerance": LEDGER_TOLERANCE,
            "least_pairs": LEAST_PAIRS,
            "level": LEVEL,
            "power": POWER,
            "tie": TIE,
            "best_trials": BEST,
        },
    }


def _modelled(time: Time) -> str:
    return (
        f"modelled seconds ({time}): the computation of the slowest client and the latency of every exchange, and a "
        "client's share of the bytes over the bandwidth"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
