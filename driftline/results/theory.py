"""Predicted beside measured results, for studies on quadratic tasks.

A round with exact gradients and all clients is an affine map, so a trial's curve can be predicted without training.
`driftline.results.points` turns it into a point, as it does a measured curve: the two differ by noise, sampled
clients, rounding, or a mistake. Imported only for studies on quadratic tasks; needs numpy, not torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from driftline.results.curves import Array, TrialCurve
from driftline.results.directions import sign
from driftline.results.document import Reading
from driftline.results.pareto import non_dominated
from driftline.results.points import SmoothedCurve, smooth, window
from driftline.study.entries import MethodEntry
from driftline.study.spec import Study
from trainers import ROLES, SpecError
from trainers.tasks import quadratic
from trainers.theory.prediction import METRICS, Predictor, Setting, predictor
from trainers.theory.rounds.methods import ONE_CLIENT

Json = dict[str, Any]
ROUNDING = 1e-6
"""Relative differences of qualities divide by at least this share of the initial quality."""

DIGITS = 12
"""Predicted qualities that agree to this many digits count as equal: rounding must drop no point of the frontier."""

MOST_WORK = 2e9
"""Most multiplications for the predictions of a label; configurations beyond this limit get no prediction."""

THEORY = (
    "what a trial with exact gradients and all clients would measure, from the affine map of its rounds: its cost to "
    "settle and its tail by the definitions above, the limit of its quality after infinitely many rounds, and its "
    "asymptotic rate. Each configuration has its own prediction; theory of a label lists those that no other beats "
    "(drawn dashed)"
)
DISAGREEMENT = (
    "median and largest, over a label's configurations, of the relative difference between what is measured (median "
    "over seeds) and predicted: of the tail (quality), of the cost to settle (cost), and of the measured tail from the "
    "predicted limit (limit). Relative to the larger of the two numbers; for qualities, to at "
    f"least {ROUNDING:g} of the initial quality"
)


def with_theory(
    document: Mapping[str, Any], study: Study, curves: Iterable[TrialCurve], reading: Reading, rounds: int
) -> Json:
    """Adds the theory's predictions to a result.

    Args:
        document: The study's document from `frontier_document`.
        study: The study, with a quadratic task.
        curves: Its trials.
        reading: Metric and cost of the document.
        rounds: Budget of a trial in rounds.

    Returns:
        A new document. Each label has ``"theory"`` ([{"cost", "quality", "limit", "configuration"}], sorted by cost,
        empty without predictions), ``"theory_note"`` (what the prediction leaves out, or why there is none) and
        ``"disagreement"`` (None without a prediction). Each of ``"configurations"`` has ``"theory"``: {"cost",
        "quality", "limit", "rate"} or None. The definitions explain these.
    """
    held = {curve.trial: curve for curve in curves}
    task = quadratic.parse(study.task, "task")
    known = predictor(quadratic.build(task, "float64"))
    methods = {}
    for label, method in document["methods"].items():
        entry = study.entry(label)
        theory = _Theory(known, cast(Any, study.init), reading, rounds, _left_out(study, entry.name, task))
        methods[label] = method | theory.label(method, entry, held)
    words = {"theory": THEORY, "disagreement": DISAGREEMENT}
    return {**document, "definitions": {**document["definitions"], **words}, "methods": methods}


@dataclass(frozen=True)
class _Theory:
    predictor: Predictor
    init: Sequence[float] | None
    reading: Reading
    rounds: int
    left_out: str

    def label(self, method: Mapping[str, Any], entry: MethodEntry, held: Mapping[str, TrialCurve]) -> Json:
        """What the theory adds to a label's result."""
        found, reasons = self._configurations(method["configurations"], entry)
        rows = {row["configuration"]: row for row in method["configurations"]}
        predicted: dict[int, Json] = {}
        if found:
            raw = self.predictor.curves(list(found.values()), self.init, self.rounds, self.reading.quality)
            start = float(raw[0, 0])
            ended: dict[int, list[TrialCurve]] = {}
            for point in method["points"]:
                ended.setdefault(point["configuration"], []).append(held[point["trial"]])
            for (number, configuration), values in zip(found.items(), raw, strict=True):
                predicted[number] = self._point(configuration, values, ended.get(number, []))
        return {
            "configurations": [
                {**row, "theory": predicted.get(row["configuration"])} for row in method["configurations"]
            ],
            "theory": _frontier(predicted, sign(self.reading.quality)),
            "theory_note": _note(reasons, bool(predicted), bool(rows), self.left_out),
            "disagreement": _disagreement(rows, predicted, start) if predicted else None,
        }

    def _configurations(
        self, rows: Sequence[Mapping[str, Any]], entry: MethodEntry
    ) -> tuple[dict[int, Setting], Counter[str]]:
        """The configurations that can be predicted, by number, and the reasons why others cannot, counted."""
        found: dict[int, Setting] = {}
        reasons: Counter[str] = Counter()
        if self.reading.quality not in METRICS:
            reasons[f"the theory predicts {' and '.join(METRICS)}, not {self.reading.quality}"] = max(len(rows), 1)
            return found, reasons
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
                found[row["configuration"]] = configuration
            else:
                reasons["by the theory it does not converge"] += 1
        return found, reasons

    def _point(self, configuration: Setting, values: Array, trials: Sequence[TrialCurve]) -> Json:
        """The predicted point for the rounds and costs of these trials' evaluations: medians over the trials."""
        metric, cost = self.reading.quality, self.reading.cost
        direction = sign(metric)
        settles, tails = [], []
        for trial in trials:
            at, _ = trial.metric(metric)
            oriented = direction * values[at.astype(int)]
            follow = SmoothedCurve(trial.cost(cost, at), smooth(at, oriented, window(self.rounds)), float(oriented[0]))
            settles.append(follow.settles)
            tails.append(direction * follow.tail)
        return {
            "cost": float(np.median(settles)),
            "quality": float(np.median(tails)),
            "limit": float(self.predictor.values(configuration.limit, metric)),
            "rate": configuration.rate,
        }


def _parts(entry: MethodEntry, hyperparameters: Mapping[str, Any]) -> dict[str, Json]:
    """Method, optimizers and schedule as in a trial document, from an entry and dotted hyperparameters."""
    parts: dict[str, Json] = {"method": {"name": entry.name}}
    parts |= {kind: {"name": part.name} for kind, part in entry.parts().items()}
    for dotted, value in hyperparameters.items():
        kind, _, name = dotted.rpartition(".")
        parts[kind or "method"][name] = value
    return parts


def _left_out(study: Study, method: str, task: quadratic.Settings) -> str:
    """A sentence that says what the prediction leaves out; "" if nothing."""
    sampled = 1 if method in ONE_CLIENT else study.clients_per_round
    noise = task.losses.gradient_noise
    said = [f"the noise of the gradients ({noise:g})"] if noise else []
    said += [f"the sampling of {sampled} of {task.clients} clients"] if sampled and sampled < task.clients else []
    said += ["the rounding of float32"] if study.dtype == "float32" else []
    return f"The prediction leaves out {' and '.join(said)}." if said else ""


def _note(reasons: Counter[str], some: bool, points: bool, left_out: str) -> str:
    if not points and not reasons:
        return "No prediction yet: no configuration has been counted."
    if not some:
        return f"No prediction: {'; '.join(reasons)}."
    count = sum(reasons.values())
    missing = f"{count} of the configurations have no prediction: {'; '.join(reasons)}." if count else ""
    return " ".join(text for text in (left_out, missing) if text)


def _frontier(predicted: Mapping[int, Mapping[str, Any]], direction: float) -> list[Json]:
    rows = [
        {"cost": row["cost"], "quality": row["quality"], "limit": row["limit"], "configuration": number}
        for number, row in predicted.items()
    ]
    level = [direction * float(f"{row['quality']:.{DIGITS}g}") for row in rows]
    on = non_dominated([row["cost"] for row in rows], level)
    kept = [row for row, good in zip(rows, on, strict=True) if good]
    return sorted(kept, key=lambda row: (row["cost"], -direction * row["quality"], row["configuration"]))


def _disagreement(
    rows: Mapping[int, Mapping[str, Any]], predicted: Mapping[int, Mapping[str, Any]], start: float
) -> Json:
    least = ROUNDING * abs(start)
    found = {
        "quality": [_relative(rows[number]["quality"], row["quality"], least) for number, row in predicted.items()],
        "cost": [_relative(rows[number]["cost"], row["cost"], 0.0) for number, row in predicted.items()],
        "limit": [_relative(rows[number]["quality"], row["limit"], least) for number, row in predicted.items()],
    }
    medians = {name: float(np.median(values)) for name, values in found.items()}
    return {
        **medians,
        "largest": {name: max(values) for name, values in found.items()},
        "configurations": len(predicted),
    }


def _relative(measured: float, predicted: float, least: float) -> float:
    size = max(abs(measured), abs(predicted), least)
    return abs(measured - predicted) / size if size > 0 else 0.0
