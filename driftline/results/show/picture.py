"""Frontiers with their bands as PNG, SVG and PDF at a size for print, or in axes of matplotlib."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from driftline.results.comparison import study_headline
from driftline.results.cross_fitting import band
from driftline.results.recommendation import Steps
from driftline.results.show.axes import (
    band_text,
    cost_range,
    cost_title,
    legend_name,
    quality_scale,
    quality_title,
)
from driftline.results.show.palette import Style, styles
from driftline.results.show.recommendation_rows import RecommendationRow, recommendation_rows

Json = Mapping[str, Any]
_INSIDE = 10  # most labels for a legend inside the axes; with more it stands beside them
_INSIDE_CHARACTERS = 200  # of these labels together
_INCHES = (6.4, 4.4)  # width without a legend beside the axes, height
_TITLE = (76, 48)  # characters of a line of the title: legend inside, beside
_COLUMN = 26  # names per column of a legend beside the axes
_COLUMN_INCHES = 2.6
_VARYING = {"png": ["Software"], "svg": ["Date"], "pdf": ["CreationDate", "Producer", "Creator"]}  # left out
_DARK = "#1c2330"
_THEORY = (0, (3, 1.5))  # dashes


def frontier_picture(result: Json, form: str = "png", *, dpi: int = 200, cross_fitted: bool = False) -> bytes:
    """The trade-off of all labels of a study; equal results give equal files.

    Args:
        result: Document from `frontier_document`. A label's ``"theory"``, ``[{"cost", "quality"}]``, is drawn dashed.
        form: "png", or for papers "svg" or "pdf".
        dpi: Dots per inch of a PNG.
        cross_fitted: As in `draw`.

    Returns:
        The file's bytes. Without any point, the axes say so.
    """
    from matplotlib import rc_context

    figure, out = _figure(result, dpi if form == "png" else 72, cross_fitted=cross_fitted), io.BytesIO()
    with rc_context({"svg.hashsalt": "driftline"}):
        figure.savefig(out, format=form, metadata=dict.fromkeys(_VARYING[form]))
    return out.getvalue()


def draw(axes: Any, result: Json, *, legend: bool = True, wrap: int = _TITLE[0], cross_fitted: bool = False) -> None:
    """The trade-off of all labels of a study in axes of matplotlib, without the remark on bands.

    Args:
        axes: The axes.
        result: As in `frontier_picture`.
        legend: Whether to draw a legend inside the axes.
        wrap: Most characters of a line of the title.
        cross_fitted: Also draw, dotted, the median over searches and seeds of the cross-fitted qualities, which areas
            and comparisons use.
    """
    from matplotlib.ticker import EngFormatter, FuncFormatter

    labels = list(result["methods"])
    for label, style in styles(labels).items():
        _draw(axes, label, _drawn(result, label), style, recommendation_rows(result, label))
        if cross_fitted:
            _draw_cross_fitted(axes, result, label, style)
    _dress(axes, result)
    axes.set_title("\n".join(textwrap.wrap(result["study"], wrap)), fontsize=10)
    if legend and labels:
        axes.legend(fontsize=8, frameon=True, framealpha=0.9, edgecolor="none")
    plain = FuncFormatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_major_formatter(EngFormatter(sep="") if cost_range(result)[1] >= 1e5 else plain)


def _figure(result: Json, dpi: int, *, cross_fitted: bool = False) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    labels = list(result["methods"])
    inside = len(labels) <= _INSIDE and sum(map(len, labels)) <= _INSIDE_CHARACTERS
    columns = 0 if inside else math.ceil(len(labels) / _COLUMN)
    figure = Figure(figsize=(_INCHES[0] + columns * _COLUMN_INCHES, _INCHES[1]), dpi=dpi, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    draw(axes, result, legend=not columns, wrap=_TITLE[bool(columns)], cross_fitted=cross_fitted)
    if columns:
        handles, names = axes.get_legend_handles_labels()
        figure.legend(handles, names, loc="outside right upper", fontsize=7, ncols=columns, frameon=False)
    dotted = " Dotted: cross-fitted, the median over searches and seeds." if cross_fitted else ""
    texts = [study_headline(result), band_text(result) + dotted]
    lines = [line for text in texts for line in textwrap.wrap(text, 118)]
    figure.supxlabel("\n".join(lines), fontsize=7, color="#555555")
    return figure


def _drawn(result: Json, label: str) -> Json:
    """A label's part of the result, with errors in place of accuracies if the axis shows errors."""
    method: Json = result["methods"][label]
    if quality_scale(result) != "error":
        return method
    qualities = ("quality", "low", "high")
    return {
        **method,
        "frontier": [
            {name: 1 - value if name in qualities else value for name, value in row.items()}
            for row in method["frontier"]
        ],
    }


def _draw(axes: Any, label: str, method: Json, style: Style, changes: Sequence[RecommendationRow]) -> None:
    rows = method["frontier"]
    name = legend_name(label, method)
    if not rows:
        axes.plot([], [], color=style.colour, label=f"{label} (nothing finished)")
        return
    cost = [row["cost"] for row in rows]
    ends = [row["low"] for row in rows], [row["high"] for row in rows]
    axes.fill_between(cost, *ends, step="post", color=style.colour, alpha=0.18, linewidth=0, zorder=1)
    axes.step(
        cost,
        [row["quality"] for row in rows],
        where="post",
        color=style.colour,
        linestyle=style.line,
        linewidth=1.6,
        zorder=3,
    )
    axes.scatter(
        [row.start for row in changes],
        [next(at["quality"] for at in reversed(rows) if at["cost"] <= row.start) for row in changes],
        s=38,
        marker=style.marker,
        color=style.colour,
        edgecolors="white",
        linewidths=0.8,
        zorder=4,
        clip_on=False,  # shows whole markers at the first cost
    )
    axes.plot([], [], color=style.colour, linestyle=style.line, marker=style.marker, markersize=5, label=name)
    theory = method.get("theory")
    if theory:
        axes.step(
            [row["cost"] for row in theory],
            [row["quality"] for row in theory],
            where="post",
            color=_DARK,  # in the label's colour it could not be seen on the line that it agrees with
            linewidth=0.9,
            linestyle=_THEORY,
            zorder=3.5,
        )


def _draw_cross_fitted(axes: Any, result: Json, label: str, style: Style) -> None:
    rows = result["methods"][label]["cross_fitted"]
    if not rows:
        return
    summary = band([Steps(np.array(row["cost"]), np.array(row["quality"])) for row in rows])
    values = 1 - summary.middle if quality_scale(result) == "error" else summary.middle
    cost = np.append(summary.cost, result["scale"]["last"])
    axes.step(cost, np.append(values, values[-1]), where="post", color=style.colour, linewidth=1.0, linestyle=":")


def _dress(axes: Any, result: Json) -> None:
    axes.set_xscale("log")
    axes.set_xlim(*cost_range(result))
    whole = all(float(result["scale"][end]).is_integer() for end in ("first", "last"))
    label_digits(axes.xaxis, *cost_range(result), whole=whole)
    if quality_scale(result) != "linear":
        axes.set_yscale("log")
        label_digits(axes.yaxis, *axes.get_ylim())
    axes.set_xlabel(cost_title(result), fontsize=9)
    axes.set_ylabel(quality_title(result), fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(visible=True, which="major", color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if any(method.get("theory") for method in result["methods"].values()):
        axes.plot([], [], color=_DARK, linewidth=0.9, linestyle=_THEORY, label="theory")
    if not any(method["recommendations"] for method in result["methods"].values()):
        axes.text(
            0.5,
            0.5,
            "nothing to recommend yet",
            transform=axes.transAxes,
            ha="center",
            va="center",
            color="#777777",
            fontsize=11,
        )


def label_digits(axis: Any, low: float, high: float, *, whole: bool = False) -> None:
    """Labels 1, 2 and 5 in each decade, every digit below a decade; matplotlib's own beyond four decades.

    Between whole numbers less than half a decade apart, only whole ones are labelled.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    decades = math.log10(high / low)
    if decades < 4:
        close = MaxNLocator(8, integer=True) if whole and decades < 0.5 else None
        axis.set_major_locator(close or LogLocator(subs=range(1, 10) if decades < 0.8 else (1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
