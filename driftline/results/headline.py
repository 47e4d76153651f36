"""What a study says about its labels in one sentence: the methods first, then the configurations found.

The page, the picture, the table, `compare` and MLflow show this sentence. It names a better method only where a test
over at least 6 searches does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from driftline.results.curves import unit
from driftline.results.show.number_text import whole_range
from driftline.study.budget import LEAST_PAIRS

Json = Mapping[str, Any]
MOST_PAIRS = 3  # pairs of labels that a headline names


def methods_text(a: str, b: str, claim: Json) -> str:
    """Which of two methods is better, or why this is not decided."""
    pairs = len(claim["pairs"])
    if claim["verdict"]:
        return (
            f"{claim['verdict']} beats {_other(a, b, claim)}{_after(claim)}: by {_size(claim)} over {pairs} searches."
        )
    ahead = f": {_ahead(a, b, claim)}" if not _barred(claim) and claim["detectable"] and pairs >= LEAST_PAIRS else ""
    return f"{a} or {b}{_after(claim)}? Not decided{_undecided(claim)}{ahead}."


def configurations_text(a: str, b: str, claim: Json, searches: int) -> str:
    """Whether the configurations that the searches found for one label are better than those for the other."""
    where = _these(searches)
    if claim["verdict"]:
        exactly = ", and nothing is random" if claim["exact"] else ""
        return f"{where} the configurations found for {claim['verdict']} did better by {_size(claim)}{exactly}."
    if claim["difference"] is None:
        return f"{where} the configurations found cannot be compared: no seed has judged both."
    if claim["exact"]:
        return f"{where} the configurations found are equally good: {'; '.join(claim['reasons'])}."
    if len(claim["pairs"]) < LEAST_PAIRS:
        return f"{where} {_count(len(claim['pairs']), 'seed')} cannot tell the configurations found apart (needs 6)."
    if not claim["detectable"]:
        return f"{where} the configurations found cannot be told apart: {'; '.join(claim['reasons'])}."
    return f"{where} the configurations found cannot be told apart: {_ahead(a, b, claim)}."


def not_everywhere(ranges: Sequence[Json], winner: str | None, cost: str) -> str:
    """A sentence about the costs at which the other label is better; "" if there are none."""
    contrary = [(span, better) for span, better in ranges_text(ranges, cost) if winner and better not in (None, winner)]
    spans = " and ".join(span for span, _ in contrary)
    return f" Not everywhere: from {spans} {unit(cost)} {contrary[0][1]} is better." if contrary else ""


def ranges_text(ranges: Sequence[Json], cost: str) -> list[tuple[str, str | None]]:
    """``17 to 66`` and the better label for each range that holds a cost, in whole numbers where these are counted."""
    texts = []
    for row in ranges:
        end = math.nextafter(row["to"], math.inf) if row is ranges[-1] else row["to"]
        if span := whole_range(row["from"], end, cost):
            texts.append((span, row["better"]))
    return texts


def looks_note(result: Json) -> list[str]:
    """A sentence if a study was extended after it had results; otherwise none."""
    looks = result.get("trial_list", {}).get("looks", 1)
    if looks < 2:
        return []
    return [f"The study was extended: this is look {looks} at its results, and 95 % is for one look."]


def efforts_text(a: str, b: str, efforts: Sequence[Json]) -> list[str]:
    """``after 8 trials: fedavg by 0.046 (0.012 to 0.080)`` for each number of trials of a search."""
    rows = []
    for row in efforts:
        turn = 1.0 if row["difference"] >= 0 else -1.0
        low, high = sorted((turn * row["low"], turn * row["high"]))
        size = f"{turn * row['difference']:.3f} ({low:.3f} to {high:.3f})"
        rows.append(f"after {_count(row['trials'], 'trial')}: {a if turn > 0 else b} by {size}")
    return rows


def order_text(a: str, b: str, efforts: Sequence[Json]) -> str:
    """Which label is ahead after how many trials of a search, and whether this is more than luck.

    Examples:
        >>> rows = [(1, 0.2, 0.1, 0.3), (4, 0.02, -0.1, 0.14), (8, -0.3, -0.4, -0.2)]
        >>> keys = ("trials", "difference", "low", "high")
        >>> order_text("prox", "avg", [dict(zip(keys, row)) for row in rows])
        'prox is ahead of avg after 1 and 4 trials (beyond luck after 1 trial), then avg after 8 trials (beyond luck).'
    """
    clauses: list[str] = []
    for leader, group in groupby(efforts, key=lambda row: a if row["difference"] >= 0 else b):
        rows = list(group)
        sure = [row["trials"] for row in rows if row["low"] > 0 or row["high"] < 0]
        luck = "beyond luck" if sure else "which may be luck"
        after = f" after {_trials(sure)}" if 0 < len(sure) < len(rows) else ""
        ahead = f"then {leader}" if clauses else f"{leader} is ahead of {b if leader == a else a}"
        clauses.append(f"{ahead} after {_trials([row['trials'] for row in rows])} ({luck}{after})")
    return f"{', '.join(clauses)}."


def _trials(counts: Sequence[int]) -> str:
    *others, last = counts
    listed = f"{', '.join(map(str, others))} and " if others else ""
    return f"{listed}{_count(last, 'trial')}"


def headline(result: Json, comparisons: Sequence[Json]) -> str:
    """One sentence about the methods, and one about the configurations found; "" with fewer than two labels.

    Args:
        result: The document from `frontier_document`.
        comparisons: From `driftline.results.comparison.compare`, of all pairs of its labels.
    """
    if not comparisons:
        return ""
    if len(comparisons) == 1:
        return str(comparisons[0]["why"])
    return " ".join([_of_several(list(result["methods"]), comparisons), *looks_note(result)])


def _of_several(labels: Sequence[str], comparisons: Sequence[Json]) -> str:
    claims = [(comparison["a"], comparison["b"], comparison["claims"]["methods"]) for comparison in comparisons]
    decided = [methods_text(a, b, claim) for a, b, claim in claims if claim["verdict"]]
    searches = min(len(claim["pairs"]) for _, _, claim in claims)
    reasons = {_undecided(claim) for _, _, claim in claims}
    text = " ".join(decided[:MOST_PAIRS])
    if more := len(decided[MOST_PAIRS:]):
        text += f" {_count(more, 'more pair')} {'is' if more == 1 else 'are'} decided (see Comparisons)."
    if not decided:
        why = reasons.pop() if len(reasons) == 1 else f" for any of {len(claims)} pairs"
        text = f"{', '.join(labels[:-1])} or {labels[-1]}? Not decided{why}."
    elif len(decided) < len(claims):
        others = len(claims) - len(decided)
        text += f" The other {'pair' if others == 1 else f'{others} pairs'} of methods: not decided."
    configuration_claims = [
        (comparison["a"], comparison["b"], comparison["claims"]["configurations"]) for comparison in comparisons
    ]
    better = [
        f"those for {claim['verdict']} did better than those for {_other(a, b, claim)} by {_size(claim)}"
        for a, b, claim in configuration_claims
        if claim["verdict"]
    ]
    if all(claim["unfair"] for _, _, claim in claims):
        return text
    if not better:
        return f"{text} {_these(searches)} no configurations found can be told apart."
    listed = "; ".join(better[:MOST_PAIRS])
    if more := len(better[MOST_PAIRS:]):
        listed += f"; and {more} more (see Comparisons)"
    return f"{text} {_these(searches)}, of the configurations found, {listed}."


def _undecided(claim: Json) -> str:
    pairs = len(claim["pairs"])
    if barred := _barred(claim):
        return f": {'; '.join(barred)}"
    if pairs < LEAST_PAIRS:
        return f": {'one search' if pairs == 1 else f'{pairs} searches'} each (needs {LEAST_PAIRS})"
    return _over(pairs) + (f": {'; '.join(claim['reasons'])}" if not claim["detectable"] else "")


def _barred(claim: Json) -> list[str]:
    """The reasons against any verdict, whatever the numbers."""
    return [*claim["unfair"], *claim["dependent"]]


def _after(claim: Json) -> str:
    return f" after {claim['trials']} trials" if claim["trials"] else ""


def _over(searches: int) -> str:
    return f" over {searches} searches"


def _these(searches: int) -> str:
    return f"In these {searches} searches" if searches > 1 else "In this search"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _other(a: str, b: str, claim: Json) -> str:
    return b if claim["verdict"] == a else a


def _ahead(a: str, b: str, claim: Json) -> str:
    leader = a if claim["difference"]["mean"] >= 0 else b
    return (
        f"{leader} is ahead by {_size(claim)}, which may be luck; a difference of {claim['detectable']:.3f} would have "
        "been found with a probability of 80 %"
    )


def _size(claim: Json) -> str:
    """The size of a difference of areas with its interval, seen from the better label."""
    difference = claim["difference"]
    turn = 1.0 if difference["mean"] >= 0 else -1.0
    low, high = sorted((turn * difference["low"], turn * difference["high"]))
    size = f"{abs(difference['mean']):.3f}"
    return size if claim["exact"] else f"{size} ({low:.3f} to {high:.3f})"
