"""The charts that MLflow first shows for the labels' runs: the frontier over the logarithm of the cost, and others.

MLflow keeps shared views as tags of an experiment, ``mlflow.sharedViewState.KEY``, and opens one by its key in the
address. A version of MLflow that does not know the format draws its own charts instead.
"""

from __future__ import annotations

import json
from typing import Any

from service.recorder.curve_rows import metric_name

VIEW = "driftline"
VIEW_TAG = f"mlflow.sharedViewState.{VIEW}"


def charts_view(quality: str) -> str:
    """The view as the value of tag `VIEW_TAG`.

    Args:
        quality: The metric that the study improves.
    """
    section = {
        "uuid": "driftline-trade-off",
        "name": f"Trade-off: best {quality} within a cost (step)",
        "display": True,
    }
    band = {"uuid": "driftline-band", "name": "Band over seeds", "display": False}
    charts = [
        _line("frontier", section["uuid"]),
        _bar("hypervolume", section["uuid"]),
        _bar(metric_name(f"best_{quality}"), section["uuid"]),
        _bar("diverged", section["uuid"]),
        _line("frontier_low", band["uuid"]),
        _line("frontier_high", band["uuid"]),
    ]
    return json.dumps(
        {
            "compareRunCharts": charts,
            "compareRunSections": [{**part, "isReordered": True} for part in (section, band)],
            "isAccordionReordered": True,
            "hideEmptyCharts": True,
            "autoRefreshEnabled": True,
        }
    )


def _line(metric: str, section: object) -> dict[str, Any]:
    return {
        **_card("LINE", metric, section),
        "selectedMetricKeys": [metric],
        "lineSmoothness": 0,
        "xAxisKey": "step",
        "xAxisScaleType": "log",
        "useGlobalXaxisKey": False,
        "useGlobalLineSmoothing": False,
        "scaleType": "linear",
        "selectedXAxisMetricKey": "",
        "selectedYAxisMetricKey": "metric",
        "range": {},
    }


def _bar(metric: str, section: object) -> dict[str, Any]:
    return _card("BAR", metric, section)


def _card(kind: str, metric: str, section: object) -> dict[str, Any]:
    return {
        "type": kind,
        "uuid": f"driftline-{kind.lower()}-{metric}",
        "metricKey": metric,
        "metricSectionId": section,
        "deleted": False,
        "isGenerated": False,
        "runsCountToCompare": 10,
    }
