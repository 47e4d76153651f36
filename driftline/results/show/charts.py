"""The charts of frontier.html, as plotly figures."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from driftline.results.curves import TrialCurve, unit
from driftline.results.runs import runs_of
from driftline.results.scale import stored_axis
from driftline.results.settling import settling_cost
from driftline.results.show.axes import cost_range, cost_title, legend_name, quality_log, quality_title
from driftline.results.show.number_text import banded, number, plain
from driftline.results.show.palette import Style, styles
from driftline.results.show.recommendation_rows import RecommendationRow, recommendation_rows

Json = Mapping[str, Any]
CURVE_POINTS = 240  # most points of a learning curve


def frontier_chart(result: Json) -> Any:
    """What the recommendations give for each cost, with bands, and a marker wherever the configuration changes."""
    import plotly.graph_objects as go

    figure = go.Figure()
    marks = styles(result["methods"])
    for label, style in marks.items():
        for low, high, alpha in (("search_low", "search_high", 0.09), ("low", "high", 0.18)):
            _band(go, figure, label, result["methods"][label], (low, high, style.translucent(alpha)))
    for label, style in marks.items():
        _lines(go, figure, label, result["methods"][label], style)
    for label, style in marks.items():
        _changes(go, figure, label, result, style)
    _dress(figure, result, height=560)
    return figure


def speed_chart(result: Json) -> Any:
    """Where configurations settle and where they end; the Pareto set of each label is joined by a line."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for label, style in styles(result["methods"]).items():
        _settled(go, figure, label, result, style)
    _dress(figure, result, height=440)
    settles = [value for trace in figure.data for value in trace.x]
    figure.update_xaxes(title={"text": f"settles at ({cost_title(result)})"}, range=None, autorange=True)
    figure.update_xaxes(dtick=_ticks(settles)["dtick"])
    figure.update_yaxes(title=f"ends at: {quality_title(result)}")
    return figure


def learning_chart(result: Json, curves: Sequence[TrialCurve]) -> Any:
    """Smoothed quality of these trials over cost, with a marker where each settles.

    Args:
        result: The document; gives metric, cost and styles.
        curves: Trials of recommended configurations.
    """
    import plotly.graph_objects as go

    parameters, axis = result["definitions"]["parameters"], stored_axis(result)
    figure = go.Figure()
    marks = styles(result["methods"])
    shown: set[str] = set()
    for curve in sorted(curves, key=lambda curve: curve.key):
        runs = runs_of(curve.configuration, [curve], parameters["metric"], parameters["cost"])
        if runs is None or not len(runs.rounds):
            continue
        cost, quality = runs.cost[0], runs.quality[0]
        keep = _thin(cost)
        style = marks[curve.label]
        text = _hyperparameters_text(f"{curve.label}, seed {curve.seed}", curve.hyperparameters)
        figure.add_trace(
            go.Scatter(
                x=cost[keep].tolist(),
                y=quality[keep].tolist(),
                mode="lines",
                line={"color": style.colour, "width": 1.3, "dash": style.dash},
                opacity=0.75,
                name=html.escape(curve.label),
                legendgroup=curve.label,
                showlegend=curve.label not in shown,
                hovertemplate=f"%{{x:.4~s}}: %{{y:.4g}}<br>{text}<extra></extra>",
            )
        )
        settles = settling_cost(cost, quality, float(runs.start[0]), axis)
        figure.add_trace(
            go.Scatter(
                x=[settles],
                y=[float(quality[np.searchsorted(cost, settles)])],
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


def _band(go: Any, figure: Any, label: str, method: Json, drawn: tuple[str, str, str]) -> None:
    """A band between two columns of the frontier, in a colour; nothing if it has no height or no such columns."""
    rows, (low, high, colour) = method["frontier"], drawn
    if not rows or low not in rows[0] or all(row[low] == row[high] for row in rows):
        return
    for key, fill in ((low, None), (high, "tonexty")):
        figure.add_trace(
            go.Scatter(
                x=[row["cost"] for row in rows],
                y=[row[key] for row in rows],
                mode="lines",
                line={"shape": "hv", "width": 0},
                fill=fill,
                fillcolor=colour,
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
            hovertemplate=f"{html.escape(label)}: for %{{x:.4~s}}<br>%{{y:.4g}} "
            "(%{customdata[0]:.4g} to %{customdata[1]:.4g})<extra></extra>",
        )
    )
    theory = method.get("theory")
    if theory:
        figure.add_trace(
            go.Scatter(
                x=[row["cost"] for row in theory],
                y=[row["quality"] for row in theory],
                mode="lines",
                line={"shape": "hv", "color": style.colour, "width": 1.5, "dash": "dot"},
                name=f"{html.escape(label)}, theory",
                legendgroup=label,
                hovertemplate=f"{html.escape(label)}, theory: %{{y:.4g}} for %{{x:.4~s}}<extra></extra>",
            )
        )


def _changes(go: Any, figure: Any, label: str, result: Json, style: Style) -> None:
    """A marker where a configuration is first recommended, at what the frontier gives there."""
    rows = recommendation_rows(result["methods"][label], result["scale"]["last"])
    frontier = result["methods"][label]["frontier"]
    figure.add_trace(
        go.Scatter(
            x=[row.start for row in rows],
            y=[next(at["quality"] for at in reversed(frontier) if at["cost"] <= row.start) for row in rows],
            mode="markers",
            marker={
                "color": style.colour,
                "symbol": style.symbol,
                "size": 10,
                "line": {"color": "white", "width": 1.2},
            },
            legendgroup=label,
            showlegend=False,
            hovertext=[_recommendation_text(label, row, result) for row in rows],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    )


def _settled(go: Any, figure: Any, label: str, result: Json, style: Style) -> None:
    rows = result["methods"][label]["configurations"]
    cost, metric = (result["definitions"]["parameters"][key] for key in ("cost", "metric"))
    for on in (False, True):
        some = [row for row in rows if row["pareto"] == on]
        figure.add_trace(
            go.Scatter(
                x=[row["settles"] for row in some],
                y=[row["ends"] for row in some],
                mode="lines+markers" if on else "markers",
                line={"shape": "hv", "color": style.colour, "width": 1.3},
                marker={
                    "color": style.colour,
                    "symbol": style.symbol,
                    "size": 10 if on else 6,
                    "opacity": 1 if on else 0.4,
                },
                name=html.escape(label),
                legendgroup=label,
                showlegend=on,
                hovertext=[_settled_text(label, row, cost, metric) for row in some],
                hovertemplate="%{hovertext}<extra></extra>",
            )
        )
    predicted = [row["theory"] for row in rows if row.get("theory")]
    if predicted:
        figure.add_trace(
            go.Scatter(
                x=[row["settles"] for row in predicted],
                y=[row["ends"] for row in predicted],
                mode="markers",
                marker={"symbol": "circle-open", "size": 15, "color": style.colour, "line": {"width": 1}},
                name=f"{html.escape(label)}, theory",
                legendgroup=label,
                hovertemplate=f"{html.escape(label)}, theory: %{{y:.4g}}, settles at %{{x:.4~s}}<extra></extra>",
            )
        )


def _recommendation_text(label: str, row: RecommendationRow, result: Json) -> str:
    cost = result["definitions"]["parameters"]["cost"]
    head = f"{label}, from {number(row.start)} to {number(row.end)} {unit(cost)}"
    configuration = row.configuration
    return _hyperparameters_text(head, configuration["hyperparameters"] if configuration else {})


def _settled_text(label: str, row: Json, cost: str, metric: str) -> str:
    settles = banded(row["settles"], row["settles_low"], row["settles_high"])
    ends = banded(row["ends"], row["ends_low"], row["ends_high"])
    values = f"settles at {settles} {unit(cost)}<br>ends at {metric} {ends}"
    diverged = f", diverged on {row['diverged']} of {row['seeds']} seeds" if row["diverged"] else ""
    head = f"{label}, configuration {row['configuration']}{diverged}"
    return f"{values}<br>" + _hyperparameters_text(head, row["hyperparameters"])


def _hyperparameters_text(head: str, hyperparameters: Mapping[str, Any]) -> str:
    lines = [f"<b>{html.escape(head)}</b>"]
    for name, value in sorted(hyperparameters.items()):
        lines.append(f"{html.escape(name)}: {html.escape(plain(value))}")
    return "<br>".join(lines).replace("%", "&#37;").replace("{", "&#123;")


def _ticks(values: Iterable[float | None]) -> dict[str, Any]:
    """Labels of a logarithmic axis: plotly's own below a decade, 1, 2 and 5 up to four, then whole decades alone."""
    known = [value for value in values if value is not None and 0 < value < math.inf]
    decades = math.log10(max(known) / min(known)) if known else 0.0
    return {"dtick": None if decades < 0.8 else "D2" if decades < 4 else 1, "tickformat": "~g"}


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
    figure.update_yaxes(type="linear", title=quality_title(result), **grid)
    if quality_log(result):
        figure.update_yaxes(type="log", **_ticks([value for trace in figure.data for value in trace.y]))
    figure.update_layout(
        height=height,
        template="none",
        margin={"l": 70, "r": 20, "t": 20, "b": 55},
        hovermode="closest",
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0},
        font={"family": "inherit", "size": 13},
        hoverlabel={"align": "left"},
    )
