"""Whether a study shows what a figure or table of a paper states: agrees, disagrees or undecided.

The numbers are those of `driftline.results.comparison`: paired differences of scaled quality, over searches if there
are at least 6, otherwise over seeds, at 95 % for all statements about one study together. A statement about a cost is
decided by the band along the cost, and one over all costs by the areas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from driftline.results.comparison import CLAIMS, SIGNS, Family, along, compare, family_of
from driftline.results.curves import Array, TrialCurve
from driftline.results.document import grid
from driftline.results.paired_tests import LEVEL, paired, welch
from driftline.results.recommendation import Span
from driftline.results.study_result import StudyResult
from driftline.study.budget import LEAST_PAIRS
from driftline.study.directions import sign
from driftline.study.papers import UNTRAINED, Statement

Json = Mapping[str, Any]
_KEYS = {claim.name: claim.pair for claim in CLAIMS}
Outcome = Literal["agrees", "disagrees", "undecided"]


@dataclass(frozen=True)
class Judgement:
    """What a study says about a statement.

    Attributes:
        statement: The statement in words.
        outcome: "agrees", "disagrees" or "undecided".
        why: The number that decides, with its interval; or why nothing is decided.
    """

    statement: str
    outcome: Outcome
    why: str


def overall(judgements: Iterable[Judgement]) -> Outcome:
    """The outcome of a whole figure: disagrees if one statement disagrees, agrees if all agree."""
    outcomes = {judgement.outcome for judgement in judgements}
    return "disagrees" if "disagrees" in outcomes else "undecided" if outcomes != {"agrees"} else "agrees"


def judged(
    statements: Sequence[Statement],
    read: Callable[[str | None, str | None], StudyResult],
    beside: Callable[[str], StudyResult | None] = lambda panel: None,
) -> list[Judgement]:
    """Judges statements about one study.

    Args:
        statements: The statements.
        read: The result of the study with this quality and cost; None is the study's own.
        beside: The result of another panel's study; None if it was not run.
    """
    by_reading: dict[tuple[str | None, str | None], list[Statement]] = {}
    for statement in statements:
        by_reading.setdefault((statement.quality, statement.cost), []).append(statement)
    judgements = {}
    for reading, group in by_reading.items():
        result = read(*reading)
        document = _with_gains(
            _with_untrained(result.document), [gain for statement in group for gain in statement.gains]
        )
        family = family_of(
            document, dict.fromkeys(_pair(statement) for statement in group if statement.pair or statement.gains)
        )
        for member in group:
            second_result = result if member.beside is None else beside(member.beside)
            outcome = _outcome(member, document, family, result.curves, second_result)
            judgements[member.text] = Judgement(member.text, *outcome)
    return [judgements[statement.text] for statement in statements]


def _outcome(
    statement: Statement, document: Json, family: Family, curves: Sequence[TrialCurve], beside: StudyResult | None
) -> tuple[Outcome, str]:
    if statement.grows is not None:
        metric = document["definitions"]["parameters"]["metric"]
        choose = _largest_trained if statement.limit else _best
        return _grows([choose(statement.grows, label, metric, curves) for label in statement.over or ()], statement)
    if statement.smaller is not None:
        if beside is None:
            return "undecided", f"{statement.beside} was not run"
        first, second = statement.smaller
        first_values = _by_seed(statement, document, first, curves)
        return _smaller(
            first_values, _by_seed(statement, beside.document, second, beside.curves), statement.beside is None
        )
    unfair = [why for a, b in statement.gains for why in compare(document, a, b, family)["claims"]["methods"]["unfair"]]
    if unfair:
        return "undecided", "; ".join(dict.fromkeys(unfair))
    return _compared(statement, *_pair(statement), document, family)


def _pair(statement: Statement) -> tuple[str, str]:
    """The two labels whose difference decides; those of `gains_more` are gains."""
    if statement.pair:
        return statement.pair
    one, other = (_gain(*pair) for pair in statement.gains)
    return one, other


def _compared(statement: Statement, a: str, b: str, document: Json, family: Family) -> tuple[Outcome, str]:
    """Judges `ahead`, `level` or `gains_more`."""
    claims = compare(document, a, b, family)["claims"]
    if claims["methods"]["unfair"]:
        return "undecided", "; ".join(claims["methods"]["unfair"])
    if statement.at is None:
        few = len(claims["methods"]["pairs"]) < LEAST_PAIRS or claims["methods"]["dependent"]
        claim = claims["configurations" if few else "methods"]
        numbers = tuple((claim["difference"] or {}).values())
    elif difference := along(document, a, b, family):
        claim, at = claims[difference.claim], _place(document, statement.at)
        numbers = float(difference.mean[at]), float(difference.low[at]), float(difference.high[at])
    else:
        claim, numbers = claims["configurations"], ()
    if not numbers or not (claim["exact"] or len(claim["pairs"]) >= LEAST_PAIRS):
        return "undecided", f"it needs at least {LEAST_PAIRS} seeds or searches, and has {len(claim['pairs'])}"
    mean, low, high = numbers
    if claim["exact"]:
        why = f"by {mean:+.3f}, and nothing is random"
    else:
        pairs = f"{len(claim['pairs'])} {'searches' if claim is claims['methods'] else 'seeds'}"
        why = f"by {mean:+.3f} ({low:+.3f} to {high:+.3f}) over {pairs}"
    if statement.level is not None:
        return _level(statement.within or 0.0, low, high), why
    if statement.within is not None:
        return _sided(low + statement.within, high + statement.within), why
    if statement.at is None and claim["verdict"] is None:
        return _doubted(_sided(low, high), why, *claim["reasons"])
    return _sided(low, high), why


def _sided(low: float, high: float) -> Outcome:
    """What an interval says of a number that should be positive."""
    return "agrees" if low > 0 else "disagrees" if high < 0 else "undecided"


def _doubted(outcome: Outcome, why: str, *reasons: str) -> tuple[Outcome, str]:
    """Undecided, with the reasons against a verdict if the interval alone would have given this outcome."""
    return "undecided", "; ".join([why, *reasons] if outcome != "undecided" else [why])


def _level(within: float, low: float, high: float) -> Outcome:
    """What an interval says of a number that should lie within a distance of 0."""
    if -within <= low and high <= within:
        return "agrees"
    return "disagrees" if low > within or high < -within else "undecided"


def _place(document: Json, share: float) -> int:
    """Index on the grid of costs of this share of the largest cost."""
    scale = document["scale"]
    costs = grid(Span(scale["first"], scale["last"]))
    return max(int(np.searchsorted(costs, share * scale["last"] * (1 + 1e-9), side="right")) - 1, 0)


def _with_untrained(document: Json) -> Json:
    """The document with the untrained model as a label: 0 on the scale, on the seeds and searches of the first one."""
    first = next(iter(document["methods"].values()))
    still = {
        name: [{**row, "area": 0.0, "along": [0.0] * len(row["along"])} for row in rows]
        for name, rows in first["claims"].items()
    }
    return {**document, "methods": {**document["methods"], UNTRAINED: {**first, "claims": still, "efforts": None}}}


def _gain(a: str, b: str) -> str:
    """Name of the difference of two labels as a label; no label has a line break."""
    return f"{a}\n{b}"


def _with_gains(document: Json, pairs: Iterable[tuple[str, str]]) -> Json:
    """The document with differences of two labels, in area and in quality along the cost, as further labels.

    Comparing two such labels compares two differences, with the same tests, corrections and bands.
    """
    methods = dict(document["methods"])
    for a, b in pairs:
        first, second = methods[a], methods[b]
        claims = {
            claim: [
                {
                    **row,
                    "area": row["area"] - second_row["area"],
                    "along": np.subtract(row["along"], second_row["along"]).tolist(),
                }
                for row in rows
                for second_row in second["claims"][claim]
                if row[_KEYS[claim]] == second_row[_KEYS[claim]]
            ]
            for claim, rows in first["claims"].items()
        }
        methods[_gain(a, b)] = {**first, "claims": claims, "efforts": None}
    return {**document, "methods": methods}


def _by_seed(statement: Statement, document: Json, label: str, curves: Sequence[TrialCurve]) -> dict[int, float]:
    """For each seed of a label's reported trials, the mean over them of what is compared; without diverged trials."""
    phase = document["methods"][label]["reported"]["phase"]
    by_seed: dict[int, list[float]] = {}
    for curve in curves:
        if (curve.label, curve.phase, curve.state) == (label, phase, "COMPLETE"):
            rounds, values = curve.metric(statement.metric or "")
            trained = values[rounds > 0]
            if trained.size:
                by_seed.setdefault(curve.seed, []).append(float(trained.std() if statement.spread else trained.mean()))
    return {seed: float(np.mean(values)) for seed, values in by_seed.items()}


def _smaller(one: Mapping[int, float], other: Mapping[int, float], pairs: bool) -> tuple[Outcome, str]:
    """Judges `smaller`: values by seed, compared by their ratios if all are positive.

    Labels of one study are paired by seed. Those of two are independent: Welch's test.
    """
    seeds = one.keys() & other.keys()
    kept = [[values[seed] for seed in sorted(seeds if pairs else values)] for values in (one, other)]
    least = min(map(len, kept))
    if least < LEAST_PAIRS:
        without = "neither diverged" if pairs else "each did not diverge"
        return "undecided", f"it needs at least {LEAST_PAIRS} seeds on which {without}, and has {least}"
    ratios = min(map(min, kept)) > 0
    first, second = (np.log(values) if ratios else np.array(values) for values in kept)
    by_seed = paired((first - second).tolist()) if pairs else None
    test, p = (by_seed, by_seed.p_signs) if by_seed else (unpaired := welch(first, second), unpaired.p)
    low, high = test.interval(LEVEL)
    numbers = [f"{math.exp(value):.3g}" if ratios else f"{value:+.3g}" for value in (test.mean, low, high)]
    size = "{} times ({} to {})" if ratios else "by {} ({} to {})"
    outcome, why = _sided(-high, -low), f"{size.format(*numbers)} over {least} seeds{'' if pairs else ' each'}"
    return (outcome, why) if p <= 1 - LEVEL else _doubted(outcome, why, SIGNS)


def _grows(chosen: Sequence[Mapping[int, float]], statement: Statement) -> tuple[Outcome, str]:
    """Judges `grows`: in each search, the slope of the chosen value's logarithm from label to label.

    Values of a grid may differ by the same steps in all searches, so that an interval without width needs a sign test.
    """
    searches = sorted(set.intersection(*map(set, chosen)))
    if len(searches) < LEAST_PAIRS:
        return "undecided", f"it needs at least {LEAST_PAIRS} searches, and has {len(searches)}"
    table = np.log10([[values[search] for search in searches] for values in chosen])
    steps = np.arange(len(chosen)) - (len(chosen) - 1) / 2
    slopes = steps @ table / (steps @ steps)
    test = paired(slopes.tolist())
    assert test is not None
    low, high = test.interval(LEVEL)
    medians = zip(statement.over or (), 10 ** np.median(table, axis=1), strict=True)
    listed = ", ".join(f"{label} {value:.3g}" for label, value in medians)
    mean, least, most = (f"{10**value:.3g}" for value in (test.mean, low, high))
    why = f"{mean} times a label ({least} to {most}) over {len(searches)} searches; {listed}"
    outcome, count, one_way = _sided(low, high), len(searches), _of_one_sign(slopes)
    if _signs_p(count, one_way) <= 1 - LEVEL:
        return outcome, why
    return _doubted(outcome, why, f"only {one_way} of {count} slopes have one sign, too few for a sign test")


def _of_one_sign(values: Array) -> int:
    """How many values have the sign that is more frequent; those of 0 have none."""
    return max(int((values > 1e-9).sum()), int((values < -1e-9).sum()))


def _signs_p(count: int, of_one_sign: int) -> float:
    """Two-sided p value of the sign test: `of_one_sign` of `count` values have the more frequent sign."""
    return min(1.0, sum(math.comb(count, more) for more in range(of_one_sign, count + 1)) * 2.0 ** (1 - count))


def _best(name: str, label: str, metric: str, curves: Sequence[TrialCurve]) -> dict[int, float]:
    """For each search of a label, the positive value of a hyperparameter in the search trial that ended best."""
    best: dict[int, tuple[float, float]] = {}
    for search, value, _, end in _ends(name, label, metric, curves):
        best[search] = max((end, value), best.get(search, (-math.inf, 0.0)))
    return {search: value for search, (_, value) in best.items()}


def _largest_trained(name: str, label: str, metric: str, curves: Sequence[TrialCurve]) -> dict[int, float]:
    """For each search of a label, the largest value of a hyperparameter whose trial ended better than it began.

    Where no larger value was tried, this is a lower bound. Searches without such a trial are left out.
    """
    largest: dict[int, float] = {}
    for search, value, start, end in _ends(name, label, metric, curves):
        if end > start:
            largest[search] = max(value, largest.get(search, 0.0))
    return largest


def _ends(
    name: str, label: str, metric: str, curves: Sequence[TrialCurve]
) -> Iterator[tuple[int, float, float, float]]:
    """(search, value, quality at first, quality in the end) of a label's complete search trials; higher is better."""
    for curve in curves:
        value = curve.hyperparameters.get(name, 0)
        ended = (curve.label, curve.phase, curve.state) == (label, "search", "COMPLETE")
        if ended and value > 0 and curve.reports(metric):
            _, values, smoothed = curve.smoothed(metric)
            yield curve.search, value, sign(metric) * float(values[0]), sign(metric) * float(smoothed[-1])
