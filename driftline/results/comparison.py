"""Is one method better than another? Seeds are paired, and there is no verdict if the comparison is not fair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from driftline.errors import NotFound
from driftline.results.curves import Array
from driftline.results.definitions import LEAST_SEEDS, LEDGER_TOLERANCE
from driftline.results.directions import sign
from driftline.results.show.number_text import number
from trainers import nearest, shown


def compare(result: Mapping[str, Any], a: str, b: str) -> dict[str, Any]:
    """Compares two labels of one result.

    Args:
        result: The document from `frontier_document`.
        a: A label.
        b: Another label.

    Returns:
        ``{"a", "b", "verdict", "why", "reasons", "seeds", "difference", "ranges", "ledger", "definition"}``. `verdict`
        is the label with the larger hypervolume, or None, with `reasons`. `seeds` has both hypervolumes of each common
        seed, `difference` the median (a minus b), smallest and largest difference. `ranges` says at which costs the
        bands of the frontiers do not overlap, and which label is better there. Exchanging a and b keeps verdict and
        ranges and changes the sign of the differences.

    Raises:
        NotFound: No such label.
    """
    methods = result["methods"]
    first, second = (_method(methods, label) for label in (a, b))
    parameters = result["definitions"]["parameters"]
    left, right = _volumes(first), _volumes(second)
    common = sorted(left.keys() & right.keys())
    differences = [left[seed] - right[seed] for seed in common]
    reasons = _reasons(a, b, first, second, common, parameters)
    verdict = None if reasons else max(((first["hypervolume"], a), (second["hypervolume"], b)))[1]
    apart = ranges(a, b, first["frontier"], second["frontier"], parameters["metric"])
    return {
        "a": a,
        "b": b,
        "verdict": verdict,
        "why": _why({a: first, b: second}, verdict, reasons, len(common), apart, parameters["cost"]),
        "reasons": reasons,
        "seeds": [
            {"seed": seed, "a": left[seed], "b": right[seed], "difference": difference}
            for seed, difference in zip(common, differences, strict=True)
        ],
        "difference": {
            "median": float(np.median(differences)),
            "low": min(differences),
            "high": max(differences),
        }
        if differences
        else None,
        "ranges": apart,
        "ledger": {a: first["granted"], b: second["granted"]},
        "definition": result["definitions"]["comparison"],
    }


def ranges(
    a: str, b: str, first: Sequence[Mapping[str, float]], second: Sequence[Mapping[str, float]], metric: str
) -> list[dict[str, Any]]:
    """Divides the costs into ranges by which of two frontiers is better with its whole band.

    Args:
        a: Label of `first`.
        b: Label of `second`.
        first: Frontier of `a` with its band.
        second: Frontier of `b` with its band.
        metric: Metric of both; its name says which way is better.

    Returns:
        ``[{"from", "to", "better"}]``, adjacent ranges from one round to the budget. `better` is the label whose whole
        band is better, or None where the bands overlap. Empty if either frontier is empty.
    """
    if not first or not second:
        return []
    cost = np.unique([row["cost"] for row in (*first, *second)])
    worst_a, best_a = _band(first, cost, metric)
    worst_b, best_b = _band(second, cost, metric)
    better = np.where(worst_a > best_b, 1, np.where(worst_b > best_a, -1, 0))[:-1]
    if not better.size:
        return []
    edges = np.flatnonzero(np.diff(better)) + 1
    begins, ends = np.append(0, edges), np.append(edges, len(better))
    names = {1: a, -1: b, 0: None}
    return [
        {"from": float(cost[begin]), "to": float(cost[end]), "better": names[int(better[begin])]}
        for begin, end in zip(begins, ends, strict=True)
    ]


def _band(rows: Sequence[Mapping[str, float]], cost: Array, metric: str) -> tuple[Array, Array]:
    at = np.maximum(np.searchsorted([row["cost"] for row in rows], cost, side="right") - 1, 0)
    low, high = (np.array([row[key] for row in rows])[at] for key in ("low", "high"))
    return (low, high) if sign(metric) > 0 else (-high, -low)


def _method(methods: Mapping[str, Any], label: str) -> Mapping[str, Any]:
    if label not in methods:
        guess = nearest(label, methods)
        hint = f"; did you mean {shown(guess)}?" if guess else ""
        raise NotFound(f"no label {shown(label)} in this study (have: {', '.join(methods)}){hint}")
    found: Mapping[str, Any] = methods[label]
    return found


def _volumes(method: Mapping[str, Any]) -> dict[int, float]:
    return {row["seed"]: row["hypervolume"] for row in method["hypervolume_seeds"]}


def _reasons(
    a: str,
    b: str,
    first: Mapping[str, Any],
    second: Mapping[str, Any],
    common: Sequence[int],
    parameters: Mapping[str, Any],
) -> list[str]:
    """The reasons against a verdict; empty if there can be one."""
    cost = parameters["cost"]
    reasons = []
    if a == b:
        reasons.append(f"a label must be compared with another one, got {a} twice")
    if cost == "seconds":
        reasons.append("seconds depend on the machine and its load: choose rounds, bytes or client_gradients")
    for name, unit in (("trials", "trials"), ("cost", f"{cost} granted")):
        left, right = first["granted"][name], second["granted"][name]
        more = max(left, right)
        if not more or abs(left - right) > LEDGER_TOLERANCE * more:
            reasons.append(
                f"budgets differ: {a} had {left:,.0f} {unit}, {b} had {right:,.0f}" if more else f"no {unit} yet"
            )
    phases = first["reported"]["phase"], second["reported"]["phase"]
    if phases[0] != phases[1] and all(phases):
        reasons.append(f"{a} is reported from its {phases[0]} trials, {b} from its {phases[1]} trials: wait for both")
    if len(common) < LEAST_SEEDS:
        reasons.append(f"a verdict needs at least {LEAST_SEEDS} seeds that both have run, there are {len(common)}")
    bands = first["hypervolume_band"], second["hypervolume_band"]
    if bands[0]["low"] <= bands[1]["high"] and bands[1]["low"] <= bands[0]["high"]:
        shown = " and ".join(
            f"{label} {row['low']:.3f} to {row['high']:.3f}" for label, row in zip((a, b), bands, strict=True)
        )
        reasons.append(f"the bands of the hypervolume overlap: {shown}")
    return reasons


def _why(
    methods: Mapping[str, Any],
    verdict: str | None,
    reasons: Sequence[str],
    seeds: int,
    apart: Sequence[Mapping[str, Any]],
    cost: str,
) -> str:
    if verdict is None:
        return "No verdict: " + "; ".join(reasons) + "."
    other = next(label for label in methods if label != verdict)
    won, lost = (methods[label]["hypervolume_band"] for label in (verdict, other))
    said = (
        f"{verdict} is better than {other}: its hypervolume is {won['low']:.3f} to {won['high']:.3f} over {seeds} "
        f"seeds, against {lost['low']:.3f} to {lost['high']:.3f}, with equal budgets. The bands are "
        "over seeds of the configurations that this search has found; another search may find others."
    )
    where = [f"from {number(row['from'])} to {number(row['to'])}" for row in apart if row["better"] == other]
    return f"{said} Not everywhere: {' and '.join(where)} {cost} {other} is better." if where else said
