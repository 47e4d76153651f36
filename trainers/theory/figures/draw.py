"""Draws figures that are readable in print, in grey and for the colour-blind (the colours of Okabe and Ito)."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from trainers.own_files import put
from trainers.theory.figures.curves import Curve, FigureData, Panel

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#000000", "#CC79A7", "#E69F00")
DASHES: tuple[str | tuple[int, tuple[float, ...]], ...] = (
    "-",
    (0, (5, 1.5)),
    (0, (1.2, 1.2)),
    (0, (7, 1.5, 1.2, 1.5)),
    (0, (3, 1.2, 1.2, 1.2, 1.2, 1.2)),
    (0, (9, 2)),
)
MARKERS = "osD^vP"
REFERENCE_DASHES = ((0, (2, 2)), (0, (6, 3)))
BAND = 2.0
MOST_SHARED_LABELS = 6
OWN_LEGEND: dict[str, Any] = {"ncols": 2, "frameon": False, "columnspacing": 1.0, "handlelength": 1.6}
PANEL_INCHES = (3.1, 2.75)
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "legend.fontsize": 8,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "svg.hashsalt": "driftline",
    "svg.fonttype": "none",
}


def save(figure: FigureData, paths: Sequence[Path]) -> None:
    """Draws a figure into files; equal data give equal files.

    Args:
        figure: the figure.
        paths: files; the suffix determines the format (png, svg, pdf).
    """
    with mpl.rc_context(STYLE):
        drawn = draw(figure)
        for path in paths:
            metadata = {"Date": None} if path.suffix == ".svg" else None
            out = io.BytesIO()
            drawn.savefig(out, format=path.suffix[1:], dpi=200, metadata=metadata)
            put(path, out.getvalue())


def draw(figure: FigureData) -> Figure:
    """Draws a figure.

    Args:
        figure: the figure.
    """
    columns = min(figure.columns, len(figure.panels))
    rows = -(-len(figure.panels) // columns)
    labels = {curve.label for panel in figure.panels for curve in panel.curves}
    shared = len(labels) <= MOST_SHARED_LABELS
    width, height = PANEL_INCHES
    size = (width * columns + 0.4, height * rows + (0.5 if shared else 1.1))
    drawn = Figure(figsize=(max(size[0], 4.2), max(size[1], 3.3)), layout="constrained")
    axes = drawn.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for ax, panel in zip(axes.flat, figure.panels, strict=False):
        _panel(ax, panel, figure)
        if not shared:
            ax.legend(loc="upper center", bbox_to_anchor=(0.45, -0.2), **OWN_LEGEND)
    for unused in list(axes.flat)[len(figure.panels) :]:
        unused.set_visible(False)
    for ax in axes[-1]:
        ax.set_xlabel(figure.x_label)
    for ax in axes[:, 0]:
        ax.set_ylabel(figure.y_label)
    if shared:
        named = {
            label: handle for ax in axes.flat for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
        }
        columns = min(len(named), 2 * columns)
        drawn.legend(named.values(), named.keys(), loc="outside lower center", ncols=columns, frameon=False)
    return drawn


def _panel(axes: Axes, panel: Panel, figure: FigureData) -> None:
    for order, curve in enumerate(panel.curves):
        _curve(axes, curve, order)
    for dash, line in zip(REFERENCE_DASHES, panel.lines, strict=False):
        axes.axhline(line.y, color="#777777", linewidth=0.9, linestyle=dash, zorder=1, label=line.label)
    axes.set_title(panel.title)
    if figure.x_range:
        axes.set_xlim(*figure.x_range)
    if figure.y_range:
        axes.set_ylim(*figure.y_range)


def _curve(axes: Axes, curve: Curve, order: int) -> None:
    colour = COLOURS[curve.style % len(COLOURS)]
    band = curve.width > BAND
    dash = "-" if band or curve.marked else DASHES[curve.style % len(DASHES)]
    options: dict[str, Any] = {}
    if curve.end or curve.marked:
        places = [-1] if curve.end else slice(6 * curve.style, None, 36)
        options = {"marker": MARKERS[curve.style % len(MARKERS)], "markevery": places, "markersize": 5}
    axes.plot(
        curve.x,
        curve.y,
        color=_pale(colour) if band else colour,
        linestyle=dash,
        linewidth=curve.width,
        solid_capstyle="butt",
        markerfacecolor=colour,
        markeredgecolor="white" if curve.marked else colour,
        markeredgewidth=0.5,
        label=curve.label,
        zorder=2 + order,
        clip_on=not curve.end,
        **options,
    )


def _pale(colour: str) -> tuple[float, float, float]:
    red, green, blue = to_rgb(colour)
    return (0.45 * red + 0.55, 0.45 * green + 0.55, 0.45 * blue + 0.55)
