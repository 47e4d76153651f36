"""Whoever asks what to run for a cost gets one answer, at every cost that can be asked for."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from driftline.results.curves import TrialCurve
from driftline.results.document import Reading, frontier_document
from driftline.results.show.page import frontier_html
from driftline.results.show.picture import _figure
from driftline.results.show.recommendation_rows import recommendation_rows
from driftline.sdk.frontier import Frontier
from service.recorder.run_contents import frontier_rows

from .samples import confirmed
from .test_show import data


def trials(metric: str, searches: int, seeds: int, rounds: int) -> list[TrialCurve]:
    """Two labels; configurations with rounds that cost 2 to 5.5 gradients learn more slowly and end better."""
    random, found = np.random.default_rng(searches), []
    at = np.arange(rounds + 1)
    for label in ("a", "b"):
        for configuration in range(4 * searches):
            rate = 10 ** random.uniform(-1.5, 0.0)
            end = 0.1 + 0.4 * rate + 0.1 * random.uniform()
            curves = [
                (end + (2.3 - end) * np.exp(-rate * at)) * np.exp(0.1 * random.standard_normal(rounds + 1))
                for _ in range(seeds + 1)
            ]
            values = [loss if metric == "test_loss" else 0.8 - loss / 5 for loss in curves]
            made = confirmed(
                values, configuration=configuration, label=label, metric=metric,
                gradients=random.integers(4, 12) / 2, hyperparameters={"client_lr": rate},
            )  # fmt: skip
            search = configuration // 4
            found += [replace(trial, search=search, seed=trial.seed + 10 * search) for trial in made]
    return found


@pytest.mark.parametrize(
    ("metric", "cost", "searches", "seeds", "rounds"),
    [
        ("test_loss", "rounds", 1, 6, 120),
        ("test_accuracy", "client_gradients", 6, 3, 40),
        ("test_loss", "client_gradients", 2, 1, 60),
    ],
)
def test_all_ways_to_ask_agree(metric: str, cost: str, searches: int, seeds: int, rounds: int) -> None:
    reading = Reading(metric, cost)
    curves = trials(metric, searches, seeds, rounds)
    result = frontier_document("s", curves, reading, rounds)
    frontier, page = Frontier(result), data(frontier_html(result, curves))
    figure = _figure(result, 72)
    last = int(result["scale"]["last"])
    turn = 1 if metric == "test_accuracy" else -1
    for number, (label, method) in enumerate(result["methods"].items()):
        rows = recommendation_rows(result, label)
        assert len(rows) > 1, "the configuration changes"
        mlflow = [row for row in frontier_rows(method, reading) if row[0] == "frontier"]
        line = next(line for line in figure.axes[0].lines if _same(line, method))
        printed = frontier.table().partition(f"{label}: recommendations")[2]
        assert all(any(text.split()[:1] == [row.end_text] for text in printed.splitlines()) for row in rows)
        for at in range(int(np.ceil(method["recommendations"][0]["cost"])), last + 1):
            best = frontier.best(label, cost=at)
            step = [row for row in method["recommendations"] if row["cost"] <= at][-1]
            run = [step[name] for name in ("configuration", "round", "quality", "low", "high")]
            assert [best.configuration, best.rounds, best.quality, best.low, best.high] == run
            assert [row["quality"] for row in method["frontier"] if row["cost"] <= at][-1] == best.quality
            table = next(row for row in rows if row.start <= at <= row.end or row is rows[-1])
            assert table.configuration["configuration"] == best.configuration
            if at == table.end:
                assert (table.stop, *table.quality) == (best.rounds, best.quality, best.low, best.high)
            assert [value for _, value, step_ in mlflow if step_ <= at][-1] == best.quality
            assert line.get_ydata()[np.flatnonzero(line.get_xdata() <= at)[-1]] == best.quality
            offered = _offer(page["readings"][0]["frontiers"][number], at)
            assert page["rows"][offered["row"]][2] == best.configuration
            assert offered["round"] == best.rounds
            promised = [offered[name] for name in ("quality", "low", "high")]
            assert promised == pytest.approx([best.quality, best.low, best.high], rel=1e-6)
        if seeds > 1:
            runs = {(row["configuration"], row["round"]): row["quality"] for row in method["recommendations"]}
            assert len(runs) == len(set(runs.values())) == len(method["recommendations"])
            assert (np.diff([turn * row["quality"] for row in method["recommendations"]]) > 0).all()
    for at in range(1, last + 1):
        ends = {
            label: _last(method, at) for label, method in result["methods"].items() if _last(method, at) is not None
        }
        if ends:
            assert frontier.best(cost=at).label == max(ends, key=lambda label: turn * ends[label])


def _same(line: Any, method: dict[str, Any]) -> bool:
    return list(line.get_ydata()) == [row["quality"] for row in method["frontier"]]


def _last(method: dict[str, Any], at: float) -> float | None:
    rows = [row["quality"] for row in method["recommendations"] if row["cost"] <= at]
    return rows[-1] if rows else None


def _offer(frontier: dict[str, list[Any]], at: float) -> dict[str, Any]:
    """What the page offers: the last step that costs no more (tests/browser asks the page itself)."""
    step = max(index for index, cost in enumerate(frontier["cost"]) if cost <= at)
    return {name: column[step] for name, column in frontier.items()}
