"""Is one label better than another? Two claims, each with its own test, and no verdict if a comparison is not fair.

"The methods": one label is better than the other whichever search is run. The differences are paired over independent
searches. Only this claim names a better label.

"The configurations found": what the search has found for one label is better than what it has found for the other. The
search alone chooses, fresh seeds judge, and the differences are paired over seeds.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from driftline.errors import InvalidSpec, NotFound
from driftline.results.curves import Array
from driftline.results.definitions import LEDGER_TOLERANCE, TIE, budget_of
from driftline.results.headline import configurations_text, headline, looks_note, methods_text, not_everywhere
from driftline.results.own_settings import setting_notes
from driftline.results.paired_tests import LEVEL, Paired, Test, band, band_limit, holm, paired
from driftline.results.search_effort import compared
from driftline.study.budget import LEAST_PAIRS
from driftline.study.chance import judged_effort
from trainers import ADVICE, cost_named, nearest, shown

Json = Mapping[str, Any]
_HOLDS_0 = "the interval of the difference holds 0"
SIGNS = "a test by sign flips finds no difference"
UNDECIDED = (_HOLDS_0, SIGNS)
"""Reasons against a verdict that a test could have given."""

MOST_LABELS = 20
"""With more labels, a headline names no pair."""

GIVEN = {"start": "starting points", "prior": "a prior"}
"""What the searches of a label may share, by key of its entry; such searches are not independent of each other."""


@dataclass(frozen=True)
class Family:
    """Corrections over all pairs of labels of a study.

    Attributes:
        holm: Claim -> pair -> (p value, level), Holm's correction of the pairs that can be tested.
        limits: Claim -> limit of the bands along the cost, see `driftline.results.paired_tests.band_limit`.
    """

    holm: Mapping[str, Mapping[frozenset[str], tuple[float, float]]]
    limits: Mapping[str, float]


@dataclass(frozen=True)
class _Claim:
    """A claim about two labels.

    Attributes:
        name: Its key in the result.
        pair: What is paired; also the key of its number.
        plural: The plural of `pair`.
        source: `plural`, with the key of a study that increases their number.
    """

    name: str
    pair: str
    plural: str
    source: str


CLAIMS = (
    _Claim("methods", "search", "searches", "searches (budget.searches)"),
    _Claim("configurations", "seed", "seeds", "seeds (budget.seeds)"),
)
"""The claim about the methods comes first, everywhere."""


def compare(result: Json, a: str, b: str, family: Family | None = None) -> dict[str, Any]:
    """Compares two labels of one result.

    Args:
        result: The document from `frontier_document`.
        a: A label.
        b: Another label.
        family: From `family_of` the same result, if several pairs are compared.

    Returns:
        ``{"a", "b", "verdict", "why", "claims", "efforts", "ranges", "ranges_of", "ledger", "definition"}``. `verdict`
        is about the methods: the better label, or None. `why` is one sentence for each claim, the methods first.
        `claims` has a part for "methods" and for "configurations", each with its own `verdict` (the better label or
        None), `why`, `reasons` (against a verdict), `difference` (a minus b: mean, low, high), `level` of this
        interval, `p`, `p_holm`, `p_signs` (of the test by sign flips), `detectable` (the difference for which the
        interval would have excluded 0 with a probability of 80 %), `pairs`, `trials` (of a search that the claim is
        about; None for all trials of the searches), `exact` (nothing is random), `unfair` (reasons against any verdict)
        and `dependent` (why searches are not independent). `efforts` has the difference after each number of trials,
        see `driftline.results.search_effort`. `ranges` says at which costs the band of the difference excludes 0, and
        which label is better there; it is empty if the comparison is not fair. `ranges_of` names the claim that they
        belong to. Exchanging a and b keeps verdicts and ranges and changes the sign of the differences.

    Raises:
        NotFound: No such label.
        InvalidSpec: The same label twice.
    """
    methods = result["methods"]
    first, second = (_method(methods, label) for label in (a, b))
    if a == b:
        raise InvalidSpec("labels", f"must be two different ones of the study, got {shown(a)} twice")
    parameters = result["definitions"]["parameters"]
    unfair = _unfair(result, a, b)
    corrected = family_of(result) if family is None else family
    claims = {claim.name: _claim(result, claim, a, b, unfair, corrected.holm[claim.name]) for claim in CLAIMS}
    searches = len(claims["methods"]["pairs"])
    claims["methods"]["why"] = methods_text(a, b, claims["methods"])
    claims["configurations"]["why"] = configurations_text(a, b, claims["configurations"], searches)
    ranges_of, cost_ranges = (None, []) if unfair else ranges(result, a, b, corrected)
    why = claims["methods"]["why"] if unfair else " ".join(claims[claim.name]["why"] for claim in CLAIMS)
    winner = claims[ranges_of]["verdict"] if ranges_of else None
    return {
        "a": a,
        "b": b,
        "verdict": claims["methods"]["verdict"],
        "why": " ".join(
            [
                why + not_everywhere(cost_ranges, winner, parameters["cost"]),
                *setting_notes(methods, (a, b)),
                *looks_note(result),
            ]
        ),
        "claims": claims,
        "efforts": [
            {"trials": trials, "difference": test.mean, "low": test.interval(LEVEL)[0], "high": test.interval(LEVEL)[1]}
            for trials, test in compared(first["efforts"], second["efforts"])
        ],
        "ranges": cost_ranges,
        "ranges_of": ranges_of,
        "ledger": {a: first["granted"], b: second["granted"]},
        "definition": result["definitions"]["comparison"],
    }


def study_headline(result: Json) -> str:
    """What a study says about its labels, in one sentence for each claim; "" with fewer than two labels."""
    labels = list(result["methods"])
    if len(labels) > MOST_LABELS:
        return f"Of {len(labels)} labels, compare two at a time: driftline compare."
    family = family_of(result)
    return headline(result, [compare(result, a, b, family) for a, b in itertools.combinations(labels, 2)])


def family_of(result: Json, pairs: Iterable[tuple[str, str]] | None = None) -> Family:
    """The corrections over pairs of labels: over all pairs of a study, unless others were chosen before it ran."""
    corrected, limits = {}, {}
    chosen = list(itertools.combinations(result["methods"], 2) if pairs is None else pairs)
    for claim in CLAIMS:
        p_values, differences = {}, []
        for a, b in chosen:
            rows = _pairs(result, claim, a, b)
            test = _effort(result, claim, a, b)[1] or paired([row["difference"] for row in rows])
            if test is not None and len(rows) >= LEAST_PAIRS:
                p_values[frozenset((a, b))] = test.p
            differences.append({row[claim.pair]: _apart(row) for row in rows})
        corrected[claim.name], limits[claim.name] = holm(p_values), band_limit(differences)
    return Family(corrected, limits)


@dataclass(frozen=True)
class Along:
    """The difference of two labels along the cost, with a band that holds for all costs and pairs together.

    Attributes:
        claim: Name of the claim that the difference belongs to.
        mean: Mean scaled difference at each cost of `driftline.results.document.grid`.
        low, high: The band; in a deterministic study the mean itself, or 0 below 1 % of the scale.
    """

    claim: str
    mean: Array
    low: Array
    high: Array


def along(result: Json, a: str, b: str, family: Family) -> Along | None:
    """The difference along the cost: over searches if there are enough, otherwise over seeds; None without either."""
    for claim in CLAIMS:
        rows = _pairs(result, claim, a, b)
        if not rows:
            continue
        table = np.array([_apart(row) for row in rows])
        mean = table.mean(axis=0)
        if result["deterministic"] and claim.name == "configurations":
            exact = np.where(np.abs(mean) < TIE, 0.0, mean)
            return Along(claim.name, mean, exact, exact)
        bounds = band(table, family.limits[claim.name])
        if bounds is not None:
            return Along(claim.name, mean, *bounds)
    return None


def ranges(result: Json, a: str, b: str, family: Family) -> tuple[str | None, list[dict[str, Any]]]:
    """Divides the costs into ranges by which of two labels is better.

    With 95 % confidence this holds for all costs and all pairs of labels together; see `along`.

    Returns:
        The claim, and ``[{"from", "to", "better"}]``, adjacent ranges over the whole span of costs. `better` is None
        where the band holds 0. None and no ranges without enough pairs.
    """
    difference = along(result, a, b, family)
    return (
        (difference.claim, _ranges(result["scale"], a, b, difference.low, difference.high))
        if difference
        else (None, [])
    )


def _apart(row: Json) -> Array:
    """The difference of a pair of two labels along the cost."""
    difference: Array = np.subtract(*row["along"])
    return difference


def _ranges(scale: Json, a: str, b: str, low: Array, high: Array) -> list[dict[str, Any]]:
    cost = np.geomspace(scale["first"], scale["last"], len(low))
    better = np.where(low > 0, 1, np.where(high < 0, -1, 0))[:-1]
    if not better.size:
        return []
    edges = np.flatnonzero(np.diff(better)) + 1
    names = {1: a, -1: b, 0: None}
    return [
        {"from": float(cost[begin]), "to": float(cost[end]), "better": names[int(better[begin])]}
        for begin, end in zip(np.append(0, edges), np.append(edges, len(better)), strict=True)
    ]


def _claim(
    result: Json,
    claim: _Claim,
    a: str,
    b: str,
    unfair: Sequence[str],
    corrected: Mapping[frozenset[str], tuple[float, float]],
) -> dict[str, Any]:
    rows = _pairs(result, claim, a, b)
    exact = bool(result["deterministic"]) and claim.name == "configurations"
    trials, test = _effort(result, claim, a, b)
    differences = [row["difference"] for row in rows]
    test = test or paired(differences)
    p_holm, level = corrected.get(frozenset((a, b)), (1.0, LEVEL))
    mean = test.mean if test else next(iter(differences), None)
    low, high = test.interval(level) if test else (mean, mean)
    dependent = _dependent(result, a, b) if claim.name == "methods" else []
    reasons = [*unfair, *dependent]
    if exact:
        reasons += _exact_reasons(mean)
    else:
        reasons += _reasons(claim, test, len(rows), p_holm)
    verdict = None if reasons or mean is None else a if mean > 0 else b
    return {
        "verdict": verdict,
        "reasons": reasons,
        "difference": None if mean is None else {"mean": mean, "low": low, "high": high},
        "level": level,
        "p": None if test is None or exact else test.p,
        "p_holm": None if test is None or exact else p_holm,
        "p_signs": test.p_signs if isinstance(test, Paired) and not exact else None,
        "detectable": test.detectable(level) if test and not exact else None,
        "pairs": [{key: value for key, value in row.items() if key != "along"} for row in rows],
        "trials": trials,
        "exact": exact,
        "unfair": list(unfair),
        "dependent": dependent,
    }


def _effort(result: Json, claim: _Claim, a: str, b: str) -> tuple[int | None, Test | None]:
    """The number of trials about which methods are compared, and the test; None where the searches are the sample."""
    if claim.name != "methods":
        return None, None
    first, second = (result["methods"][label]["efforts"] for label in (a, b))
    tests = dict(compared(first, second))
    trials = judged_effort(len(first["configurations"]), len(set(first["searches"]))) if tests else 0
    return (trials, tests[trials]) if trials in tests else (None, None)


def _pairs(result: Json, claim: _Claim, a: str, b: str) -> list[dict[str, Any]]:
    """The paired areas of two labels, with their scaled qualities along the cost."""
    left, right = ({row[claim.pair]: row for row in result["methods"][label]["claims"][claim.name]} for label in (a, b))
    return [
        {
            claim.pair: key,
            "a": left[key]["area"],
            "b": right[key]["area"],
            "difference": left[key]["area"] - right[key]["area"],
            "along": (left[key]["along"], right[key]["along"]),
        }
        for key in sorted(left.keys() & right.keys())
    ]


def _unfair(result: Json, a: str, b: str) -> list[str]:
    """The reasons against any verdict."""
    first, second = result["methods"][a], result["methods"][b]
    reasons = []
    cost = result["definitions"]["parameters"]["cost"]
    if not cost_named(cost).repeatable:
        reasons.append(f"{cost} {ADVICE}")
    for name in ("trials", budget_of(result)[0]):
        left, right = first["granted"][name], second["granted"][name]
        if not max(left, right):
            reasons.append("no trials yet")
            break
        if abs(left - right) > LEDGER_TOLERANCE * max(left, right):
            reasons.append(f"budgets differ: {a} had {left:,} {name.replace('_', ' ')}, {b} had {right:,}")
            break
    phases = first["reported"]["phase"], second["reported"]["phase"]
    if phases[0] != phases[1] and all(phases):
        reasons.append(f"{a} is reported from its {phases[0]} trials, {b} from its {phases[1]} trials: wait for both")
    elif phases[0] == "search" and not result["deterministic"]:
        reasons.append("both labels are reported from search trials, which no fresh seed has judged (budget.seeds)")
    return reasons


def _dependent(result: Json, a: str, b: str) -> list[str]:
    """Why the searches of two labels are not independent of each other."""
    first, second = (result["methods"][label].get("given", {}) for label in (a, b))
    keys = [key for key in ("start", "prior") if first.get(key) != second.get(key)]
    return [f"the searches of a label share {GIVEN[keys[0]]}, and those of {a} and {b} differ"] if keys else []


def _reasons(claim: _Claim, test: Test | None, pairs: int, p_holm: float) -> list[str]:
    """The reasons against a verdict of a paired test."""
    if pairs < LEAST_PAIRS or test is None:
        return [f"it needs at least {LEAST_PAIRS} {claim.source}, and both labels have {pairs}"]
    if not test.error:
        return [f"all {pairs} {claim.plural} give the same difference, which is no evidence"]
    if p_holm > 1 - LEVEL:
        return [_HOLDS_0]
    if isinstance(test, Paired) and test.p_signs > 1 - LEVEL:
        return [SIGNS]
    return []


def _exact_reasons(mean: float | None) -> list[str]:
    if mean is None:
        return ["both labels need configurations on a common seed"]
    return [f"their areas differ by less than {100 * TIE:g} % of the scale: a tie"] if abs(mean) < TIE else []


def _method(methods: Json, label: str) -> Json:
    if label not in methods:
        guess = nearest(label, methods)
        hint = f"; did you mean {shown(guess)}?" if guess else ""
        raise NotFound(f"no label {shown(label)} in this study (have: {', '.join(methods)}){hint}")
    method: Json = methods[label]
    return method
