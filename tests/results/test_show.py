"""The pictures: valid files, everything in them, nothing loaded from elsewhere."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from driftline.results.document import frontier_document
from driftline.results.show.axes import band_text, legend_name, quality_scale, quality_title
from driftline.results.show.number_text import hyperparameters_text
from driftline.results.show.page import frontier_html
from driftline.results.show.palette import styles, stylesheet
from driftline.results.show.picture import _figure, frontier_picture
from driftline.results.show.text_table import table
from driftline.sdk.frontier import Frontier

from .samples import Chosen, confirmed, curve, study


def size(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    return int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")


def data(page: str) -> Any:
    """What the script of a page draws."""
    return json.loads(page.partition('<script type="application/json" id="data">')[2].partition("</script>")[0])


def script(page: str) -> str:
    """The script of a page."""
    return page.rpartition("<script>")[2].partition("</script>")[0]


@pytest.fixture(scope="module")
def page() -> str:
    trials = study()
    return frontier_html(frontier_document("digits", trials, Chosen(), 200), trials)


@pytest.mark.parametrize("chosen", [Chosen(), Chosen("test_loss", "bytes"), Chosen("test_loss", "seconds")])
def test_picture(chosen: Chosen) -> None:
    result = frontier_document("digits", study(trials=8, confirm=2), chosen, 200)
    assert size(frontier_picture(result)) == (1280, 880)
    assert size(frontier_picture(result, dpi=100)) == (640, 440)


@pytest.mark.parametrize(
    "trials",
    [[], [curve([0.1, 9.0], state="DIVERGED")], [curve([0.1])], [curve([0.5] * 4)], [curve([0.0, 1.0], rounds=[0, 1])]],
)
def test_pictures_of_almost_nothing(trials: list) -> None:  # type: ignore[type-arg]
    result = frontier_document("small", trials, Chosen(), 1, ["fedavg"])
    assert size(frontier_picture(result)) == (1280, 880)
    assert "<title>small</title>" in frontier_html(result, trials)


def test_page_works_offline(page: str) -> None:
    tags = re.sub(r"<(script|style)[^>]*>.*?</\1>", "", page, flags=re.DOTALL)
    assert not re.search(r"(src|href)\s*=", tags)
    assert not re.search(r"<script[^>]+src=", page)
    assert not re.search(r"<link\b", tags)
    assert "default-src 'none'" in tags
    assert "//" not in re.sub(
        r"^ *//.*$|[;,{})] //.*$|http://www.w3.org/2000/svg", "", script(page), flags=re.MULTILINE
    )


def test_page_shows_everything(page: str) -> None:
    for text in (
        "fedavg",
        "fedprox",
        "scaffold",
        "diverged",
        "area",
        "Best quality within a budget",
        "Speed against final quality",
        "What to run",
        "Configurations",
        "Which hyperparameter moves you along the frontier",
        "Comparisons",
        "Ledger",
        "Definitions",
        "client_lr",
    ):
        assert text in page


def test_labels_cannot_break_the_page() -> None:
    evil = "</script><script>alert(1)</script>"
    trials = [
        replace(trial, label=evil, hyperparameters={"optimizer": evil, "%{x}": 1})
        for trial in study(("a",), 8, confirm=2)
    ]
    page = frontier_html(frontier_document(evil, trials, Chosen(), 200), trials)
    assert "<script>alert" not in page
    assert data(page)["labels"][0]["name"] == evil


def test_diverged_trials_are_counted_in_the_legend() -> None:
    method = {"diverged": 3, "granted": {"trials": 40}}
    assert legend_name("fedavg", method) == "fedavg (3 of 40 diverged)"
    assert legend_name("fedavg", method | {"diverged": 0}) == "fedavg"


def test_positive_losses_are_drawn_on_a_logarithm() -> None:
    loss = frontier_document("s", [curve([1.0, 0.8, 0.5], metric="test_loss")], Chosen("test_loss"), 2)
    assert quality_scale(loss) == "log"
    negative = frontier_document("s", [curve([1.0, 0.8, -0.5], metric="test_loss")], Chosen("test_loss"), 2)
    assert quality_scale(negative) == "linear"
    assert quality_scale(frontier_document("s", [curve([0.001, 0.5, 0.8])], Chosen(), 2)) == "linear"
    assert quality_scale(frontier_document("s", [], Chosen("test_loss"), 2)) == "linear"


@pytest.mark.parametrize(
    ("values", "metric", "scale"),
    [
        ([0.1, 0.9, 0.99], "test_accuracy", "error"),
        ([0.1, 0.5, 0.85], "test_accuracy", "linear"),
        ([0.1, 0.9, 1.0], "test_accuracy", "linear"),  # an error of 0 has no place on a logarithm
        ([0.1, 0.9, 0.99], "test_auc", "linear"),
    ],
)
def test_accuracies_near_1_are_drawn_as_errors(values: list[float], metric: str, scale: str) -> None:
    result = frontier_document("s", [curve(values, metric=metric)], Chosen(metric), 2)
    assert quality_scale(result) == scale
    assert (quality_title(result) == "1 \N{MINUS SIGN} test accuracy (lower is better)") == (scale == "error")


@pytest.mark.parametrize("count", [1, 9, 12])
def test_long_names_cover_nothing_in_the_picture(count: int) -> None:
    names = tuple(f"fedavg-with-a-server-that-has-momentum-schedule_{index}" for index in range(count))
    result = frontier_document("a-study-whose-name-says-what-it-is-about." * 2, study(names, 8, 20), Chosen(), 20)
    figure = _figure(result, 100)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    title = axes.title.get_window_extent()
    assert 0 <= title.x0 < title.x1 <= figure.bbox.width
    for legend in figure.legends:
        assert legend.get_window_extent().x0 >= max(title.x1, axes.bbox.x1)
    assert bool(figure.legends) is (count > 3)


def test_the_caption_says_what_is_drawn() -> None:
    trials = study(("fedavg",), 8, confirm=2)
    assert "mean of a run's 3 seeds, corrected for the optimism of the choice" in band_text(
        frontier_document("s", trials, Chosen(), 200)
    )
    search = [trial for trial in trials if trial.phase == "search"]
    assert "the search's own best, which flatters" in band_text(frontier_document("s", search, Chosen(), 200))
    one = [trial for trial in trials if trial.phase == "search" or trial.seed == 1]
    assert "one seed, chosen by the search" in band_text(frontier_document("s", one, Chosen(), 200))
    both = study(("fedavg", "fedprox"), 8, confirm=2)
    mixed = [trial for trial in both if trial.phase == "search" or trial.label == "fedavg"]
    result = frontier_document("s", mixed, Chosen(), 200)
    assert "band: lowest to highest of them). Of fedprox:" in band_text(result)
    six = band_text(frontier_document("s", study(("fedavg",), 8, seeds=6, confirm=2), Chosen(), 200))
    assert "lowest to highest of them, about 7 of 10 further seeds)." in six
    text = " ".join(table(result).split())
    assert "smallest and largest over seeds. fedprox: from the search itself, which flatters." in text


def test_theory_is_drawn_beside_the_measurement() -> None:
    trials = study(("fedavg",), 8, confirm=2)
    result = frontier_document("digits", trials, Chosen(), 200)
    plain = frontier_picture(result)
    result["methods"]["fedavg"]["theory"] = [{"cost": 1.0, "quality": 0.2}, {"cost": 200.0, "quality": 0.9}]
    assert frontier_picture(result) != plain
    assert data(frontier_html(result, trials))["readings"][0]["theory"] == [[[1, 0.2], [200, 0.9]]]


def test_styles_are_apart_and_stay_with_their_label() -> None:
    many = [f"label{number}" for number in range(20)]
    found = styles(many)
    assert len({(style.colour, style.dash) for style in found.values()}) == 20
    assert len({(style.name, style.dash) for style in found.values()}) == 20
    assert styles(many[:2])["label1"] == found["label1"]
    for style in found.values():
        assert f".{style.name}{{--c:{style.colour}}}" in stylesheet()


def test_drawing_leaves_no_figure_open() -> None:
    from matplotlib import pyplot

    before = pyplot.get_fignums()  # of other tests
    frontier_picture(frontier_document("s", [curve([0.0, 1.0])], Chosen(), 1))
    assert pyplot.get_fignums() == before


def test_failed_trials_are_counted_where_there_are_some() -> None:
    trials = [curve([0.1, 0.5, 0.6]), curve([0.1, 0.2], number=1, state="FAILED")]
    result = frontier_document("failed", trials, Chosen(), 2)
    heading, row = table(result).partition("\n\n")[2].partition("\n\n")[2].splitlines()[:2]
    assert heading.split()[-3:] == ["trials", "diverged", "failed"]
    assert row.split()[-5:] == ["2", "+", "0", "0", "1"]
    assert ">failed</th></tr>" in frontier_html(result).partition("</table>")[0]
    assert "failed" not in table(frontier_document("whole", trials[:1], Chosen(), 2)).partition("\n")[2]


def test_long_labels_that_differ_at_their_end_stay_apart_in_80_columns() -> None:
    labels = [f"fedavg-with-a-really-long-label-that-users-0123{end}" for end in "ab"]
    text = table(frontier_document("s", [curve([0.1, 0.5], label=label) for label in labels], Chosen(), 1))
    assert [line.split()[0][-5:] for line in text.splitlines() if "~" in line] == ["0123a", "0123b"]
    assert max(len(line) for line in text.splitlines()) <= 80


def test_values_are_written_as_in_the_study() -> None:
    values = {"server.nesterov": True, "clip_norm": None, "client_lr": 0.1}
    assert hyperparameters_text(values) == "client_lr 0.1, clip_norm null, server.nesterov true"
    values = {"mixing_by_client": [0.123456, *range(1, 1000)], "gradient_weights": [0, 1.0, 0.123456]}
    assert hyperparameters_text(values) == (
        "gradient_weights [0, 1, 0.1235], mixing_by_client [0.1235, 1, 2, ..., 999] (1000 values)"
    )


def test_values_that_change_nothing_are_any() -> None:
    values = {"client_lr": 0.1, "local_steps": 1, "server_lr": 0.3}
    trials = [replace(trial, hyperparameters=values) for trial in confirmed([[1.0, 0.5, 0.1]] * 3)]
    result = frontier_document("s", trials, Chosen(), 2)
    assert "client_lr 0.1, local_steps 1, server_lr 0.3 (delta_lr 3)" in " ".join(table(result).split())
    result["methods"]["fedavg"]["inactive"] = {"client_lr": [{"local_steps": 1}]}
    said = "any: another value gives the same curve, to the bit."
    assert "client_lr any, local_steps 1, server_lr 0.3" in " ".join(table(result).split())
    assert said in table(result)
    page = frontier_html(result, trials)
    assert said in page
    assert data(page)["inactive"] == {"0": ["client_lr"], "1": ["client_lr"]}
    best = Frontier(result).best()
    assert (best.inactive, best.hyperparameters) == (("client_lr",), values)
    assert ">any</td>" in best._repr_html_()


def test_cross_fitted_qualities_are_drawn_where_somebody_asks() -> None:
    result = frontier_document("digits", study(("fedavg",), 8, confirm=2), Chosen(), 200)
    plain, asked = (_figure(result, 72, cross_fitted=wanted) for wanted in (False, True))
    dotted = [line for line in asked.axes[0].lines if line.get_linestyle() == ":"]
    assert not [line for line in plain.axes[0].lines if line.get_linestyle() == ":"]
    ends = [row["quality"][-1] for row in result["methods"]["fedavg"]["cross_fitted"]]
    (line,) = dotted
    assert line.get_ydata()[-1] == 1 - sorted(ends)[1], "of three seeds, on an axis of errors"
    assert "Dotted: cross-fitted" in asked._supxlabel.get_text().replace("\n", " ")
