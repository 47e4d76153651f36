"""Published statements about DiLoCo, each decided from outcomes: agrees, disagrees or undecided.

A claim has one number a seed, which is above 0 if the claim holds. It agrees if both of the paired tests of
`driftline.results.paired_tests` say so at 5 %, as a verdict of `driftline compare`. A claim that something does not
matter (`within`) agrees if its interval lies within a range around 0. A statement agrees if all of its claims do, and
disagrees if one of them does after Holm's correction over all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from benchmarks.diloco.cells import BATCH, FEW_RATES, PARAMETERS, STEPS, TOKENS
from benchmarks.diloco.outcomes import Outcomes, Setting, Shared, slope
from driftline.results.curves import Array
from driftline.results.paired_tests import LEVEL, Paired, holm, paired
from driftline.study.budget import LEAST_PAIRS

Verdict = Literal["agrees", "disagrees", "undecided"]
SMALLEST, *_, LARGEST = sorted(PARAMETERS)
SAME = 0.5
"""Octaves: best rates that differ by less, a factor of 1.41, count as the same."""
_PERCENT = 100  # of log losses


@dataclass(frozen=True)
class Claim:
    """Something that should be above 0, or within a range around it.

    Attributes:
        text: What it says, with the unit of its values.
        values: One a seed.
        within: The range, for claims that something does not matter.
    """

    text: str
    values: Array
    within: float | None = None


@dataclass(frozen=True)
class Decided:
    """A claim with what decides it.

    Attributes:
        claim: The claim.
        test: The paired tests of its values.
        low, high: The interval at 95 %.
        verdict: Of the claim alone.
    """

    claim: Claim
    test: Paired
    low: float
    high: float
    verdict: Verdict


@dataclass(frozen=True)
class Statement:
    """A published statement.

    Attributes:
        name: As in docs/diloco.md.
        text: What it says.
        source: Where it was published.
        runs: Which settings it needs; each of these, values by field as for `Setting.has`.
        claims: The claims, from the outcomes that it needs.
    """

    name: str
    text: str
    source: str
    runs: tuple[Mapping[str, Any], ...]
    claims: Callable[[Shared], list[Claim]]

    def needed(self, planned: Sequence[Setting]) -> list[Setting]:
        """Those of the planned settings that it needs."""
        return sorted({setting for setting in planned if any(setting.has(given) for given in self.runs)})


@dataclass(frozen=True)
class Decision:
    """What the outcomes say of a statement.

    Attributes:
        verdict: agrees, disagrees or undecided.
        seeds: On how many.
        claims: The claims; empty with fewer than two seeds.
    """

    verdict: Verdict
    seeds: int
    claims: tuple[Decided, ...]


def decide(statement: Statement, outcomes: Outcomes, planned: Sequence[Setting]) -> Decision:
    """Decides a statement on the seeds on which all that it needs has ended."""
    used = outcomes.whole(statement.needed(planned))
    if used.seeds < 2:
        return Decision("undecided", used.seeds, ())
    return judge(statement.claims(used))


def judge(claims: Sequence[Claim]) -> Decision:
    """The verdict over all claims of a statement."""
    tests = [paired(claim.values.tolist()) for claim in claims]
    corrected = holm({number: test.p for number, test in enumerate(tests) if test is not None})
    decided = []
    refuted = False
    for number, (claim, test) in enumerate(zip(claims, tests, strict=True)):
        assert test is not None
        low, high = test.interval(LEVEL)
        verdict = _verdict(claim, test, low, high)
        decided.append(Decided(claim, test, low, high, verdict))
        refuted |= verdict == "disagrees" and corrected[number][0] < 1 - LEVEL
    agrees = all(each.verdict == "agrees" for each in decided)
    verdict_of_all: Verdict = "agrees" if agrees else "disagrees" if refuted else "undecided"
    return Decision(verdict_of_all, len(claims[0].values), tuple(decided))


def _verdict(claim: Claim, test: Paired, low: float, high: float) -> Verdict:
    if len(claim.values) < LEAST_PAIRS or not test.error:
        return "undecided"
    if claim.within is not None and -claim.within <= low and high <= claim.within:
        return "agrees"
    if test.p >= 1 - LEVEL or test.p_signs >= 1 - LEVEL:
        return "undecided"
    return "agrees" if claim.within is None and test.mean > 0 else "disagrees"


def _mean(rows: Sequence[Array]) -> Array:
    return np.asarray(np.mean(rows, axis=0))


def _growth_with_batch(runs: Shared) -> list[Claim]:
    gain = {}
    for batch in runs.values("batch"):
        own = runs.where(batch=batch)
        gain[batch] = _PERCENT * (own.where(label="averaging").least() - own.where(label="diloco").least())
    return [
        Claim(
            "the loss of one worker is below that of data-parallel AdamW, mean over batches, %", _mean([*gain.values()])
        ),
        Claim("this gain grows with the batch, % a doubling", slope(gain)),
    ]


def _loss_by_workers(runs: Shared) -> list[Claim]:
    slopes, gap = [], {}
    for width in runs.values("width"):
        own = runs.where(width=width)
        loss = {each: own.where(label="diloco", workers=each).least() for each in own.values("workers")}
        slopes.append(_PERCENT * slope(loss))
        gap[PARAMETERS[width]] = _PERCENT * (loss[max(loss)] - own.where(label="averaging").least())
    rises = f"the loss rises with the workers, mean over {len(slopes)} sizes, % a doubling"
    most = max(runs.values("workers"))
    shrinks = f"the gap of {most} workers to data-parallel AdamW shrinks with the size, % a doubling"
    return [Claim(rises, _mean(slopes)), Claim(shrinks, -slope(gap))]


def _rates(runs: Shared) -> dict[tuple[int, int], Array]:
    """(width, workers) -> log2 of the best outer rate."""
    return {
        (width, workers): cell.best("delta_lr")
        for width in runs.values("width")
        for workers in runs.values("workers")
        if (cell := runs.where(width=width, workers=workers)).runs
    }


def _rate_by_workers(runs: Shared) -> list[Claim]:
    rates = _rates(runs)
    slopes = [slope({m: rate for (of, m), rate in rates.items() if of == width}) for width in runs.values("width")]
    text = f"the best outer rate grows with the workers, mean over {len(slopes)} sizes, octaves a doubling"
    return [Claim(text, _mean(slopes)), *_rate_by_size(runs)]


def _rate_by_size(runs: Shared) -> list[Claim]:
    """Compares only workers whose best rates lie within the grid: two rates at its end may differ beyond it."""
    rates, inside = _rates(runs), []
    for workers in runs.values("workers"):
        ends = [runs.where(width=width, workers=workers) for width in (SMALLEST, LARGEST)]
        if all(each.runs and each.at_edge("delta_lr") <= 0.5 for each in ends):
            inside.append(workers)
    if not inside:
        return [Claim("no best outer rate lies within the grid", np.zeros(runs.seeds), within=SAME)]
    growth = _mean([rates[LARGEST, workers] - rates[SMALLEST, workers] for workers in inside])
    counted = ", ".join(map(str, inside))
    text = f"the best outer rates of largest and smallest model are equal, octaves between them, {counted} workers"
    return [Claim(text, growth, within=SAME)]


def _rate_by_steps(runs: Shared) -> list[Claim]:
    slopes = []
    for workers in runs.values("workers"):
        own = runs.where(workers=workers)
        slopes.append(slope({h: own.where(local_steps=h).best("delta_lr") for h in own.values("local_steps")}))
    return [Claim("the best outer rate grows with the local steps, octaves a doubling", _mean(slopes))]


def _loss_by_steps(runs: Shared) -> list[Claim]:
    loss = {
        workers: {h: _PERCENT * own.where(local_steps=h).least() for h in own.values("local_steps")}
        for workers in runs.values("workers")
        for own in [runs.where(workers=workers)]
    }
    few, many = min(loss), max(loss)
    rise = {workers: slope({h: value for h, value in of.items() if h > 1}) for workers, of in loss.items()}
    return [
        *(
            Claim(f"with {many} workers, 1 local step gives a larger loss than {h}, %", loss[many][1] - loss[many][h])
            for h in loss[many]
            if h > 1
        ),
        Claim(f"with {many} workers, the loss then rises with the local steps, % a doubling", rise[many]),
        Claim(f"with {few} worker it rises less, % a doubling", rise[many] - rise[few]),
    ]


def _batch_by_workers(runs: Shared) -> list[Claim]:
    best = {workers: runs.where(workers=workers).best("batch") for workers in runs.values("workers")}
    return [Claim("the best batch grows with the workers, octaves a doubling", slope(best))]


def _outer_optimizers(runs: Shared) -> list[Claim]:
    def loss(width: int, label: str, delta_lr: float) -> Array:
        return _PERCENT * runs.where(width=width, label=label, delta_lr=delta_lr).least()

    small, large = ({rate: loss(width, "diloco", rate) for rate in (0.7, 1.0)} for width in (SMALLEST, LARGEST))
    against = {width: at[1.0] - at[0.7] for width, at in ((SMALLEST, small), (LARGEST, large))}
    return [
        Claim("smallest model: Nesterov at 1.0 is better than at 0.7, %", small[0.7] - small[1.0]),
        Claim(
            "smallest model: Nesterov at 1.0 is better than SGD at 1.0, %",
            loss(SMALLEST, "averaging", 1.0) - small[1.0],
        ),
        Claim("largest model: Nesterov at 1.0 is worse than at 0.7, %", against[LARGEST]),
        Claim("what 1.0 loses to 0.7 grows from the smallest to the largest, %", against[LARGEST] - against[SMALLEST]),
    ]


def _outer_by_inner_rate(runs: Shared) -> list[Claim]:
    falls = []
    for width in runs.values("width"):
        for workers in runs.where(width=width).values("workers"):
            own = runs.where(width=width, workers=workers)
            falls.append(-slope({rate: own.where(client_lr=rate).best("delta_lr") for rate in own.values("client_lr")}))
    return [
        Claim(
            f"the best outer rate falls as the workers' rate rises, mean over {len(falls)} cells, octaves a doubling",
            _mean(falls),
        )
    ]


_SCALING = "Charles and others 2025, arXiv 2503.09799"
_OUTER = "Khaled and others 2025, arXiv 2509.10439"
_BASE = {"batch": BATCH, "tokens": TOKENS, "local_steps": STEPS}
_GRID = {"label": "diloco", **_BASE}
_PARALLEL = {"label": "averaging", "workers": 1, "tokens": TOKENS}
_SMALL = {"label": "diloco", "width": SMALLEST, "tokens": TOKENS}
_OF_BATCHES = {**_SMALL, "local_steps": STEPS, "delta_lr": tuple(FEW_RATES)}
_OF_STEPS = {**_SMALL, "workers": (1, 4), "batch": BATCH}

STATEMENTS = (
    Statement(
        "S1",
        "DiLoCo with one worker beats data-parallel training, more so with larger batches",
        _SCALING,
        ({**_OF_BATCHES, "workers": 1}, {**_PARALLEL, "width": SMALLEST}),
        _growth_with_batch,
    ),
    Statement(
        "S2",
        "the loss rises with the workers, and the gap shrinks with the model's size",
        _SCALING,
        (_GRID, {**_PARALLEL, **_BASE}),
        _loss_by_workers,
    ),
    Statement(
        "S3",
        "the best outer rate grows with the workers, not with the model's size",
        _SCALING,
        (_GRID,),
        _rate_by_workers,
    ),
    Statement("S4", "the best outer rate grows with the local steps", _SCALING, (_OF_STEPS,), _rate_by_steps),
    Statement(
        "S5",
        "one local step is worst; then the loss rises with the local steps, less so for one worker",
        _SCALING,
        (_OF_STEPS,),
        _loss_by_steps,
    ),
    Statement(
        "S6",
        "the best batch grows with the workers",
        _SCALING,
        ({**_OF_BATCHES, "workers": (1, 4, 8)},),
        _batch_by_workers,
    ),
    Statement(
        "S7",
        "Nesterov at outer rate 1.0 is best for a small model, and worse than 0.7 for a larger one",
        _OUTER,
        (
            {**_GRID, "width": (SMALLEST, LARGEST), "workers": 4, "delta_lr": (0.7, 1.0)},
            {**_BASE, "label": "averaging", "width": SMALLEST, "workers": 4},
        ),
        _outer_optimizers,
    ),
    Statement(
        "S3 against S7",
        "the best outer rate does not depend on the model's size",
        f"{_SCALING}; {_OUTER} found that it does",
        (_GRID,),
        _rate_by_size,
    ),
    Statement(
        "S9",
        "the higher the workers' rate, the lower the best outer rate",
        "MaxText, tutorial on DiLoCo",
        (_GRID,),
        _outer_by_inner_rate,
    ),
)
"""S8, about Muon, and S10, which is arithmetic on counters, are not decided here."""
