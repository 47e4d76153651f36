"""Frontiers as bars, and where a terminal shows them."""

import io
from typing import Any

import pytest

from driftline.results.document import Reading, frontier_document
from driftline.sdk.progress import ProgressDisplay
from driftline.sdk.sparklines import WIDTH, Sparklines, sparklines

from ..results.samples import curve
from .test_progress import Terminal, record, running


def document(*values: list[float], metric: str = "test_loss") -> dict[str, Any]:
    labels = ["fedavg", "fedprox"][: len(values)]
    curves = [curve(each, metric=metric, label=label) for label, each in zip(labels, values, strict=True)]
    return frontier_document("digits", curves, Reading(metric, "rounds"), len(values[0]) - 1, labels)


def test_bars_rise_with_the_cost_and_the_better_label_ends_higher() -> None:
    found = sparklines(document([2.0, 1.0, 0.5, 0.1], [2.0, 1.5, 1.2, 1.0]), "rounds")
    assert found.heading == "best within 1 to 3 rounds"
    for bars in found.bars.values():
        assert len(bars) == WIDTH
        assert list(bars) == sorted(bars)
    assert found.bars["fedavg"][-1] == "█"
    assert found.bars["fedprox"][-1] < "█"


def test_an_accuracy_rises_too() -> None:
    found = sparklines(document([0.1, 0.5, 0.9], metric="test_accuracy"), "rounds")
    assert found.bars["fedavg"][0] < found.bars["fedavg"][-1] == "█"


def test_there_are_no_bars_before_a_trial_has_ended() -> None:
    empty = frontier_document("digits", [], Reading("test_loss", "rounds"), 3, ["fedavg"])
    assert sparklines(empty, "rounds") == Sparklines()


@pytest.mark.parametrize(("columns", "shows"), [("160", True), ("80", False)])
def test_bars_need_a_wide_terminal(monkeypatch: pytest.MonkeyPatch, columns: str, shows: bool) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    stream = Terminal()
    display = ProgressDisplay(stream, "test_loss")
    assert display.wide == shows
    if display.wide:
        display.draw(Sparklines("best within 1 to 50 rounds", {"fedavg": "▁▂▃█"}))
    display.update(record({"fedavg": running(100)}), {"fedavg": 0.5})
    display.close()
    assert ("▁▂▃█" in stream.getvalue()) == shows


def test_a_file_is_never_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert not ProgressDisplay(io.StringIO(), "test_loss").wide
