"""Which rounds are shown, and links."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.recorder.curve_rows import ROUNDS_SHOWN, metric_name, rows, shown_rounds, totals
from service.recorder.links import server_page


@given(st.integers(1, 200_000))
def test_shown_rounds_rise_from_0_to_the_budget(rounds: int) -> None:
    grid = shown_rounds(rounds)
    assert (grid[0], grid[-1]) == (0, rounds)
    assert len(grid) == min(rounds, ROUNDS_SHOWN) + 1
    assert (np.diff(grid) >= 1).all()


@given(st.integers(1, 400), st.integers(1, 7), st.lists(st.integers(0, 400), max_size=4))
def test_a_curve_written_in_several_goes_has_the_same_rows(rounds: int, every: int, stops: list[int]) -> None:
    at = np.arange(rounds + 1, dtype=float)
    columns = {"round": at, "test_loss": np.where(at % every == 0, 1 / (1 + at), np.nan), "client_lr": 0.1 + 0 * at}
    whole = rows(columns, rounds, -1, rounds)
    after, parts = -1, []
    for stop in sorted(min(stop, rounds) for stop in stops):
        here = {name: values[: stop + 1] for name, values in columns.items()}
        parts += rows(here, rounds, after, stop, finished=False)
        after = stop
    parts += rows(columns, rounds, after, rounds)
    assert sorted(parts) == sorted(whole)
    assert len(whole) <= ROUNDS_SHOWN + 3


def test_counters_show_their_totals() -> None:
    columns = {"round": np.arange(3.0), "bytes_up": np.array([0.0, 4.0, np.nan]), "test_loss": np.ones(3)}
    assert totals(columns) == {"bytes_up": 4.0}


def test_names_that_mlflow_takes() -> None:
    assert metric_name("recall@10") == "recall_10"
    assert metric_name("server.momentum") == "server.momentum"


@pytest.mark.parametrize("uri", ["http://mlflow:5000", "http://mlflow:5000/"])
def test_links(uri: str) -> None:
    page = "#/experiments/3/runs?compareRunsMode=CHART&viewStateShareKey=driftline"
    assert server_page(uri, "3", "driftline") == f"http://mlflow:5000/{page}"
    public = server_page(uri, "3", "driftline", public_url="https://ml.example.org/x")
    assert public == f"https://ml.example.org/x/{page}"
