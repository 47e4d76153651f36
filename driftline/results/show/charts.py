"""The charts of frontier.html, as plotly figures."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from driftline.results.curves import TrialCurve
from driftline.results.directions import sign
from driftline.results.points import progress
from driftline.results.show.axes import cost_range, cost_title, legend_name, quality_log, quality_title
from driftline.results.show.number_text import banded, plain
from driftline.results.show.palette import Style, styles

Json = Mapping[str, Any]
CURVE_POINTS = 240  # most points of a learning curve


def frontier_chart(result: Json) -> Any:
    """Frontiers with bands, all points (faint), and Pareto sets (large, with their hyperparameters on hover)."""
    import plotly.graph_objects as go

    figure = go.Figure()
    marks = styles(result["methods"])
    for label, style in marks.items():
        _band(go, figure, label, result["methods"][label], style)
    for label, style in marks.items():
        _lines(go, figure, label, result["methods"][label], style)
    for label, style in marks.items():
        _points(go, figure, label, result, style)
    _dress(figure, result, height=560)
    return figure


def learning_chart(result: Json, curves: Sequence[TrialCurve]) -> Any:
    """Smoothed quality of these trials over cost, with a marker where each settles.

    Args:
        result: The document; gives metric, cost and styles.
        curves: Trials of the frontier.
    """
    import plotly.graph_objects as go

    parameters = result["definitions"]["parameters"]
    metric, cost = parameters["metric"], parameters["cost"]
    figure = go.Figure()
    marks = styles(result["methods"])
    shown: set[str] = set()
    for curve in sorted(curves, key=lambda curve: curve.key):
        found = progress(curve, metric, cost, parameters["rounds"])
        if found is None:
            continue
        keep = _thin(found.cost)
        style = marks[curve.label]
        text = _hyperparameters_text(f"{curve.label}, seed {curve.seed}", curve.hyperparameters)
        figure.add_trace(
            go.Scatter(
                x=found.cost[keep].tolist(),
                y=(sign(metric) * found.quality[keep]).tolist(),
                mode="lines",
                line={"color": style.colour, "width": 1.3, "dash": style.dash},
                opacity=0.75,
                name=html.escape(curve.label),
                legendgroup=curve.label,
                showlegend=curve.label not in shown,
                hovertemplate=f"%{{x:.4~s}}: %{{y:.4g}}<br>{text}<extra></extra>",
            )
        )
        figure.add_trace(
            go.Scatter(
                x=[found.settles],
                y=[sign(metric) * found.quality[np.searchsorted(found.cost, found.settles)]],
                mode="markers",
                marker={"color": style.colour, "symbol": style.symbol, "size": 7},
                legendgroup=curve.label,
                showlegend=False,
                hovertemplate=f"settles at %{{x:.4~s}}<br>{text}<extra></extra>",
            )
        )
        shown.add(curve.label)
    _dress(figure, result, height=440)
    return figure


def _thin(cost: Any) -> Any:
    """Indices of at most `CURVE_POINTS` evaluations, evenly spread on a logarithmic axis; without cost 0."""
    there = np.flatnonzero(cost > 0)
    if len(there) <= CURVE_POINTS:
        return there
    wanted = np.geomspace(cost[there[0]], cost[there[-1]], CURVE_POINTS)
    return np.unique(np.append(there[np.searchsorted(cost[there], wanted[:-1])], there[-1]))


def _band(go: Any, figure: Any, label: str, method: Json, style: Style) -> None:
    rows = method["frontier"]
    if not rows or all(row["low"] == row["high"] for row in rows):
        return
    for key, fill in (("low", None), ("high", "tonexty")):
        figure.add_trace(
            go.Scatter(
                x=[row["cost"] for row in rows],
                y=[row[key] for row in rows],
                mode="lines",
                line={"shape": "hv", "width": 0},
                fill=fill,
                fillcolor=style.translucent(0.18),
                legendgroup=label,
                showlegend=False,
                hoverinfo="skip",
            )
        )


def _lines(go: Any, figure: Any, label: str, method: Json, style: Style) -> None:
    rows = method["frontier"]
    name = legend_name(label, method) if rows else f"{label} (nothing finished)"
    figure.add_trace(
        go.Scatter(
            x=[row["cost"] for row in rows] or [None],
            y=[row["quality"] for row in rows] or [None],
            mode="lines",
            line={"shape": "hv", "color": style.colour, "width": 2.2, "dash": style.dash},
            name=html.escape(name),
            legendgroup=label,
            showlegend=True,
            customdata=[[row["low"], row["high"]] for row in rows],
            hovertemplate=f"{html.escape(label)}: best within %{{x:.4~s}}<br>%{{y:.4g}} "
            "(%{customdata[0]:.4g} to %{customdata[1]:.4g})<extra></extra>",
        )
    )
    theory = method.get("theory")
    if theory:
        figure.add_trace(
            go.Scatter(
                x=[row["cost"] for row in theory],
                y=[row["quality"] for row in theory],
                mode="lines+markers",
                line={"color": style.colour, "width": 1.5, "dash": "dot"},
                marker={"symbol": "circle-open", "size": 17, "color": style.colour, "line": {"width": 1}},
                name=f"{html.escape(label)}, theory",
                legendgroup=label,
                hovertemplate=f"{html.escape(label)}, theory: %{{y:.4g}}<br>settles at %{{x:.4~s}}<extra></extra>",
            )
        )


def _points(go: Any, figure: Any, label: str, result: Json, style: Style) -> None:
    method = result["methods"][label]
    cost, metric = (result["definitions"]["parameters"][key] for key in ("cost", "metric"))
    figure.add_trace(
        go.Scatter(
            x=[point["cost"] for point in method["points"]],
            y=[point["quality"] for point in method["points"]],
            mode="markers",
            marker={"color": style.colour, "symbol": style.symbol, "size": 5, "opacity": 0.35},
            legendgroup=label,
            showlegend=False,
            hovertext=[
                _hyperparameters_text(f"{label}, seed {p['seed']}", p["hyperparameters"]) for p in method["points"]
            ],
            hovertemplate=f"{cost} %{{x:.4~s}}, {metric} %{{y:.4g}}<br>%{{hovertext}}<extra></extra>",
        )
    )
    on = [row for row in method["configurations"] if row["pareto"]]
    figure.add_trace(
        go.Scatter(
            x=[row["cost"] for row in on],
            y=[row["quality"] for row in on],
            mode="markers",
            marker={
                "color": style.colour,
                "symbol": style.symbol,
                "size": 11,
                "line": {"color": "white", "width": 1.2},
            },
            legendgroup=label,
            showlegend=False,
            hovertext=[_frontier_text(label, row, cost, metric) for row in on],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    )


def _frontier_text(label: str, row: Json, cost: str, metric: str) -> str:
    values = f"{cost} {banded(row['cost'], row['cost_low'], row['cost_high'])}<br>{metric} " + banded(
        row["quality"], row["low"], row["high"]
    )
    seeds = f"{row['counted']} of {row['seeds']} seeds" if row["seeds"] > 1 else "one seed"
    return f"{values}<br>" + _hyperparameters_text(
        f"{label}, configuration {row['configuration']}, {seeds}", row["hyperparameters"]
    )


def _hyperparameters_text(head: str, hyperparameters: Mapping[str, Any]) -> str:
    lines = [f"<b>{html.escape(head)}</b>"]
    for name, value in sorted(hyperparameters.items()):
        lines.append(f"{html.escape(name)}: {html.escape(plain(value))}")
    return "<br>".join(lines).replace("%", "&#37;").replace("{", "&#123;")


def _dress(figure: Any, result: Json, height: int) -> None:
    grid = {"gridcolor": "#e6e6e6", "zeroline": False, "linecolor": "#999", "ticks": "outside", "tickcolor": "#999"}
    low, high = np.log10(cost_range(result))
    figure.update_xaxes(
        type="log",
        title={"text": cost_title(result), "standoff": 8},
        range=[low, high],
        minor={"ticks": ""},
        dtick=1,
        **grid,
    )
    figure.update_xaxes(tickformat="~s")
    figure.update_yaxes(
        type="log" if quality_log(result) else "linear", title=quality_title(result), exponentformat="power", **grid
    )
    figure.update_layout(
        height=height,
        template="none",
        margin={"l": 70, "r": 20, "t": 20, "b": 55},
        hovermode="closest",
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0},
        font={"family": "inherit", "size": 13},
        hoverlabel={"align": "left"},
    )
