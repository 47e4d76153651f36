"""What MLflow first shows of a study: the frontier as a large chart of the labels, and a table of the trials.

MLflow keeps shared views as tags of an experiment, ``mlflow.sharedViewState.KEY``, lists them in its menu "Views", and
opens one by its key in the address. A version of MLflow that does not know the format draws its own charts instead.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from driftline.results.curves import unit
from driftline.results.document import Reading
from driftline.results.show.axes import quality_scale
from driftline.study.directions import direction
from service.recorder.curve_rows import metric_name

VIEW = "driftline"
VIEW_TAG = f"mlflow.sharedViewState.{VIEW}"
FRONTIER = ("frontier", "frontier_low", "frontier_high")
"""Metrics of a label's run, drawn in one chart: median, smallest and largest over seeds."""

_TALL = 460  # pixels; the chart is as wide as the window, and its axes fit into one of 850 pixels
_SMALL = 300


def labels_view(result: Mapping[str, Any], reading: Reading, created_ms: int, *, band: bool = True) -> str:
    """The labels' runs as charts: the frontier with its band, then single numbers. The study's own run has none.

    Args:
        result: The document from `frontier_document`; says whether the axis is logarithmic.
        reading: The metrics of quality and cost.
        created_ms: When the study was created, milliseconds since 1970.
        band: Whether to draw the smallest and the largest over seeds too.
    """
    step = "milliseconds" if reading.cost == "seconds" else unit(reading.cost)
    first = _section("trade-off", f"{reading.quality} by {step}", 1)  # MLflow cuts longer titles
    second = _section("numbers", "Area (1 is best), end, diverged", 3)
    charts = [
        {
            **_card("LINE", FRONTIER[0], first),
            "selectedMetricKeys": list(FRONTIER if band else FRONTIER[:1]),
            "lineSmoothness": 0,
            "xAxisKey": "step",
            "xAxisScaleType": "log",
            "useGlobalXaxisKey": False,
            "useGlobalLineSmoothing": False,
            "scaleType": "log" if quality_scale(result) == "log" else "linear",
            "displayPoints": False,
            "selectedXAxisMetricKey": "",
            "yAxisKey": "metric",
            "range": {},
        },
        *(_card("BAR", name, second) for name in ("area", final_metric(reading.quality), "diverged")),
    ]
    return _saved(
        "Trade-off",
        created_ms,
        searchFilter="tags.`driftline.kind` = 'label'",
        runsHiddenMode="SHOW_ALL",
        hideEmptyCharts=True,
        **_charts(charts, [first, second]),
    )


def trials_view(
    reading: Reading, targets: Iterable[str], hyperparameters: Collection[Iterable[str]], created_ms: int
) -> str:
    """The trials as a table that begins with the best, and a chart of their final qualities.

    Args:
        reading: The metrics of quality and cost.
        targets: Metrics ``COST_to_TARGET`` to show; the others are in the menus "Sort" and "Columns".
        hyperparameters: Names of each trial's hyperparameters. The table has a column for each of them; the chart an
            axis for those of all trials, because MLflow draws no trial that lacks a value.
        created_ms: When the study was created, milliseconds since 1970.
    """
    names = [set(trial) for trial in hyperparameters]
    all_names, common = set().union(*names), set.intersection(*names) if names else set()
    final = final_metric(reading.quality)
    section = _section("trials", f"Final {reading.quality} by hyperparameter", 1)
    parallel = {
        **_card("PARALLEL", final, section),
        "selectedParams": ["label", *sorted(common)],
        "selectedMetrics": [final],
        "showAllRuns": True,
    }
    columns = [
        *_columns("metrics", (final, "on_frontier", "diverged", *targets)),
        *_columns("params", ("label", *sorted(all_names), "seed")),
        *_columns("tags", ("driftline.phase", "driftline.state")),
    ]
    return _saved(
        "Best trials",
        created_ms,
        orderByKey=f"metrics.`{final}`",
        orderByAsc=direction(reading.quality) == "falls",
        selectedColumns=columns,
        runsHiddenMode="SHOW_ALL",
        **_charts([parallel], [section]),
    )


def final_metric(quality: str) -> str:
    """Name of the metric that holds the final quality of a label or a trial."""
    return metric_name(f"final_{quality}")


def _columns(kind: str, names: Iterable[str]) -> list[str]:
    return [f"{kind}.`{name}`" for name in names]


def _charts(charts: Sequence[Mapping[str, Any]], sections: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"compareRunCharts": charts, "compareRunSections": sections, "isAccordionReordered": True}


def _section(key: str, name: str, columns: int) -> dict[str, Any]:
    height = _TALL if columns == 1 else _SMALL
    return {
        "uuid": f"driftline-{key}",
        "name": name,
        "display": True,
        "isReordered": True,
        "columns": columns,
        "cardHeight": height,
    }


def _card(kind: str, metric: str, section: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": kind,
        "uuid": f"driftline-{kind.lower()}-{metric}",
        "metricKey": metric,
        "metricSectionId": section["uuid"],
        "deleted": False,
        "isGenerated": False,
        "runsCountToCompare": 100,
    }


def _saved(name: str, created_ms: int, **state: Any) -> str:
    """A view with the name under which the menu lists it."""
    return json.dumps({"name": name, "createdAt": created_ms, "updatedAt": created_ms, "state": json.dumps(state)})
