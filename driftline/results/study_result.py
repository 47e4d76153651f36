"""The result of one stored study, and its files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

from driftline.errors import InvalidSpec
from driftline.results.curves import Array, TrialCurve
from driftline.results.definitions import budget_of
from driftline.results.document import Reading, frontier_document
from driftline.results.inactive_values import stated_rules
from driftline.results.ledger import SHARED
from driftline.results.modelled_time import Time
from driftline.results.own_settings import own_settings
from driftline.results.recorded_table import require_agreement
from driftline.results.show.text_table import table
from driftline.results.show.trials_csv import trials_csv
from driftline.results.trial_list import trial_list
from driftline.study.chance import independent_draws, nothing_random
from driftline.study.spec import FixedScale, Study
from driftline.wire.records import StudyRecord, TrialRecord
from trainers import COSTS, hint, reporting, shown
from trainers.registry import tasks

_OWN = frozenset({"name", "methods", "objective", "budget", "resources", "sampler", "seed", "report"})
"""Keys in which studies of a joined result may differ."""

_STUDYS = ("granted", "settings", "given")
"""Keys of a label's part of a joined result that are copied from the result of its own study."""

FORMAT = 2
"""Version of frontier.json; grows when a key is removed or changes its meaning."""

FILES = ("frontier.json", "frontier.html", "frontier.png", "frontier.svg", "trials.csv")
"""Names of the files of a result."""


@dataclass(frozen=True)
class StudyResult:
    """The result of a study.

    Attributes:
        document: frontier.json, see `driftline.results.document`.
        curves: Its trials.
        reading: Its metric and cost.
    """

    document: dict[str, Any]
    curves: tuple[TrialCurve, ...]
    reading: Reading

    def table(self) -> str:
        """All labels' frontiers as text; see `driftline.results.show.text_table`."""
        return table(self.document)

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
        if name == "trials.csv":
            return trials_csv(self.curves, self.document, self.reading).encode()
        if name == "frontier.json":
            return (json.dumps(self.document, indent=1, allow_nan=False) + "\n").encode()
        return drawn(name, self.document, self.curves)


def drawn(
    name: str, document: dict[str, Any], curves: Sequence[TrialCurve] = (), *, cross_fitted: bool = False
) -> bytes:
    """The frontiers of a document as a picture or a page.

    Args:
        name: A file name that ends in .png, .svg, .pdf, .html or .htm.
        document: frontier.json.
        curves: The trials, for the learning curves of a page.
        cross_fitted: Draw the cross-fitted qualities as well, in a picture.

    Raises:
        InvalidSpec: The name has another ending.
    """
    match name.lower().rpartition(".")[2]:
        case "png" | "svg" | "pdf" as form:
            from driftline.results.show.picture import frontier_picture

            return frontier_picture(document, form, cross_fitted=cross_fitted)
        case "html" | "htm":
            from driftline.results.show.page import frontier_html

            return frontier_html(document, curves).encode()
    raise InvalidSpec("path", f"must end in .png, .svg, .pdf or .html, got {name!r}")


def document_columns(quality: str) -> frozenset[str]:
    """The columns that the document and frontier.html need; trials.csv needs all columns.

    With these, frontier.html can be read with other costs, but not with other qualities.

    Args:
        quality: Metric of the result.
    """
    return quality_columns(quality) | {SHARED, *(column for kind in COSTS.values() for column in kind.counters)}


def quality_columns(quality: str) -> frozenset[str]:
    """The columns that a quality is read from: "round", its metric, and the test metric beside a validation metric.

    Args:
        quality: Metric of the result.
    """
    return frozenset({"round", quality, reporting(quality) or quality})


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
        cost: Cost to use instead of the study's objective: one of `trainers.COSTS`, or how time is modelled.

    Raises:
        InvalidSpec: Unknown cost, or trials did not count it.
    """
    whole = study.study
    records = list(trials)
    curves = tuple(
        TrialCurve.from_record(
            trial, columns.get(trial.id) or {"round": []}, whole.budget.search_of(trial.configuration)
        )
        for trial in records
    )
    reading, curves = _read(whole.metric(quality or whole.objective.quality), cost or whole.objective.cost, curves)
    is_own_reading = (reading.quality, reading.cost) == (whole.objective.quality, whole.objective.cost)
    document = frontier_document(
        study.name,
        curves,
        reading,
        whole.budget.amount,
        whole.labels,
        unit=whole.budget.unit,
        scale=whole.objective.scale if is_own_reading else None,
        certain=nothing_random(whole),
        rungs=whole.rungs,
        drawn=independent_draws(whole),
        rules=stated_rules(whole),
        declared=() if whole.program is None else whole.program.counted,
    )
    for label, settings in own_settings(whole).items():
        document["methods"][label]["settings"] = settings
    for entry in whole.methods:
        document["methods"][entry.label]["given"] = {"start": entry.start, "prior": entry.prior}
    if whole.program is None and tasks().constant(whole.task["name"], "AFFINE"):
        from driftline.results.theory import with_theory

        document = with_theory(document, whole, curves, reading)
    document["specification"] = whole.to_json()
    for name, moment in (("submitted_at", study.created_at), ("finished_at", study.finished_at)):
        document[name] = moment and moment.isoformat(timespec="seconds")
    document["made_by"] = {"driftline": version("driftline"), "format": FORMAT}
    document["trial_list"] = trial_list(study, records)
    return StudyResult(document, curves, reading)


def joined_result(parts: Sequence[tuple[Study, StudyResult]]) -> StudyResult:
    """One result of several studies: one scale and one range of costs for all their labels.

    A label that two studies have becomes ``NAME/LABEL`` in all of them, with the names of the studies; studies of the
    same name are numbered: ``1-NAME/LABEL``.

    Args:
        parts: The studies and their results, with the same metric and cost.

    Raises:
        InvalidSpec: The studies differ in the budget of a trial or in a key that is not one of `_OWN`, or the results
            differ in the metric or the cost.
    """
    studies, results = [study for study, _ in parts], [result for _, result in parts]
    require_agreement(studies, _OWN)
    reading, (unit, amount) = results[0].reading, budget_of(results[0].document)
    for result in results[1:]:
        for key in ("quality", "cost"):
            one, other = getattr(reading, key), getattr(result.reading, key)
            if one != other:
                raise InvalidSpec(key, f"must be given, because the studies differ in it, got {one} and {other}")
    names = [study.name for study in studies]
    if len(set(names)) < len(names):
        names = [f"{number}-{name}" for number, name in enumerate(names, 1)]
    labels = [label for study in studies for label in study.labels]
    lead = [f"{name}/" if len(set(labels)) < len(labels) else "" for name in names]
    curves = tuple(
        replace(curve, label=f"{prefix}{curve.label}")
        for prefix, result in zip(lead, results, strict=True)
        for curve in result.curves
    )
    scales = [result.document["scale"] for result in results]
    fixed = {(scale["start"], scale["best"]) if scale["fixed"] else None for scale in scales}
    scale = fixed.pop() if len(fixed) == 1 else None
    document = frontier_document(
        " and ".join(names),
        curves,
        reading,
        amount,
        [f"{prefix}{label}" for prefix, study in zip(lead, studies, strict=True) for label in study.labels],
        unit=unit,
        scale=FixedScale(start=scale[0], best=scale[1]) if scale else None,
        certain=all(nothing_random(study) for study in studies),
        rules={
            f"{prefix}{label}": method["inactive"]
            for prefix, result in zip(lead, results, strict=True)
            for label, method in result.document["methods"].items()
            if "inactive" in method
        },
    )
    for prefix, result in zip(lead, results, strict=True):
        for label, method in result.document["methods"].items():  # each study has rungs of its own
            document["methods"][f"{prefix}{label}"] |= {key: method[key] for key in _STUDYS if key in method}
    return StudyResult(document, curves, reading)


def _read(quality: str, cost: str | Time, curves: tuple[TrialCurve, ...]) -> tuple[Reading, tuple[TrialCurve, ...]]:
    """The reading, and the curves with the columns that it needs."""
    if cost == "time":
        raise InvalidSpec(
            "cost", 'time is modelled: give --network and --compute, or Time("10Gbit,10ms", "300GFLOPS") in Python'
        )
    if isinstance(cost, Time):
        time, curves = cost.priced(curves)
        return Reading(quality, "time", time), curves
    return Reading(quality, cost), curves
