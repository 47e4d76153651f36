"""What many simulated studies conclude."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from driftline.results.comparison import CLAIMS, UNDECIDED, compare
from driftline.results.curves import TrialCurve
from service.replay.simulation import Replay

Json = dict[str, Any]


def share(count: int, studies: int) -> Json:
    """A share of studies with its exact 95 % interval (Clopper and Pearson).

    Examples:
        >>> {name: round(value, 3) for name, value in share(5, 100).items()}
        {'count': 5, 'share': 0.05, 'low': 0.016, 'high': 0.113}
    """
    from scipy.special import betaincinv  # slow to import

    low = float(betaincinv(count, studies - count + 1, 0.025)) if count else 0.0
    high = float(betaincinv(count + 1, studies - count, 0.975)) if count < studies else 1.0
    return {"count": count, "share": count / studies, "low": low, "high": high}


def possible(claim: Mapping[str, Any]) -> bool:
    """Whether a claim of `compare` has a verdict, or has none only because the difference is too small."""
    return claim["verdict"] is not None or claim["reasons"] in [[reason] for reason in UNDECIDED]


def summary(
    replay: Replay, studies: Iterable[int], seen: Callable[[list[TrialCurve], Json, Json], None] | None = None
) -> Json:
    """Simulates studies and counts their conclusions.

    Args:
        replay: Simulates them.
        studies: Their seeds.
        seen: Called with the trials of each study, its result, and the comparisons of all pairs of labels (by "A,B").

    Returns:
        ``{"studies", "seconds", "areas": {NAME: {"mean", "low", "high"}}, "pairs": [{"a", "b", "claims": {CLAIM:
        {"possible", "a", "b", "difference", "detectable"}}}]}``. Low and high of an area hold 95 % of the studies;
        "possible", "a" and "b" (verdicts for either label) are shares with intervals; "difference" is the mean over
        studies, "detectable" the median.
    """
    started, count = time.perf_counter(), 0
    areas: dict[str, list[float]] = {name: [] for name in replay.names}
    pairs = list(itertools.combinations(replay.names, 2))
    claims: dict[tuple[str, str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for study in studies:
        trials = replay.trials(study)
        document = replay.document(trials)
        compared = {f"{a},{b}": compare(document, a, b) for a, b in pairs}
        for name in replay.names:
            areas[name].append(document["methods"][name]["area"])
        for a, b in pairs:
            for claim in CLAIMS:
                outcome = compared[f"{a},{b}"]["claims"][claim.name]
                claims[a, b, claim.name].append({key: value for key, value in outcome.items() if key != "pairs"})
        if seen is not None:
            seen(trials, document, compared)
        count += 1
    return {
        "studies": count,
        "seconds": time.perf_counter() - started,
        "areas": {name: _spread(values) for name, values in areas.items()},
        "pairs": [
            {"a": a, "b": b, "claims": {claim.name: _counted(claims[a, b, claim.name], a, b) for claim in CLAIMS}}
            for a, b in pairs
        ],
    }


def _spread(values: list[float]) -> Json:
    low, high = np.quantile(values, [0.025, 0.975]).tolist()
    return {"mean": float(np.mean(values)), "low": low, "high": high}


def _counted(claims: list[Mapping[str, Any]], a: str, b: str) -> Json:
    detectable = [claim["detectable"] for claim in claims if claim["detectable"]]
    differences = [claim["difference"]["mean"] for claim in claims if claim["difference"] is not None]
    return {
        "possible": share(sum(possible(claim) for claim in claims), len(claims)),
        "a": share(sum(claim["verdict"] == a for claim in claims), len(claims)),
        "b": share(sum(claim["verdict"] == b for claim in claims), len(claims)),
        "difference": float(np.mean(differences)) if differences else None,
        "detectable": float(np.median(detectable)) if detectable else None,
    }
