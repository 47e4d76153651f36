"""frontier.html in a real browser without a network: what a reader does with it."""

import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import trainers
from driftline.results.document import frontier_document
from driftline.results.show.page import frontier_html
from driftline.sdk.frontier import Frontier
from driftline.study import yaml_files
from driftline.study.spec import Study
from tests.results.samples import Chosen, curve, study

from .chromium import CHROMIUM, Chromium

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
]

STUDY = Study(
    name="digits",
    task="digits",
    methods=[{"name": name, "server": {"name": "sgd", "space": {"momentum": 0.9}}} for name in ("fedavg", "scaffold")],
    clients_per_round=10,
    budget={"trials_per_method": 24, "rounds": 100, "seeds": 3},
)
TRIALS = study(("fedavg", "scaffold"), 24, rounds=100, confirm=6)
RESULT = {**frontier_document("digits", TRIALS, Chosen(), 100), "specification": STUDY.to_json()}

ACTIONS = """
const text = (id) => document.getElementById(id).textContent;
const all = (selector) => [...document.querySelectorAll(selector)];
const cells = (id) => all(`#${id} tbody tr`).map((row) => [...row.children].map((cell) => cell.textContent));
const told = () => [...tip.children].map((line) => line.textContent);
const chartOf = (view) => view.root.getBoundingClientRect();

// Points at the exact middle of every marker and returns what the tip says first.
function hoverAll(view) {
  return view.points.map((point) => {
    const box = chartOf(view), ratio = box.width / view.width;
    const at = { clientX: box.left + point.x * ratio, clientY: box.top + point.y * ratio };
    view.root.dispatchEvent(new PointerEvent("pointermove", at));
    const on = view.points.filter((other) => other.x === point.x && other.y === point.y).at(-1);
    return { hidden: tip.hidden, said: told(), own: on.text() };
  });
}
function press(element, key) { element.dispatchEvent(new KeyboardEvent("keydown", { key, cancelable: true })); }
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    offline = {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    with Chromium(tmp_path_factory.mktemp("profile")) as started:
        started.send("Network.emulateNetworkConditions", **offline)
        yield started


@pytest.fixture
def seen(browser: Chromium, page: str, tmp_path: Path) -> Callable[..., Any]:
    """What a script finds in a page, and fills into `found`; the page may complain of nothing.

    The page is the module's own, unless another one is given, with `fragment` in its address and a window of `width`.
    """

    def run(script: str, *, text: str = page, fragment: str = "", width: int = 1200) -> Any:
        file = tmp_path / "frontier.html"
        file.write_text(text, encoding="utf-8")
        phone = width < 500
        browser.send("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=phone)
        browser.complaints.clear()
        browser.open("about:blank")
        browser.open(f"{file.as_uri()}#{fragment}")
        found = browser.run(f"(() => {{ {ACTIONS}\nconst found = {{}};\n{script}\nreturn found; }})()")
        assert browser.complaints == []
        return found

    return run


@pytest.fixture(scope="module")
def page() -> str:
    return frontier_html(RESULT, TRIALS)


def test_pointing_at_a_marker_shows_its_own_data(seen: Callable[..., Any]) -> None:
    found = seen(
        """
        change({ all: true });
        found.views = { frontier: hoverAll(frontierView), speed: hoverAll(speedView), slice: hoverAll(slices[0]) };
        """
    )
    assert len(found["views"]["frontier"]) >= 4
    assert len(found["views"]["speed"]) > 40
    for points in found["views"].values():
        for point in points:
            assert not point["hidden"]
            assert point["said"] == point["own"]
    named = {re.sub(r":.*", "", point["said"][0]) for point in found["views"]["frontier"]}
    advised = {
        f"{label}, configuration {row['configuration']}"
        for label, method in RESULT["methods"].items()
        for row in method["recommendations"]
    }
    assert named == advised


def test_a_budget_names_method_configuration_round_and_band(seen: Callable[..., Any]) -> None:
    found = seen(
        """
        found.linked = text("advice");
        found.offers = {};
        for (let rounds = 1; rounds <= 100; rounds += 1) {
          found.offers[rounds] = shownLabels().map((label) => offer(label, rounds))
            .map((one) => [one.row.configuration, one.round, one.quality, one.low, one.high]);
        }
        const slider = document.getElementById("budget");
        slider.value = 500;
        slider.dispatchEvent(new Event("input"));
        found.slid = [text("budget-text"), text("advice"), cells("choices")];
        const box = chartOf(frontierView);
        const corner = { clientX: box.left + frontierView.left, clientY: box.bottom - 50 };
        frontierView.root.dispatchEvent(new MouseEvent("click", corner));
        found.clicked = text("budget-text");
        """,
        fragment="budget=30",
    )
    frontier = Frontier(RESULT)
    for rounds, offers in found["offers"].items():
        for label, offer in zip(RESULT["methods"], offers, strict=True):
            best = frontier.best(label, cost=float(rounds))
            assert offer == pytest.approx(
                [best.configuration, best.rounds, best.quality, best.low, best.high], rel=1e-6
            )
    best = frontier.best(cost=30)
    start = f"For up to 30 rounds: {best.label}, configuration {best.configuration}, stopped at round {best.rounds}; "
    assert found["linked"].startswith(start)
    assert found["linked"].replace("\N{EN DASH}", "-") == frontier.advice(30), "as the command says it"
    assert found["slid"][0] == "10 rounds"  # half of the slider, on a logarithm
    assert found["slid"][1].startswith("For up to 10 rounds: ")
    assert {cells[0] for cells in found["slid"][2]} == set(RESULT["methods"])
    assert found["clicked"] == "1 round"


def test_the_table_is_sorted_filtered_and_linked(seen: Callable[..., Any]) -> None:
    found = seen(
        """
        found.linked = cells("configurations").map((row) => [row[0], Number(row[6])]);
        const filter = document.getElementById("filter");
        const type = (words) => { filter.value = words; filter.dispatchEvent(new Event("input")); };
        type("scaffold client_lr<0.1");
        found.filtered = cells("configurations").map((row) => [row[0], Number(row[6])]);
        found.charts = [speedView.points.length, parallel.points.length];
        type("nonsense<3");
        found.unknown = [text("count"), cells("configurations").length];
        type("");
        const head = all("#configurations thead button").find((one) => one.textContent.startsWith("settles"));
        head.focus();
        head.click();
        found.sorted = tableRows.map((row) => measured(row).settles);
        found.focus = document.activeElement.textContent;
        document.activeElement.click();
        found.reversed = tableRows.map((row) => measured(row).settles);
        all("#configurations tbody button")[2].click();
        found.selected = [all("tr.selected").length, text("detail"), choice.row === tableRows[2]];
        found.marked = [speedView.overlay.childElementCount, parallel.overlay.childElementCount];
        document.querySelector("#methods input").click();
        found.methods = [...new Set(cells("configurations").map((row) => row[0]))];
        """,
        fragment="sort=client_lr&down=",
    )
    rates = [rate for _, rate in found["linked"]]
    assert len(rates) == 12
    assert rates == sorted(rates, reverse=True)
    expected = [row for row in found["linked"] if row[0] == "scaffold" and row[1] < 0.1]
    assert 0 < len(expected) < 6
    assert found["filtered"] == expected
    assert found["charts"] == [len(expected)] * 2
    assert found["unknown"] == ["no column nonsense", 12]
    assert found["sorted"] == sorted(found["sorted"])
    assert found["focus"].startswith("settles")  # the keyboard stays on the heading
    assert found["reversed"] == found["sorted"][::-1]
    assert found["selected"][0] == 1
    assert found["selected"][2]
    assert "configuration" in found["selected"][1]
    assert found["marked"] == [1, 1]
    assert found["methods"] == ["scaffold"]


def test_copies_run_the_configuration_again(seen: Callable[..., Any]) -> None:
    found = seen(
        """
        found.hyperparameters = { ...choice.row.hyperparameters };
        found.label = LABELS[choice.row.label].name;
        for (const form of Object.keys(COPIES)) { change({ copy: form }); found[form] = text("copied-text"); }
        choice.row.hyperparameters.batch_size = 7;
        found.sized = JSON.parse(COPIES.trial.text(choice.row));
        delete choice.row.hyperparameters.batch_size;
        choice.row.hyperparameters.gradient_weights = [1, 2];
        found.list = COPIES.yaml.text(choice.row);
        """
    )
    values, label = found["hyperparameters"], found["label"]
    trial = trainers.parse(json.loads(found["trial"]))
    best = Frontier(RESULT).best()
    assert (best.label, best.hyperparameters) == (label, values)
    own = trainers.parse(best.trial(STUDY))
    for part in ("method", "optimizers", "schedule", "rounds", "seed", "clients_per_round"):
        assert getattr(trial, part) == getattr(own, part)
    assert found["sized"]["batch_size"] == 7
    assert "batch_size" not in found["sized"]["method"]
    one = Study.from_yaml(found["yaml"])
    assert one.labels == (label,)
    assert {name: form.to_json() for name, form in one.methods[0].parameters().items()} == values
    assert (one.task, one.clients_per_round, one.budget.rounds) == (STUDY.task, 10, 100)
    assert Study.from_yaml(found["list"]).methods[0].space["gradient_weights"].to_json() == {"choice": [[1, 2]]}
    names: dict[str, Any] = {}
    exec(found["python"].partition("frontier =")[0], names)
    assert names["study"] == one


def test_copies_of_a_budget_of_spend_have_the_rounds_of_their_own_trial(seen: Callable[..., Any]) -> None:
    budget = {"trials_per_method": 2, "client_gradients": 60, "seeds": 0}
    entry = {"name": "fedavg", "space": {"client_lr": 0.1}, "schedule": "cosine"}
    spent = Study(name="spent", task="digits", methods=[entry], budget=budget)
    trials = [curve([0.1, 0.5, 0.6, 0.7], gradients=20), curve([0.1, 0.2], number=1, gradients=10, state="STOPPED")]
    result = frontier_document("spent", trials, Chosen(), 60, unit="client_gradients", rungs=(10, 60))
    text = frontier_html({**result, "specification": spent.to_json()}, trials)
    found = seen("found.trials = ROWS.map((row) => COPIES.trial.text(row));", text=text)
    copies = {trial["method"]["client_lr"]: trial for trial in map(json.loads, found["trials"])}
    assert {rate: (trial["rounds"], trial["schedule"]["rounds"]) for rate, trial in copies.items()} == {
        0.1: (3, 3),
        0.2: (6, 6),
    }


def test_yaml_and_python_of_any_value_are_read_back(seen: Callable[..., Any]) -> None:
    value = {
        "text": 'a: "b" #c\\\n\t\u00e9\u2028',
        "odd key: x": [None, True, False, 1e-7, 1e22, -0.5, 3],
        "nested": [{"a": [], "b": {}}, {"c": [[1], {"d": "yes"}]}, "no"],
        "long": [f"item {number}" for number in range(40)],
    }
    found = seen(f"const value = {json.dumps(value)}; found.yaml = yaml(value); found.python = python(value);")
    assert yaml_files.read(found["yaml"]) == value
    assert eval(found["python"]) == value


def test_rank_correlations_are_spearmans(seen: Callable[..., Any]) -> None:
    from scipy.stats import spearmanr

    one, other = [3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8, 2, 8, 1, 8]
    found = seen(
        f"""
        found.value = rankCorrelation({one}, {other});
        found.none = [rankCorrelation([1, 2], [1, 2]), rankCorrelation([1, 1, 1], [1, 2, 3])];
        found.table = cells("correlations");
        """
    )
    assert math.isclose(found["value"], spearmanr(one, other).statistic, rel_tol=1e-9)
    assert found["none"] == [None, None]
    assert {row[1] for row in found["table"]} == {"client_lr", "local_steps"}  # the others do not differ


def test_values_that_change_nothing_are_any(seen: Callable[..., Any]) -> None:
    rules = {"client_lr": [{"local_steps": 1}]}
    methods = {label: {**method, "inactive": rules} for label, method in RESULT["methods"].items()}
    found = seen(
        """
        const free = ROWS.filter((row) => row.hyperparameters.local_steps === 1);
        found.free = free.length;
        found.lines = free.map((row) => about(row).includes("client_lr: any"));
        found.text = free.map(hyperparametersText).every((text) => text.startsWith("client_lr any, local_steps 1"));
        found.cells = cells("configurations").filter((row) => row.includes("any")).length;
        found.slice = slices[0].points.filter((point) => point.row.hyperparameters.local_steps === 1).length;
        found.copied = JSON.parse(COPIES.trial.text(free[0])).method.client_lr === free[0].hyperparameters.client_lr;
        """,
        text=frontier_html({**RESULT, "methods": methods}, TRIALS),
        fragment="all=",
    )
    assert found["free"] > 0
    assert all(found["lines"])
    assert (found["text"], found["cells"], found["slice"], found["copied"]) == (True, found["free"], 0, True)


def test_long_lists_are_shown_by_their_ends(seen: Callable[..., Any]) -> None:
    found = seen("found.texts = [[0, 0.123456, null], [0.5, ...Array(998).fill(1), 2]].map((list) => plain(list));")
    assert found["texts"] == ["[0, 0.1235, null]", "[0.5, 1, 1, ..., 2] (1000 values)"]


def test_rows_have_the_lists_that_they_share(seen: Callable[..., Any]) -> None:
    given = [[0.5, *[1] * 998, 2], [1.0] * 1000]
    trials = [
        curve([0.1, 0.5 + n / 100], number=n, hyperparameters={"client_lr": 0.1, "mixing": given[n % 2]})
        for n in range(4)
    ]
    found = seen(
        """
        found.rows = ROWS.map((row) => [row.configuration, row.hyperparameters.mixing]);
        found.varied = varied(ROWS);
        found.cells = cells("configurations").map((row) => row.at(-1));
        """,
        text=frontier_html(frontier_document("s", trials, Chosen(), 1), trials),
        fragment="all=",
    )
    assert sorted(found["rows"]) == [[n, given[n % 2]] for n in range(4)]
    assert found["varied"] == ["mixing"]
    assert sorted(set(found["cells"])) == ["[0.5, 1, 1, ..., 2] (1000 values)", "[1, 1, 1, ..., 1] (1000 values)"]


def test_the_effort_curve_shows_where_the_order_changes(seen: Callable[..., Any]) -> None:
    def efforts(*areas: float) -> dict[str, Any]:
        rows = [
            {
                "trials": k,
                "area": area,
                "low": area - 0.1,
                "high": area + 0.1,
                "influence": [0.0, 0.001, 0.0, -area / 99],
            }
            for k, area in zip((1, 3), areas, strict=True)
        ]
        return {"configurations": [0, 1, 2, 3], "searches": [0, 0, 1, 1], "rows": rows}

    own = {"fedavg": efforts(0.5, 0.6), "scaffold": efforts(0.2, 0.7)}
    methods = {label: {**method, "efforts": own[label]} for label, method in RESULT["methods"].items()}
    script = """
        const section = document.getElementById("efforts-section");
        found.hidden = section.hidden;
        found.said = [...section.querySelectorAll("li")].map((item) => item.textContent);
        found.ticks = [...section.querySelectorAll("svg text[text-anchor=middle]")].map((text) => text.textContent);
        """
    found = seen(script, text=frontier_html({**RESULT, "methods": methods}, TRIALS))
    assert not found["hidden"]
    (said,) = found["said"]
    assert re.fullmatch(
        r"fedavg is ahead of scaffold after 1 trial \(.*\), then scaffold after 3 trials \(.*\)\.", said
    )
    assert found["ticks"][:2] == ["1", "3"]
    assert seen(script)["hidden"]  # without numbers


def test_quality_and_cost_can_be_chosen(seen: Callable[..., Any]) -> None:
    found = seen(
        """
        const select = document.getElementById("reading");
        found.choices = [...select.options].map((option) => option.textContent);
        select.value = select.options.length - 1;
        select.dispatchEvent(new Event("change"));
        found.advice = text("advice");
        found.shown = all("[data-reading]").filter((part) => !part.hidden).map((part) => part.dataset.reading);
        found.titles = all("#frontier text.title").map((title) => title.textContent);
        """
    )
    assert found["choices"][0] == "test_accuracy against rounds"
    assert found["choices"][-1] == "test_loss against rounds"
    assert "test_accuracy against bytes" in found["choices"]
    assert "expect test_loss" in found["advice"]
    assert set(found["shown"]) == {str(len(found["choices"]) - 1)}
    assert found["titles"] == ["communication rounds", "test loss (lower is better)"]


def test_the_address_holds_the_choice(seen: Callable[..., Any]) -> None:
    found = seen(
        """
        change({ reading: 1 });
        change({ budget: 5e6, row: ROWS[3], filter: "fedavg", all: true, sort: "seeds", down: true, copy: "yaml" });
        change({ hidden: new Set([1]) });
        const before = { ...choice, hidden: [...choice.hidden], row: choice.row.key };
        readChoice();
        found.same = [before, { ...choice, hidden: [...choice.hidden], row: choice.row.key }];
        history.replaceState(null, "", "#");
        restore();
        found.fresh = { ...choice, hidden: [...choice.hidden], row: null };
        """
    )
    before, after = found["same"]
    assert before["budget"] == 5e6
    assert after == before
    assert found["fresh"] == {
        "reading": 0, "budget": None, "row": None, "filter": "", "all": False, "sort": "", "down": False,
        "copy": "trial", "hidden": [],
    }  # fmt: skip


def test_an_address_that_nobody_made_here_is_read_as_far_as_it_goes(seen: Callable[..., Any]) -> None:
    fragment = "copy=constructor&reading=length&budget=-1&row=none&sort=none&hide=none"
    found = seen("found.copy = choice.copy; found.rows = tableRows.length;", fragment=fragment)
    assert found == {"copy": "trial", "rows": 12}


def test_a_phone_needs_no_sideways_scrolling_and_a_keyboard_no_mouse(seen: Callable[..., Any]) -> None:
    found = seen(
        """
        found.width = [innerWidth, document.scrollingElement.scrollWidth - document.scrollingElement.clientWidth];
        press(speedView.root, "ArrowRight");
        const first = told();
        press(speedView.root, "ArrowRight");
        found.told = [first, told()];
        press(speedView.root, "Enter");
        found.chosen = about(choice.row);
        press(speedView.root, "Escape");
        found.hidden = tip.hidden;
        found.reachable = all("svg[tabindex]").length;
        found.cut = [document.querySelector("body > div > .scroll > table"), ...all("table:has(td.run)")]
            .filter((table) => table.scrollWidth > table.parentElement.clientWidth).map((table) => table.innerText);
        """,
        width=390,
    )
    assert found["cut"] == []
    assert found["width"] == [390, 0]
    first, second = found["told"]
    assert first != second
    assert found["chosen"] == second
    assert found["hidden"]
    assert found["reachable"] >= 5


def test_long_names_leave_room_for_the_numbers_on_a_phone(seen: Callable[..., Any]) -> None:
    name = "fedavg_with_a_server_that_has_momentum_and_schedule"
    trials = study((name, "scaffold"), 24, rounds=100, confirm=6)
    found = seen(
        """
        found.ends = all("tbody th").map((cell) => cell.getBoundingClientRect().right);
        window.scrollTo(0, document.getElementById("methods").offsetTop + 200);
        document.querySelector("#configurations").scrollIntoView();
        const box = document.getElementById("methods").getBoundingClientRect();
        found.above = document.elementFromPoint(box.left + 20, box.bottom - 4).closest("#methods") !== null;
        """,
        text=frontier_html(frontier_document("digits", trials, Chosen(), 100), trials),
        width=390,
    )
    assert max(found["ends"]) < 150
    assert found["above"]


def test_errors_are_named_where_accuracies_are_drawn_as_errors(seen: Callable[..., Any]) -> None:
    found = seen(
        """
        found.slices = text("slices-quality");
        found.axes = all("#parallel text.title").map((title) => title.textContent);
        """
    )
    assert found["slices"] == "Vertical: 1 \N{MINUS SIGN} test accuracy (lower is better), at the end."
    assert found["axes"][-1] == "1 \N{MINUS SIGN} ends"


def test_rings_are_explained_where_there_are_any(seen: Callable[..., Any]) -> None:
    found = seen(
        """
        found.shown = [!document.getElementById("predicted").hidden];
        DATA.readings[0].predicted = [[tableRows[0].index, 10, 0.9]];
        drawConfigurations();
        found.shown.push(!document.getElementById("predicted").hidden);
        """
    )
    assert found["shown"] == [False, True]


def test_ticks_are_round(seen: Callable[..., Any]) -> None:
    ticks = {
        "log, 0.05, 2.3": ["0.05", "0.1", "0.2", "0.5", "1", "2"],
        "log, 0.081, 0.094": ["0.082", "0.084", "0.086", "0.088", "0.09", "0.092", "0.094"],
        "log, 1e-9, 1": ["1e-8", "1e-6", "0.0001", "0.01", "1"],
        "log, 14, 17": ["14", "15", "16", "17"],
        "log, 5, 8": ["5", "6", "7", "8"],
        "log, 1, 1000": ["1", "2", "5", "10", "20", "50", "100", "200", "500", "1000"],
        "log, 1e5, 3e6": ["100k", "200k", "500k", "1M", "2M"],
        "error, 0.5, 0.98": ["0.02", "0.05", "0.1", "0.2", "0.5"],
        "linear, 0, 1": ["0", "0.2", "0.4", "0.6", "0.8", "1"],
    }
    found = seen(
        f"""
        for (const name of {list(ticks)}) {{
          const [kind, ...ends] = name.split(", ");
          found[name] = scale(kind, ends.map(Number), 0, 400).ticks(9).map(([, label]) => label);
        }}
        found.few = scale("log", [0.004, 0.2], 0, 100).ticks(1).map(([, label]) => label);
        found.ends = [scale("error", [0.5, 0.98], 0, 400, 0).at(1), scale("log", [0.1, 1], 0, 400, 0).at(0)];
        """
    )
    assert found.pop("few") == ["0.01", "0.1"]  # one alone would show no scale
    assert found.pop("ends") == [0, 0]  # an error and a loss of 0 are drawn at the end of the axis
    assert found == ticks


def test_a_page_of_nothing_draws_nothing(seen: Callable[..., Any]) -> None:
    empty = frontier_document("empty", [], Chosen(), 1, ["fedavg"])
    found = seen(
        """
        found.charts = all("svg").length;
        found.headings = all("h2").filter((heading) => heading.checkVisibility()).map((heading) => heading.textContent);
        found.said = document.body.innerText;
        """,
        text=frontier_html(empty),
    )
    assert (found["charts"], found["headings"]) == (0, ["What to run", "Comparisons", "Ledger"])
    assert "Nothing to recommend yet." in found["said"]


def test_a_study_whose_trials_all_diverged_says_so(seen: Callable[..., Any]) -> None:
    trials = [curve([0.1, 0.3, 0.1], number=number, state="DIVERGED") for number in range(3)]
    result = frontier_document("diverged", trials, Chosen(), 10)
    found = seen("found.choices = cells('choices'); found.speed = text('speed');", text=frontier_html(result, trials))
    diverged = "a configuration that diverged later on every seed"
    assert found == {"choices": [["fedavg", "0.3", "1", "\u2013", diverged]], "speed": "No configuration to show."}
    assert diverged in frontier_html(result)
    assert diverged.split()[-1] in Frontier(result).table()


def test_text_from_users_is_only_text(seen: Callable[..., Any]) -> None:
    evil = "</script><img src=x onerror=alert(1)>\u202e"
    trials = study((evil,), 8, rounds=20, confirm=2)
    page = frontier_html(frontier_document(evil, trials, Chosen(), 20), trials)
    found = seen(
        """
        hoverAll(speedView);
        found.images = document.images.length;
        found.tip = tip.textContent;
        """,
        text=page,
    )
    assert found["images"] == 0
    assert found["tip"].startswith("</script><img src=x onerror=alert(1)>\\u202e")
