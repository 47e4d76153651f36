"""The result of one stored study, and its files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from driftline.errors import InvalidSpec
from driftline.results.curves import COSTS, Array, TrialCurve
from driftline.results.document import Reading, frontier_document
from driftline.results.modelled_time import Time
from driftline.results.show.text_table import table
from driftline.results.show.trials_csv import trials_csv
from driftline.results.trial_list import trial_list
from driftline.study.chance import nothing_random
from driftline.wire.records import StudyRecord, TrialRecord
from trainers import hint, shown

FILES = ("frontier.json", "frontier.html", "frontier.png", "trials.csv")
"""Names of the files of a result."""


@dataclass(frozen=True)
class StudyResult:
    """The result of a study.

    Attributes:
        document: frontier.json, see `driftline.results.document`.
        curves: Its trials.
        reading: Its metric and cost.
        rounds: Budget of a trial in rounds.
    """

    document: dict[str, Any]
    curves: tuple[TrialCurve, ...]
    reading: Reading
    rounds: int

    def table(self, width: int = 80) -> str:
        """All labels' frontiers as text; see `driftline.results.show.text_table`."""
        return table(self.document, width)

    def require_reported(self, quality: str | None) -> None:
        """Checks that trials reported a metric.

        Args:
            quality: The requested metric; None, for the study's own, always passes.

        Raises:
            InvalidSpec: Trials have reported, but not this metric.
        """
        reported = {name for curve in self.curves for name in curve.columns}
        if quality is not None and reported and quality not in reported:
            near = hint(quality, sorted(reported))
            raise InvalidSpec("quality", f"must be a metric that the trials reported, got {shown(quality)}: {near}")

    def file(self, name: str) -> bytes:
        """The contents of one of `FILES`."""
        if name == "frontier.html":
            from driftline.results.show.page import frontier_html

            return frontier_html(self.document, self.curves).encode()
        if name == "frontier.png":
            from driftline.results.show.picture import frontier_png

            return frontier_png(self.document)
        if name == "trials.csv":
            return trials_csv(self.curves, self.document, self.reading).encode()
        return (json.dumps(self.document, indent=1, allow_nan=False) + "\n").encode()


def needed(quality: str) -> frozenset[str]:
    """The columns that the document of a result needs; its files need all columns.

    Args:
        quality: Metric of the result.
    """
    return frozenset({"round", quality, *(column for columns in COSTS.values() for column in columns)})


def study_result(
    study: StudyRecord,
    trials: Iterable[TrialRecord],
    columns: Mapping[str, Mapping[str, Sequence[Any] | Array]],
    *,
    quality: str | None = None,
    cost: str | Time | None = None,
) -> StudyResult:
    """Computes the result of a study from its records and curves.

    Args:
        study: The study.
        trials: All its trials.
        columns: Their curves by trial id; a missing trial has reported nothing.
        quality: Metric to use instead of the study's objective.
        cost: Cost to use instead of the study's objective: one of `COSTS`, or how time is modelled.

    Raises:
        InvalidSpec: Unknown cost, or trials did not count it.
    """
    whole = study.study
    rounds = whole.budget.rounds
    records = list(trials)
    curves = tuple(
        TrialCurve.from_record(
            trial, columns.get(trial.id) or {"round": []}, whole.budget.search_of(trial.configuration)
        )
        for trial in records
    )
    reading, curves = _read(quality or whole.objective.quality, cost or whole.objective.cost, curves)
    own = (reading.quality, reading.cost) == (whole.objective.quality, whole.objective.cost)
    document = frontier_document(
        study.name,
        curves,
        reading,
        rounds,
        whole.labels,
        scale=whole.objective.scale if own else None,
        certain=nothing_random(whole),
    )
    if whole.task["name"] == "quadratic":
        from driftline.results.theory import with_theory

        document = with_theory(document, whole, curves, reading, rounds)
    document["trial_list"] = trial_list(study, records)
    return StudyResult(document, curves, reading, rounds)


def _read(quality: str, cost: str | Time, curves: tuple[TrialCurve, ...]) -> tuple[Reading, tuple[TrialCurve, ...]]:
    """The reading, and the curves with what it needs."""
    if cost == "time":
        raise InvalidSpec(
            "cost", 'time is modelled: give --network and --compute, or Time("10Gbit,10ms", "300GFLOPS") in Python'
        )
    if isinstance(cost, Time):
        time, curves = cost.priced(curves)
        return Reading(quality, "time", time), curves
    return Reading(quality, cost), curves
