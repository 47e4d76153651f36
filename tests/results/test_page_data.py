"""What frontier.html draws: the numbers of the document, of other readings, and of the curves."""

import base64
import hashlib
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import driftline.results.show.page as page_module
from driftline.errors import InvalidSpec
from driftline.results.document import Reading, frontier_document
from driftline.results.show import page_data
from driftline.results.show.page import frontier_html
from driftline.results.show.page_data import MOST_COSTS, MOST_ROUNDS, MOST_ROWS, configuration_rows, other_readings
from driftline.results.show.recommendation_rows import recommendation_rows
from driftline.sdk.frontier import Frontier
from driftline.study.spec import Study

from .samples import Chosen, confirmed, curve, study
from .test_show import data, script

TRIALS = study(("fedavg", "fedprox"), 12, rounds=60, confirm=4)
RESULT = frontier_document("digits", TRIALS, Chosen(), 60)


@pytest.fixture(scope="module")
def drawn() -> Any:
    return data(frontier_html(RESULT, TRIALS))


def row_of(drawn: Any, label: int, phase: str, configuration: int) -> int:
    return next(i for i, row in enumerate(drawn["rows"]) if row[:3] == [label, phase, configuration])


def test_rows_are_the_reported_configurations_and_those_of_the_search(drawn: Any) -> None:
    phases = [row[1] for row in drawn["rows"]]
    assert phases.count("confirmation") == 8
    assert phases.count("search") == 24
    for label, method in enumerate(RESULT["methods"].values()):
        for row in method["configurations"]:
            at = row_of(drawn, label, "confirmation", row["configuration"])
            *_, seeds, diverged, shape, values = drawn["rows"][at]
            assert (seeds, diverged) == (row["seeds"], row["diverged"])
            assert dict(zip(drawn["shapes"][shape], values, strict=True)) == row["hyperparameters"]
            keys = ("settles", "ends", "pareto", "settles_low", "settles_high", "ends_low", "ends_high")
            assert drawn["readings"][0]["values"][at] == pytest.approx([float(row[key]) for key in keys], rel=1e-6)


def test_rows_share_their_lists() -> None:
    long, other = [client / 7 for client in range(1000)], {"smoothness": 1}
    given = [{"client_lr": 0.1 + n, "long": [*long], "other": [*long] if n % 2 else {**other}} for n in range(40)]
    trials = [curve([0.1, 0.5 + n / 100], number=n, hyperparameters=values) for n, values in enumerate(given)]
    page = frontier_html(frontier_document("s", trials, Chosen(), 1), trials)
    found = data(page)
    assert found["lists"] == [long, other]
    rows = {row[2]: dict(zip(found["shapes"][row[5]], row[6], strict=True)) for row in found["rows"]}
    assert rows == {n: {"client_lr": 0.1 + n, "long": [0], "other": [1 - n % 2]} for n in range(40)}
    assert page.count("0.14285714285714285") == 1


def test_a_search_trial_that_diverged_is_listed_without_values(drawn: Any) -> None:
    trial = next(trial for trial in TRIALS if trial.phase == "search" and trial.state == "DIVERGED")
    at = row_of(drawn, ["fedavg", "fedprox"].index(trial.label), "search", trial.configuration)
    assert drawn["rows"][at][4] == 1
    assert drawn["readings"][0]["values"][at] == []


def test_a_trial_that_a_rung_stopped_says_so() -> None:
    trials = [curve([0.1, 0.5, 0.6, 0.7]), curve([0.1, 0.2], number=1, state="STOPPED")]
    found = data(frontier_html(frontier_document("rungs", trials, Chosen(), 3, rungs=(1, 3)), trials))
    assert found["stopped"] == {str(row_of(found, 0, "search", 1)): 1}


def test_other_readings_have_the_rounds_that_the_study_granted() -> None:
    trials = [curve([0.1, 0.5, 0.6, 0.7]), curve([0.1, 0.2], number=1, state="DIVERGED")]
    result = frontier_document("rungs", trials, Chosen(), 3, rungs=(1, 3))  # as of several studies: no specification
    ((document, _), *_) = other_readings(result, trials)
    assert document["methods"]["fedavg"]["granted"]["rounds"] == 3 + 1


def test_a_budget_of_spend_says_how_many_rounds_each_configuration_has() -> None:
    trials = [curve([0.1, 0.5, 0.6, 0.7], gradients=20), curve([0.1, 0.2], number=1, gradients=10, state="STOPPED")]
    result = frontier_document("s", trials, Chosen(), 60, unit="client_gradients", rungs=(10, 60))
    found = data(page := frontier_html(result, trials))
    assert found["lasts"] == {str(row_of(found, 0, "search", number)): rounds for number, rounds in ((0, 3), (1, 6))}
    assert "60 client gradients a trial." in page
    assert data(frontier_html(RESULT, TRIALS))["lasts"] == {}
    ((document, _), *_) = other_readings(result, trials)
    assert document["methods"]["fedavg"]["granted"]["client_gradients"] == 60 + 10


def test_a_long_frontier_is_thinned_and_keeps_its_ends() -> None:
    trials = confirmed([1 - 0.999 ** np.arange(2000)] * 4)
    result = frontier_document("long", trials, Chosen(), 1999)
    rows = result["methods"]["fedavg"]["frontier"]
    frontier = data(frontier_html(result, trials))["readings"][0]["frontiers"][0]
    assert len(rows) > MOST_COSTS
    assert MOST_COSTS // 2 < len(frontier["cost"]) <= MOST_COSTS
    assert (frontier["cost"][0], frontier["cost"][-1]) == (rows[0]["cost"], rows[-1]["cost"])


def test_a_thinned_frontier_keeps_every_change_of_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_data, "MOST_COSTS", 100)
    random = np.random.default_rng(1)
    trials = []
    for configuration in range(8):
        rate, gradients = 10 ** random.uniform(-2.2, -0.3), int(random.integers(5, 60))
        learnt = (0.8 - 0.25 * rate) * (1 - np.exp(-rate * np.arange(301)))
        values = [0.1 + learnt + 0.003 * random.standard_normal(301) for _ in range(7)]
        trials += confirmed(values, configuration=configuration, gradients=gradients)
    result = frontier_document("costs", trials, Reading("test_accuracy", "client_gradients"), 300)
    drawn = data(frontier_html(result))
    frontier = drawn["readings"][0]["frontiers"][0]
    rows = recommendation_rows(result, "fedavg")
    assert len(rows) > 3
    assert 50 < len(frontier["cost"]) < len(result["methods"]["fedavg"]["frontier"])
    for row in rows[:-1]:
        at = next(at for at, cost in enumerate(frontier["cost"]) if cost > row.end)  # from here on the next row holds
        given = [frontier[name][at - 1] for name in ("round", "quality", "low", "high")]
        assert given == pytest.approx([row.stop, *row.quality], rel=1e-6)
        assert drawn["rows"][frontier["row"][at - 1]][2] == row.configuration["configuration"]
        assert frontier["row"][at] != frontier["row"][at - 1]


def test_many_labels_share_the_steps_of_a_page() -> None:
    method = frontier_document("many", confirmed([1 - 0.99 ** np.arange(300)] * 4), Chosen(), 299)["methods"]["fedavg"]
    result = {**RESULT, "methods": {f"m{number}": method for number in range(100)}}
    page = frontier_html(result)
    assert {len(frontier["cost"]) for frontier in data(page)["readings"][0]["frontiers"]} <= set(range(32, 65))
    assert len(page.encode()) < 1_500_000


def test_other_costs_and_qualities_are_those_of_their_own_documents(drawn: Any) -> None:
    readings = {(reading["metric"], reading["cost"]): reading for reading in drawn["readings"]}
    costs = ("rounds", "bytes", "client_gradients", "seconds")
    assert list(readings) == [*(("test_accuracy", cost) for cost in costs), ("test_loss", "rounds")]
    for (quality, cost), reading in readings.items():
        document = frontier_document("digits", TRIALS, Reading(quality, cost), 60)
        frontier = document["methods"]["fedprox"]["frontier"]
        assert reading["frontiers"][1]["quality"][-1] == pytest.approx(frontier[-1]["quality"], rel=1e-6)
        assert reading["last"] == pytest.approx(document["scale"]["last"], rel=1e-6)
        assert len(reading["values"]) == len(drawn["rows"])


def test_a_cost_that_a_trial_did_not_count_is_no_choice() -> None:
    trials = [curve([0.1, 0.5]), curve([0.1, 0.6], number=1, wall_seconds=np.array([0.0, 1.0]))]
    drawn = data(frontier_html(frontier_document("s", trials, Chosen(), 1), trials))
    assert "seconds" not in {reading["cost"] for reading in drawn["readings"]}


def test_learning_curves_are_medians_with_bands(drawn: Any) -> None:
    trials = confirmed([[0.1] * 4, [0.1, 0.5, 0.5, 0.5], [0.1, 0.7, 0.7, 0.7], [0.1, 0.9, 0.9, 0.9]])
    found = data(frontier_html(frontier_document("s", trials, Chosen(), 3), trials))
    at = str(row_of(found, 0, "confirmation", 0))
    assert found["curves"][at]["rounds"] == [1, 2, 3]
    assert found["curves"][at]["bytes"] == [800, 1600, 2400]
    for name, value in (("test_accuracy", 0.7), ("test_accuracy.low", 0.5), ("test_accuracy.high", 0.9)):
        assert found["curves"][at][name] == [value] * 3
    assert {len(column) for column in drawn["curves"]["0"].values()} <= set(range(2, MOST_ROUNDS + 1))
    assert len({len(column) for column in drawn["curves"]["0"].values()}) == 1


def test_a_learning_curve_is_as_fine_at_its_end_as_in_its_middle() -> None:
    grid = [*range(1, 41), *(round(40 * 1.05**step) for step in range(1, 81))]  # about that of eval_every: auto
    trials = confirmed([np.linspace(0.1, 0.9, len(grid) + 1)] * 3, rounds=[0, *grid])
    found = data(frontier_html(frontier_document("s", trials, Chosen(), grid[-1]), trials))
    rounds = next(iter(found["curves"].values()))["rounds"]
    assert rounds[-1] == grid[-1]
    assert max(after / before for before, after in pairwise(rounds) if before > 10) < 1.2


def test_without_curves_the_page_has_what_the_document_has() -> None:
    drawn = data(frontier_html(RESULT))
    assert len(drawn["rows"]) == 8
    assert len(drawn["readings"]) == 1
    assert drawn["curves"] == {}
    assert drawn["copies"] is None


def test_copies_are_a_trial_and_a_study_of_one_entry() -> None:
    whole = Study(
        name="digits",
        task="digits",
        methods=[
            {
                "name": "fedavg",
                "constraints": ["client_lr <= 1"],
                "start": [{"client_lr": 0.1}],
                "prior": [{"client_lr": 0.2}],
                "server": {"name": "sgd", "space": {"momentum": 0.9}},
                "schedule": {"name": "plateau", "space": {"window": {"int": [5, 50]}}},
            },
            {"name": "fedprox", "space": "theory"},
        ],
        budget={"trials_per_method": 12, "rounds": 60, "searches": 2, "seeds": 3, "branches": 2},
        seed=7,
        evaluation={"clients": 3},
    )
    copies = data(frontier_html({**RESULT, "specification": whole.to_json()}))["copies"]
    assert list(copies) == ["fedavg", "fedprox"]
    assert copies["fedavg"]["trial"] == {  # without `evaluation`, as in confirmation
        "task": {"name": "digits"},
        "method": {"name": "fedavg"},
        "server": {"name": "sgd"},
        "schedule": {"name": "plateau"},
        "rounds": 60,
        "seed": 7,
    }
    one, measured = (Study.from_json(copy["study"]) for copy in copies.values())
    assert one.labels == ("fedavg",)
    assert measured.methods[0].theory is None
    assert one.methods[0].parameters() == {}
    assert one.methods[0].start == one.methods[0].prior == one.methods[0].constraints == []
    assert (one.budget.trials_per_method, one.budget.searches, one.budget.branches, one.budget.seeds) == (1, 1, 1, 3)


def test_a_page_is_small_and_leaves_out_what_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = len(frontier_html(RESULT, TRIALS).encode())
    assert whole < 300_000
    monkeypatch.setattr(page_module, "FOR_CURVES", 15_000)
    monkeypatch.setattr(page_module, "LARGEST", 55_000)
    drawn = data(frontier_html(RESULT, TRIALS))
    assert 0 < len(drawn["readings"]) < 5
    assert 0 < len(drawn["curves"]) < 8
    assert len(drawn["rows"]) == 32
    monkeypatch.setattr(page_module, "LARGEST", 0)
    assert data(frontier_html(RESULT, TRIALS))["curves"] == {}


def test_of_3000_trials_all_are_in_a_page_below_a_megabyte_and_a_half() -> None:
    trials = study(trials=950, rounds=20, confirm=16)
    page = frontier_html(frontier_document("large", trials, Chosen(), 20), trials)
    assert len(data(page)["rows"]) == 3 * (950 + 16)
    assert len(page.encode()) < 1_500_000


def test_of_too_many_configurations_the_best_are_listed() -> None:
    trials = [curve([0.1, 0.1 + 0.8 * (n * 7919 % 5003) / 5003], number=n) for n in range(5003)]
    trials += [curve([0.1, 0.5], phase="confirmation", number=0, configuration=0, seed=1)]
    rows = configuration_rows(frontier_document("s", trials, Chosen(), 1), trials)
    assert len(rows) == MOST_ROWS
    left_out = [trial for trial in trials[:-1] if ("fedavg", "search", trial.configuration) not in rows]
    worst = sorted(trials[:-1], key=lambda trial: trial.columns["test_accuracy"][-1])[: len(left_out)]
    assert left_out == sorted(worst, key=lambda trial: trial.number)


def test_the_policy_allows_the_script_and_the_style_of_the_page_alone() -> None:
    page = frontier_html(RESULT, TRIALS)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    style = page.partition("<style>")[2].partition("</style>")[0]
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (script(page), style)]
    assert policy == f"default-src 'none'; script-src 'sha256-{digests[0]}'; style-src 'sha256-{digests[1]}'"
    tags = re.sub(r"<(script|style)[^>]*>.*?</\1>", "", page, flags=re.DOTALL)
    assert not re.search(r"\s(style|on\w+)\s*=", tags)


def test_text_from_users_is_shown_and_not_obeyed() -> None:
    evil = "a\u202eb<b>"
    page = frontier_html({**RESULT, "study": evil})
    assert "<title>a\\u202eb&lt;b&gt;</title>" in page


@pytest.mark.parametrize(
    ("name", "begins"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF"), ("a.html", b"<!doctype html>")]
)
def test_a_frontier_is_drawn_by_the_ending_of_its_file(name: str, begins: bytes, tmp_path: Path) -> None:
    drawn = Frontier(RESULT).plot(tmp_path / name).read_bytes()
    assert drawn.startswith(begins)
    assert Frontier(RESULT).plot(tmp_path / name).read_bytes() == drawn


def test_other_endings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match=r"path: must end in .png, .svg, .pdf or .html, got '.*a\.eps'"):
        Frontier(RESULT).plot(tmp_path / "a.eps")
    with pytest.raises(InvalidSpec, match=r"path: must be in a folder that exists, got '.*a\.pdf': make '.*missing'"):
        Frontier(RESULT).plot(tmp_path / "missing" / "a.pdf")
    with pytest.raises(InvalidSpec, match="path: must be given, or ax, and not both"):
        Frontier(RESULT).plot()  # type: ignore[call-overload]


def test_a_frontier_is_drawn_into_axes() -> None:
    axes = Figure().add_subplot()
    Frontier(RESULT).plot(ax=axes)
    assert axes.get_title() == RESULT["study"]
    assert [text.get_text() for text in axes.get_legend().get_texts()]
