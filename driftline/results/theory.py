"""Predicted beside measured results, for studies on tasks whose rounds are affine maps (`Task.AFFINE`).

A round with exact gradients and all clients is an affine map, so a trial's curve can be predicted without training.
Predicted curves then take the place of measured ones in the same functions: the two differ by noise, sampled clients,
rounding, or a mistake. Imported only for these studies; needs numpy, not torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from driftline.results.curves import Array, TrialCurve
from driftline.results.document import Reading
from driftline.results.runs import Runs, runs_of
from driftline.results.scale import Axis, stored_axis
from driftline.results.settling import settled
from driftline.study.entries import MethodEntry
from driftline.study.spec import Study
from trainers import ROLES, SpecError
from trainers.registry import methods, tasks
from trainers.theory.prediction import METRICS, Predictor, Setting, predictor

Json = dict[str, Any]
ROUNDING = 1e-6
"""Relative differences of qualities divide by at least this share of the initial quality."""

MOST_WORK = 2e9
"""Most multiplications for the predictions of a label; configurations beyond this limit get no prediction."""

THEORY = (
    "what trials with exact gradients and all clients would measure, from the affine map of their rounds. theory of a "
    "configuration is where it settles and ends, the limit of its quality after infinitely many rounds, and its "
    "asymptotic rate; theory of a label is the predicted quality of its recommendations (drawn dashed)"
)
DISAGREEMENT = (
    "median and largest, over a label's configurations, of the relative difference between what is measured (median "
    "over seeds) and predicted: of ends, of settles, and of the measured end from the predicted limit (limit). "
    "Relative to the larger of the two numbers; for qualities, to at "
    f"least {ROUNDING:g} of the initial quality"
)


def with_theory(document: Mapping[str, Any], study: Study, curves: Iterable[TrialCurve], reading: Reading) -> Json:
    """Adds the theory's predictions to a result.

    Args:
        document: The study's document from `frontier_document`.
        study: The study, whose task says AFFINE.
        curves: Its trials.
        reading: Metric and cost of the document.

    Returns:
        A new document. Each label has ``"theory"`` ([{"cost", "quality"}] along its recommendations, empty without
        predictions), ``"theory_note"`` (what the prediction leaves out, or why there is none) and ``"disagreement"``
        (None without a prediction). Each of ``"configurations"`` has ``"theory"``: {"settles", "ends", "limit",
        "rate"} or None. The definitions explain these.
    """
    complete: dict[tuple[str, str, int], list[TrialCurve]] = {}
    for curve in curves:
        if curve.state == "COMPLETE":
            complete.setdefault((curve.label, curve.phase, curve.configuration), []).append(curve)
    axis = stored_axis(document)
    module = tasks()[str(study.task["name"])]
    task = module.parse(study.task, "task")
    task_predictor = predictor(module.build(task, "float64"))
    labels = {}
    for label, method in document["methods"].items():
        entry = study.entry(label)
        rounds = max(
            (curve.rounds_done for group in complete.values() for curve in group if curve.label == label), default=1
        )
        rounds = study.budget_of(entry).rounds or rounds
        theory = _Theory(task_predictor, cast(Any, study.init), reading, rounds, axis, _left_out(study, entry, task))
        phase = method["reported"]["phase"]
        ended = {number: group for (name, at, number), group in complete.items() if (name, at) == (label, phase)}
        labels[label] = method | theory.label(method, entry, ended)
    words = {"theory": THEORY, "disagreement": DISAGREEMENT}
    return {**document, "definitions": {**document["definitions"], **words}, "methods": labels}


@dataclass(frozen=True)
class _Theory:
    predictor: Predictor
    init: Sequence[float] | None
    reading: Reading
    rounds: int
    axis: Axis
    left_out: str

    def label(self, method: Mapping[str, Any], entry: MethodEntry, ended: Mapping[int, Sequence[TrialCurve]]) -> Json:
        """What the theory adds to a label's result.

        Args:
            method: The label's part of the result.
            entry: The label's entry.
            ended: Configuration -> its reported trials that ended without divergence.
        """
        rows = {row["configuration"]: row for row in method["configurations"]}
        settings, reasons = self._configurations([row for number, row in rows.items() if number in ended], entry)
        if stopped := len(rows.keys() - ended.keys()):
            reasons["stopped early"] = stopped
        predicted: dict[int, Json] = {}
        runs: dict[int, Runs] = {}
        if settings:
            raw = self.predictor.curves(list(settings.values()), self.init, self.rounds, self.reading.quality)
            start = float(raw[0, 0])
            for (number, setting), values in zip(settings.items(), raw, strict=True):
                runs[number] = self._runs(number, ended[number], values)
                predicted[number] = self._prediction(setting, runs[number])
        return {
            "configurations": [
                {**row, "theory": predicted.get(row["configuration"])} for row in method["configurations"]
            ],
            "theory": [
                {"cost": row["cost"], "quality": _quality_at(runs[row["configuration"]], row["round"])}
                for row in method["recommendations"]
                if row["configuration"] in runs
            ],
            "theory_note": _note(reasons, bool(predicted), bool(rows), self.left_out),
            "disagreement": _disagreement(rows, predicted, start) if predicted else None,
        }

    def _configurations(
        self, rows: Sequence[Mapping[str, Any]], entry: MethodEntry
    ) -> tuple[dict[int, Setting], Counter[str]]:
        """The configurations that can be predicted, by number, and the reasons why others cannot, counted."""
        settings: dict[int, Setting] = {}
        reasons: Counter[str] = Counter()
        if self.reading.quality not in METRICS:
            reasons[f"the theory predicts {', '.join(METRICS)}, not {self.reading.quality}"] = max(len(rows), 1)
            return settings, reasons
        clients, dimension = self.predictor.clients.centers.shape
        work = 0.0
        for row in sorted(rows, key=lambda row: (not row["pareto"], row["configuration"])):
            work += self.rounds * 4.0 * dimension**2 + 4.0 * clients * dimension**3
            if work > MOST_WORK:
                reasons["predicting this many models of this size would take too long"] += 1
                continue
            parts = _parts(entry, row["hyperparameters"])
            try:
                others = {kind: part for kind, part in parts.items() if kind in ROLES and kind != "server"}
                configuration = self.predictor.setting(
                    parts["method"], parts["server"], parts["schedule"]["name"], others
                )
            except SpecError as error:
                reasons[str(error)] += 1
                continue
            if configuration.rate < 1:
                settings[row["configuration"]] = configuration
            else:
                reasons["by the theory it does not converge"] += 1
        return settings, reasons

    def _runs(self, number: int, trials: Sequence[TrialCurve], values: Array) -> Runs:
        """The runs of a configuration with predicted in place of measured values, in the same rounds."""
        metric = self.reading.quality
        predicted = []
        for trial in trials:
            at, _ = trial.metric(metric)
            columns = {**trial.columns, metric: np.full(len(trial.rounds), np.nan)}
            columns[metric][np.searchsorted(trial.rounds, at)] = values[at.astype(int)]
            predicted.append(replace(trial, columns=columns, _cache={}))
        runs = runs_of(number, predicted, metric, self.reading.cost)
        assert runs is not None  # a trial that ended has reported the metric
        return runs

    def _prediction(self, setting: Setting, runs: Runs) -> Json:
        settling = settled(runs, self.axis)
        assert settling is not None  # a prediction does not diverge
        return {
            "settles": float(np.median(settling.cost)),
            "ends": float(np.median(settling.end)),
            "limit": float(self.predictor.values(setting.limit, self.reading.quality)),
            "rate": setting.rate,
        }


def _quality_at(runs: Runs, number: int) -> float:
    """Mean predicted quality of a configuration when it stops after this round."""
    column = max(int(np.searchsorted(runs.rounds, number, side="right")) - 1, 0)
    return float(runs.quality[:, column].mean())


def _parts(entry: MethodEntry, hyperparameters: Mapping[str, Any]) -> dict[str, Json]:
    """Method, optimizers and schedule as in a trial document, from an entry and dotted hyperparameters."""
    parts: dict[str, Json] = {"method": {"name": entry.name}}
    parts |= {kind: {"name": part.name} for kind, part in entry.parts().items()}
    for dotted, value in hyperparameters.items():
        kind, _, name = dotted.rpartition(".")
        if dotted not in entry.sizes:
            parts[kind or "method"][name] = value
    return parts


def _left_out(study: Study, entry: MethodEntry, task: Any) -> str:
    """A sentence that says what the prediction leaves out; "" if nothing."""
    only = methods().constant(entry.name, "CLIENTS_PER_ROUND")
    cohorts = study.sizes_of(entry, "clients_per_round") if only is None else (only,)
    sampled = sorted({size for size in cohorts if size is not None and size < task.clients})
    many = f"{sampled[0]} to {sampled[-1]}" if len(sampled) > 1 else "".join(map(str, sampled))
    noise = task.losses.gradient_noise
    omitted = [f"the noise of the gradients ({noise:g})"] if noise else []
    omitted += [f"the sampling of {many} of {task.clients} clients"] if sampled else []
    omitted += ["the stragglers"] if study.settings_of(entry).stragglers is not None else []
    omitted += [f"the rounding of {study.dtype}"] if study.dtype in ("float32", "tf32") else []
    return f"The prediction leaves out {' and '.join(omitted)}." if omitted else ""


def _note(reasons: Counter[str], predicted: bool, points: bool, left_out: str) -> str:
    if not points and not reasons:
        return "No prediction yet: no configuration has been counted."
    if not predicted:
        return f"No prediction: {'; '.join(reasons)}."
    count = sum(reasons.values())
    have = "has" if count == 1 else "have"
    missing = f"{count} of the configurations {have} no prediction: {'; '.join(reasons)}." if count else ""
    return " ".join(text for text in (left_out, missing) if text)


def _disagreement(
    rows: Mapping[int, Mapping[str, Any]], predicted: Mapping[int, Mapping[str, Any]], start: float
) -> Json:
    least = ROUNDING * abs(start)
    differences = {
        "ends": [_relative(rows[number]["ends"], row["ends"], least) for number, row in predicted.items()],
        "settles": [_relative(rows[number]["settles"], row["settles"], 0.0) for number, row in predicted.items()],
        "limit": [_relative(rows[number]["ends"], row["limit"], least) for number, row in predicted.items()],
    }
    medians = {name: float(np.median(values)) for name, values in differences.items()}
    return {
        **medians,
        "largest": {name: max(values) for name, values in differences.items()},
        "configurations": len(predicted),
    }


def _relative(measured: float, predicted: float, least: float) -> float:
    size = max(abs(measured), abs(predicted), least)
    return abs(measured - predicted) / size if size > 0 else 0.0
