"""The result of one stored study, and the files it is shown in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from driftline.errors import InvalidSpec
from driftline.results.curves import COSTS, Array, TrialCurve
from driftline.results.document import Reading, frontier_document
from driftline.results.show.text_table import table
from driftline.results.show.trials_csv import trials_csv
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
        reading: What it is read against.
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
        """Checks that there is something to read.

        Args:
            quality: The metric that was asked for; None is the study's own.

        Raises:
            InvalidSpec: Trials reported, but none of them this metric.
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
            return trials_csv(self.curves, self.document, self.reading, self.rounds).encode()
        return (json.dumps(self.document, indent=1, allow_nan=False) + "\n").encode()


def needed(quality: str) -> frozenset[str]:
    """The columns that the document of a result is made from; a result's files need the others, too.

    Args:
        quality: What it is read against.
    """
    return frozenset({"round", quality, *(column for columns in COSTS.values() for column in columns)})


def study_result(
    study: StudyRecord,
    trials: Iterable[TrialRecord],
    columns: Mapping[str, Mapping[str, Sequence[Any] | Array]],
    *,
    quality: str | None = None,
    cost: str | None = None,
) -> StudyResult:
    """The result of a study from what is stored of it.

    Args:
        study: The study.
        trials: All its trials.
        columns: Their curves by trial id; trials without any have reported nothing.
        quality: Read against another metric than the study's objective.
        cost: Read against another cost than the study's objective.

    Raises:
        InvalidSpec: The cost is not one, or trials did not count it.
    """
    whole = study.study
    reading = Reading(quality or whole.objective.quality, cost or whole.objective.cost)
    rounds = whole.budget.rounds
    curves = tuple(TrialCurve.from_record(trial, columns.get(trial.id) or {"round": []}) for trial in trials)
    document = frontier_document(study.name, curves, reading, rounds, whole.labels)
    if whole.task["name"] == "quadratic":
        from driftline.results.theory import with_theory

        document = with_theory(document, whole, curves, reading, rounds)
    return StudyResult(document, curves, reading, rounds)
