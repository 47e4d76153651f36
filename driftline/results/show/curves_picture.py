"""The curves of studies side by side as a PNG, as papers draw them: every panel a column, every metric a row."""

from __future__ import annotations

import functools
import io
import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from driftline.results.curves import Array, TrialCurve
from driftline.results.show.palette import Style, styles
from driftline.results.show.picture import label_digits
from driftline.results.study_result import StudyResult

Json = Mapping[str, Any]
BINS = 10


def curves_png(panels: Mapping[str, StudyResult], metrics: Sequence[str] = ()) -> bytes:
    """The figure of `curves_figure` as the bytes of a PNG."""
    out = io.BytesIO()
    curves_figure(panels, metrics).savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()


def curves_figure(panels: Mapping[str, StudyResult], metrics: Sequence[str] = ()) -> Any:
    """Each label's curve over the rounds, of the configuration that is recommended for the largest cost.

    The first row is the studies' quality at every evaluation, the others the mean of a metric over each tenth of the
    rounds. Lines are means over seeds (geometric on logarithmic axes), bands the lowest and highest seed. A trial that
    diverged ends there, and a line ends with the first of its trials.

    Args:
        panels: Title of each panel to its study's result.
        metrics: Further metrics, one row each; drawn for labels that reported them. One that is the quality of all
            panels is in the first row already.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    qualities = [result.document["definitions"]["parameters"]["metric"] for result in panels.values()]
    metrics = [metric for metric in metrics if {metric} != set(qualities)]
    labels = styles(dict.fromkeys(label for result in panels.values() for label in result.document["methods"]))
    shape = (1 + len(metrics), len(panels))
    figure = Figure(figsize=(max(6.4, 3.6 * shape[1]), 3.4 * shape[0]), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    table = figure.subplots(*shape, squeeze=False)
    for column, ((title, result), quality) in enumerate(zip(panels.items(), qualities, strict=True)):
        for row, metric in enumerate((quality, *metrics)):
            _draw(table[row][column], result, metric, labels, binned=row > 0)
        table[0][column].set_title("\n".join(textwrap.wrap(title, 36)), fontsize=10)
    names = [*labels]
    handles = [
        Line2D([], [], color=style.colour, linestyle=cast(Any, style.line), linewidth=1.4) for style in labels.values()
    ]
    columns = max(1, int(figure.get_figwidth() / (0.6 + 0.08 * max(map(len, names), default=0))))
    figure.legend(handles, names, loc="outside lower center", fontsize=8, ncols=columns, frameon=False)
    return figure


def _draw(axes: Any, result: StudyResult, metric: str, labels: Mapping[str, Style], *, binned: bool) -> None:
    document = result.document
    drawn = {label: _seeds(document, result.curves, label, metric) for label in document["methods"]}
    starts = [values[0, 0] for _, values in drawn.values() if values.size]
    if binned:
        drawn = {label: _binned(*seeds) if seeds[1].size else seeds for label, seeds in drawn.items()}
    logarithmic = binned or document["scale"]["logarithmic"]
    logarithmic = logarithmic and all((values > 0).all() for _, values in drawn.values())
    for label, (rounds, values) in drawn.items():
        style = labels[label]
        if values.size:
            mean = np.exp(np.log(values).mean(axis=0)) if logarithmic else values.mean(axis=0)
            low, high = values.min(axis=0), values.max(axis=0)
            axes.fill_between(rounds, low, high, color=style.colour, alpha=0.18, linewidth=0)
            axes.plot(rounds, mean, color=style.colour, linestyle=style.line, linewidth=1.4)
    if logarithmic:
        axes.set_yscale("log")
    if starts and not binned and document["definitions"]["parameters"]["direction"] == "falls":
        axes.dataLim.y1 = min(axes.dataLim.y1, 3 * max(starts))  # curves that grow without bound leave the axes
        axes.autoscale_view()
    if logarithmic:
        label_digits(axes.yaxis, *axes.get_ylim())
    axes.set_xlabel("communication rounds", fontsize=8)
    axes.set_ylabel(metric.replace("_", " ") + (", means of tenths" if binned else ""), fontsize=8)
    axes.tick_params(which="both", labelsize=7)
    axes.grid(visible=True, which="major", color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _seeds(document: Json, curves: Sequence[TrialCurve], label: str, metric: str) -> tuple[Array, Array]:
    """Rounds in which all seeds were evaluated, (n,), and the values, (seeds, n), of the recommended configuration."""
    method = document["methods"][label]
    recommended = method["recommendations"]
    chosen = recommended[-1]["configuration"] if recommended else None
    by_seed = [
        curve.metric(metric)
        for curve in curves
        if (curve.label, curve.phase) == (label, method["reported"]["phase"])
        and chosen in (None, curve.configuration)
        and curve.reports(metric)
    ]
    if not by_seed:
        return np.zeros(0), np.zeros((0, 0))
    common = functools.reduce(np.intersect1d, (rounds for rounds, _ in by_seed))
    return common, np.array([values[np.isin(rounds, common)] for rounds, values in by_seed])


def _binned(rounds: Array, values: Array) -> tuple[Array, Array]:
    """Means over tenths of the rounds after the first, at the middle of each tenth."""
    trained = rounds > 0
    rounds, values = rounds[trained], values[:, trained]
    bins = np.minimum((BINS * (rounds - 0.5) / math.ceil(rounds[-1])).astype(int), BINS - 1)
    filled = np.unique(bins)
    means = np.stack([values[:, bins == number].mean(axis=1) for number in filled], axis=1)
    return (filled + 0.5) * rounds[-1] / BINS, means
