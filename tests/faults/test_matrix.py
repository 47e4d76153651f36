"""A service that dies at any commit, file operation, request or call to MLflow, and goes on as if nothing had been.

Each point is a study of its own: one process (or the whole of an embedded run) is killed at one site, or several are,
and started again; or a driver hangs there for ever. Afterwards no result is lost, none is there twice, nothing is left
running, at most one checkpoint interval was trained again, and curves, values and MLflow's rows equal those of the
study that nobody disturbed.

Each commit, route, file operation and call to MLflow has one kill; with `make test-faults ALL=1` there are 200 in all.
"""

import json
import os
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.faults.fuse import Kill
from tests.faults.matrix import Answer, Matrix, kind, one_of_each, spread, started

pytest.importorskip("ray.tune", reason="install driftline with ray[tune]")
ALL = bool(os.environ.get("ALL"))
AT_ONCE = 6  # they wait more than they compute
LEAST = 200 if ALL else 100
PARTS = ("owner", "api", "driver", "scheduler", "recorder")
Point = tuple[str, list[Kill]]


@pytest.fixture(scope="module")
def matrix() -> Iterator[Matrix]:
    with started(AT_ONCE) as made:
        yield made


@pytest.fixture(scope="module")
def answers(matrix: Matrix, request: pytest.FixtureRequest) -> dict[str, list[Answer]]:
    """By name of the tests that are run, the answers to their points.

    All points are run together: with those of one test after the other, a core would be idle at the end of each.
    """
    began = time.monotonic()
    items = [item for item in request.session.items if isinstance(item, pytest.Function) and hasattr(item, "callspec")]
    names = {item.callspec.params.get("killed") for item in items if item.path == request.path}
    chosen = {name: of_name for name, of_name in points(matrix).items() if name in names}
    found = iter(run(matrix, [point for of_name in chosen.values() for point in of_name]))
    print(f"{sum(map(len, chosen.values()))} studies in {time.monotonic() - began:.0f} s")
    return {name: [next(found) for _ in of_name] for name, of_name in chosen.items()}


def judge(answers: Sequence[Answer], *, missed: float = 0.0) -> None:
    """Fails with all that went wrong; some kills may not happen where the order of events is not fixed.

    Where some may be missed, one may always be.
    """
    wrong = [(answer["scenario"], answer["kills"], answer["problems"]) for answer in answers if answer["problems"]]
    assert not wrong, "\n".join(map(str, wrong))
    not_killed = [answer["kills"] for answer in answers if not answer["killed"]]
    allowed = max(1.0, missed * len(answers)) if missed else 0.0
    assert len(not_killed) <= allowed, f"nothing died at {not_killed}"


def run(matrix: Matrix, chosen: Sequence[Point]) -> list[Answer]:
    """Answers to all points; where nothing died, the kill is tried once more, at the first passage of its site.

    How often a site is passed hangs on time where one call serves whatever has come until then: a recorder that is
    quicker than its driver writes in more, smaller batches, and a client that waits for the API asks more often.
    """
    answers = matrix.run(chosen)
    missed = [index for index, answer in enumerate(answers) if not answer["killed"] and not answer["problems"]]
    earlier: list[Point] = [
        (answers[index]["scenario"], [(component, site, 1) for component, site, _ in answers[index]["kills"]])
        for index in missed
    ]
    for index, answer in zip(missed, matrix.run(earlier) if earlier else [], strict=True):
        answers[index] = answer
    return answers


def deaths() -> list[Point]:
    """Workers that die twice in every four steps, five times and more each; alone, and with a driver or an API."""
    workers: list[Kill] = [("driver", "worker dies >", count) for count in range(3, 80) if count % 4 in (3, 0)]
    others: list[Kill] = [("driver", "POST /v1/studies/ID/results >", 3), ("api", "commit Trials.finish >", 5)]
    return [("deaths", workers), *(("deaths", [*workers, other]) for other in others)]


def at_retry(matrix: Matrix) -> list[Kill]:
    """Kills of the components that take part in a retry of trials, during the retry."""
    return [kill for kill in matrix.kills("retried", PARTS) if "retry" in kill[1] or "Retries." in kill[1]]


def points(matrix: Matrix) -> dict[str, list[Point]]:
    """The matrix: what is killed, by name of its test."""

    def chosen(scenario: str, components: Sequence[str], most: int, without: Iterable[Kill] = ()) -> list[Kill]:
        """One kill of each kind but these kinds; with `ALL`, an even spread of further ones up to so many."""
        kinds = {kind(kill) for kill in without}
        kills = matrix.kills(scenario, components)
        first = one_of_each(kill for kill in kills if kind(kill) not in kinds)
        if not ALL:
            return first
        return [*first, *spread([kill for kill in kills if kill not in first], most - len(first))]

    plain = matrix.kills("plain", PARTS)
    retries = at_retry(matrix)
    draw = random.Random(6)
    kills = {
        "embedded": chosen("embedded", ["embedded"], 140),
        "driver": chosen("plain", ["driver"], 24),
        "api": chosen("plain", ["api"], 28),
        "scheduler and owner": chosen("plain", ["scheduler", "owner"], 10),
        "recorder": chosen("plain", ["recorder"], 12),
        "paused": chosen("paused", PARTS, 16, without=plain),
        "retried": [*retries, *chosen("retried", PARTS, 6, without=[*plain, *retries])],
    }
    rungs = matrix.kills("rungs", PARTS)
    at_rungs = [kill for kill in rungs if kill not in plain and kill[0] == "driver"]
    at_branches = [kill for kill in matrix.kills("branches", ["driver"]) if kill not in plain]
    at_reports: list[Kill] = [("driver", "worker dies >", count) for count in (1, 4, 7, 10)]
    deaths_of_programs: list[Kill] = [("driver", "program dies >", count) for count in (1, 8, 15)]
    at_programs = [*chosen("program", PARTS, 40, without=plain), *deaths_of_programs, *at_reports[1:3]]
    at_programs += spread([kill for kill in matrix.kills("program", ["driver"]) if kill in plain], 20 if ALL else 3)
    hung = spread(matrix.kills("plain", ["driver"]), 8 if ALL else 4)
    found: dict[str, list[Point]] = {
        **{
            name: [(name if name in matrix.sites else "plain", [kill]) for kill in of_name]
            for name, of_name in kills.items()
        },
        "deaths": deaths(),
        "rungs": [("rungs", [kill]) for kill in [*spread(at_rungs, 60 if ALL else 8), *at_reports]],
        "extrapolated": [("extrapolated", [kill]) for kill in [*spread(at_rungs, 20 if ALL else 4), *at_reports[1:3]]],
        "branches": [("branches", [kill]) for kill in [*spread(at_branches, 20 if ALL else 4), *at_reports]],
        "program": [("program", [kill]) for kill in at_programs],
        "hung": [("hung", [kill]) for kill in hung],
        "several": [("plain", sorted(draw.sample(plain, 3))) for _ in range(4)],
    }
    for scenario in ("rungs", "extrapolated", "branches"):  # what these alone pass, because they take longer
        covered = {kind(kill) for of_name in found.values() for _, killed in of_name for kill in killed}
        found[scenario] += [(scenario, [kill]) for kill in chosen(scenario, PARTS, 0) if kind(kill) not in covered]
    return found


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "killed",
    [
        "embedded",
        "driver",
        "api",
        "scheduler and owner",
        "recorder",
        "paused",
        "deaths",
        "retried",
        "rungs",
        "extrapolated",
        "branches",
        "program",
        "hung",
        "several",
    ],
)
def test_what_is_killed_comes_back(answers: dict[str, list[Answer]], killed: str) -> None:
    own = answers[killed]
    died = sum(bool(answer["killed"]) for answer in own)
    print(f"{killed}: {len(own)} points, {died} deaths, {max(answer['seconds'] for answer in own):.0f} s at most")
    judge(own, missed=0.3 if killed in ("paused", "retried") else 0.15)
    if killed == "deaths":
        assert max(len(answer["killed"]) for answer in own) >= 15
    if killed == "branches":
        curves = json.loads((Path(own[0]["folder"]) / "facts").read_text())["curves"].values()
        assert any(0 < curve["shared_gradients"][-1] < curve["client_gradients"][-1] for curve in curves)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(1800)
def test_there_are_enough_points(matrix: Matrix) -> None:
    counts = {name: len(chosen) for name, chosen in points(matrix).items()}
    print(f"{sum(counts.values())} points: {counts}")
    assert sum(counts.values()) >= LEAST
    kinds = {site.split()[0] for scenario in matrix.sites.values() for sites in scenario.values() for site, _ in sites}
    assert {"commit", "fsync", "replace", "remove", "served", "mlflow", "launcher", "POST", "GET", "worker"} <= kinds
    possible = {kind(kill) for scenario, parts in matrix.sites.items() for kill in matrix.kills(scenario, parts)}
    assert possible <= {kind(kill) for chosen in points(matrix).values() for _, kills in chosen for kill in kills}
    assert {kill[1] for kill in at_retry(matrix)} >= {
        f"{site} {side}" for site in ("commit Retries.request", "POST /v1/studies/ID:retry") for side in "<>"
    }
