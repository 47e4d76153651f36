"""A service that dies at any commit, file operation, request or call to MLflow, and goes on as if nothing had been.

Each point is a study of its own: one process (or the whole of an embedded run) is killed at one site, or several are,
and started again; or a driver hangs there for ever. Afterwards no result is lost, none is there twice, nothing is left
running, at most one checkpoint interval was trained again, and curves, values and MLflow's rows equal those of the
study that nobody disturbed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence

import pytest

from tests.faults.fuse import Kill
from tests.faults.matrix import Answer, Matrix, spread, started

pytest.importorskip("ray.tune", reason="install driftline with ray[tune]")
AT_ONCE = 3
LEAST = 200


@pytest.fixture(scope="module")
def matrix() -> Iterator[Matrix]:
    with started(AT_ONCE) as made:
        yield made


def judge(answers: Sequence[Answer], *, missed: float = 0.0) -> None:
    """Fails with all that went wrong; some kills may not happen where the order of events is not fixed."""
    wrong = [(answer["scenario"], answer["kills"], answer["problems"]) for answer in answers if answer["problems"]]
    assert not wrong, "\n".join(map(str, wrong))
    not_killed = [answer["kills"] for answer in answers if not answer["killed"]]
    assert len(not_killed) <= missed * len(answers), f"nothing died at {not_killed}"


@pytest.mark.timeout(600)
def test_an_embedded_run_dies_at_five_sites() -> None:
    with started(2, ("embedded",)) as small:
        judge(small.run(small.points("embedded", ["embedded"], 5)), missed=0.2)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_workers_die_many_times_and_failed_trials_are_retried() -> None:
    with started(2, ("plain", "retried")) as small:
        retries = small.retries(0)
        assert {kill[1] for _, (kill,) in retries} >= {
            f"{site} {side}" for site in ("commit Retries.request", "POST /v1/studies/ID:retry") for side in "<>"
        }
        answers = small.run([small.deaths()[0], *spread(retries, 2)])
        judge(answers)
        assert all(len(answer["killed"]) >= 20 for answer in answers if answer["scenario"] == "deaths")


def points(matrix: Matrix) -> dict[str, list[tuple[str, list[Kill]]]]:
    """The matrix: what is killed, by name of its test."""
    draw = random.Random(6)
    plain = matrix.sites["plain"]
    everything = [(part, site, count) for part, sites in plain.items() for site, count in sites]
    return {
        "embedded": matrix.points("embedded", ["embedded"], 140),
        "driver": matrix.points("plain", ["driver"], 24),
        "api": matrix.points("plain", ["api"], 14),
        "scheduler and owner": matrix.points("plain", ["scheduler", "owner"], 10),
        "recorder": matrix.points("plain", ["recorder"], 8),
        "paused": matrix.points("paused", ["driver", "api", "scheduler"], 6),
        "deaths": matrix.deaths(),
        "retried": matrix.retries(6),
        "hung": [("hung", kills) for _, kills in matrix.points("plain", ["driver"], 8)],
        "several": [("plain", sorted(draw.sample(everything, 3))) for _ in range(4)],
    }


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "killed",
    ["embedded", "driver", "api", "scheduler and owner", "recorder", "paused", "deaths", "retried", "hung", "several"],
)
def test_what_is_killed_comes_back(matrix: Matrix, killed: str) -> None:
    chosen = points(matrix)[killed]
    began = time.monotonic()
    answers = matrix.run(chosen)
    died = sum(bool(answer["killed"]) for answer in answers)
    print(f"{killed}: {len(chosen)} points, {died} deaths, {time.monotonic() - began:.0f} s")
    judge(answers, missed=0.3 if killed in ("paused", "retried") else 0.15)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(1800)
def test_there_are_enough_points(matrix: Matrix) -> None:
    counts = {name: len(chosen) for name, chosen in points(matrix).items()}
    print(f"{sum(counts.values())} points: {counts}")
    assert sum(counts.values()) >= LEAST
    kinds = {site.split()[0] for scenario in matrix.sites.values() for sites in scenario.values() for site, _ in sites}
    assert {"commit", "fsync", "replace", "remove", "served", "mlflow", "launcher", "POST", "GET", "worker"} <= kinds


def test_a_spread_has_both_ends() -> None:
    assert spread(range(100), 5) == [0, 25, 50, 74, 99]
