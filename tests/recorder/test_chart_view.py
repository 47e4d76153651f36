"""What MLflow first shows: the views as it stores them."""

import json
from typing import Any

import pytest

from driftline.results.document import Reading, frontier_document
from service.recorder.chart_view import labels_view, trials_view

from ..results.samples import curve


def labels(quality: str, values: list[float]) -> dict[str, Any]:
    reading = Reading(quality, "rounds")
    curves = [curve(values, metric=quality, label="fedavg", number=0)]
    document = frontier_document("digits", curves, reading, len(values) - 1, ["fedavg"])
    view = json.loads(labels_view(document, reading, 1_000))
    assert (view["name"], view["createdAt"], view["updatedAt"]) == ("Trade-off", 1_000, 1_000)
    state: dict[str, Any] = json.loads(view["state"])
    return state


@pytest.mark.parametrize(
    ("quality", "values", "scale"),
    [("test_loss", [2.0, 0.5, 0.1], "log"), ("test_accuracy", [0.1, 0.5, 0.9], "linear")],
)
def test_the_frontier_with_its_band_is_the_first_chart_and_as_wide_as_the_page(
    quality: str, values: list[float], scale: str
) -> None:
    state = labels(quality, values)
    assert state["searchFilter"] == "tags.`driftline.kind` = 'label'"
    first = state["compareRunCharts"][0]
    assert first["selectedMetricKeys"] == ["frontier", "frontier_low", "frontier_high"]
    assert (first["xAxisScaleType"], first["scaleType"]) == ("log", scale)
    section = state["compareRunSections"][0]
    assert (section["uuid"], section["columns"]) == (first["metricSectionId"], 1)
    assert section["name"] == f"{quality} by rounds"
    sections = {section["uuid"] for section in state["compareRunSections"]}
    assert {chart["metricSectionId"] for chart in state["compareRunCharts"]} == sections


@pytest.mark.parametrize(("quality", "rising"), [("test_loss", False), ("test_accuracy", True)])
def test_the_table_of_trials_begins_with_the_best(quality: str, rising: bool) -> None:
    view = json.loads(trials_view(Reading(quality, "rounds"), ["rounds_to_0.5"], [["client_lr"]], 1_000))
    state = json.loads(view["state"])
    assert (state["orderByKey"], state["orderByAsc"]) == (f"metrics.`final_{quality}`", not rising)
    assert {"metrics.`rounds_to_0.5`", "params.`client_lr`", "tags.`driftline.phase`"} <= set(state["selectedColumns"])


def test_the_chart_of_trials_has_an_axis_only_for_what_all_trials_have() -> None:
    tried = [["client_lr", "prox", "server_lr"], ["client_lr", "server_lr", "server.momentum"]]
    view = json.loads(trials_view(Reading("test_loss", "rounds"), [], tried, 1_000))
    state = json.loads(view["state"])
    assert state["compareRunCharts"][0]["selectedParams"] == ["label", "client_lr", "server_lr"]
    assert {"params.`prox`", "params.`server.momentum`", "params.`server_lr`"} <= set(state["selectedColumns"])
