"""Curves of studies side by side: lines are means over seeds of what is recommended, bands the lowest and highest."""

import numpy as np
import pytest

from driftline.results.document import frontier_document
from driftline.results.show.curves_picture import curves_figure, curves_png
from driftline.results.study_result import StudyResult
from tests.results.samples import Chosen, confirmed


def result(**ends: list[float]) -> StudyResult:
    curves = [
        curve for label, values in ends.items() for curve in confirmed([[0.1, 0.3, end] for end in values], label=label)
    ]
    return StudyResult(frontier_document("s", curves, Chosen(), 2), tuple(curves), Chosen())


def test_a_line_is_the_mean_over_seeds_and_each_metric_has_a_row() -> None:
    one, two = result(a=[9, 0.5, 0.7], b=[9, 0.2, 0.4]), result(a=[9, 0.8, 0.9], b=[9, 0.1, 0.3])
    axes = curves_figure({"one": one, "two": two}, ["client_gradients"]).axes
    assert [each.get_title() for each in axes] == ["one", "two", "", ""]
    lines = [line.get_ydata() for line in axes[0].lines if len(line.get_ydata())]
    assert np.allclose(lines, [[0.1, 0.3, 0.6], [0.1, 0.3, 0.3]])
    assert axes[2].get_yscale() == "log"
    (spent, *_) = [line.get_ydata() for line in axes[2].lines if len(line.get_ydata())]
    assert np.allclose(spent, [10, 20])


def test_a_metric_that_nobody_reported_has_empty_axes() -> None:
    axes = curves_figure({"": result(a=[9, 0.5, 0.7])}, ["update_norm"]).axes
    assert not axes[1].lines
    assert curves_png({"": result(a=[9, 0.5, 0.7])}).startswith(b"\x89PNG")


def test_a_label_has_one_colour_in_all_panels_and_in_the_legend() -> None:
    both, alone = result(a=[9, 0.5, 0.7], b=[9, 0.2, 0.4]), result(b=[9, 0.8, 0.9])
    figure = curves_figure({"both": both, "alone": alone, "last": result(c=[9, 0.8, 0.9])})
    first, second, last = ([line.get_color() for line in axes.lines] for axes in figure.axes)
    assert second == first[1:]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b", "c"]
    assert [line.get_color() for line in legend.get_lines()] == [*first, *last]


def test_the_quality_has_no_second_row() -> None:
    one = result(a=[9, 0.5, 0.7])
    quality = one.document["definitions"]["parameters"]["metric"]
    assert len(curves_figure({"": one}, [quality]).axes) == 1


@pytest.mark.parametrize(("scale", "end", "least"), [("log", 0.5, 0.4), ("linear", 0.0, -0.5)])
def test_a_curve_that_diverges_leaves_the_axes_and_the_others_fill_them(scale: str, end: float, least: float) -> None:
    losses = {"trains": [[2.0, 1.0, end]] * 2, "diverges": [[2.0, 1e30]] * 2}
    curves = [curve for label, values in losses.items() for curve in confirmed(values, label=label, metric="test_loss")]
    reading = Chosen(quality="test_loss")
    one = StudyResult(frontier_document("s", curves, reading, 2), tuple(curves), reading)
    (axes,) = curves_figure({"": one}).axes
    low, high = axes.get_ylim()
    assert axes.get_yscale() == scale
    assert least < low < end
    assert 6 <= high < 8  # 3 times the start, and a margin


def test_the_legend_fits_the_picture() -> None:
    many = result(**{f"a_label_of_{number}": [9, 0.5, 0.7] for number in range(9)})
    figure = curves_figure({"": many})
    figure.canvas.draw()
    (legend,) = figure.legends
    assert legend.get_window_extent().width <= figure.bbox.width
