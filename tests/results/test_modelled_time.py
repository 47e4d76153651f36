"""Modelled time: the formula by hand and as properties, its units, and results read with it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.errors import InvalidSpec
from driftline.results.comparison import compare
from driftline.results.curves import TrialCurve
from driftline.results.document import Reading, frontier_document
from driftline.results.modelled_time import COUNTERS, Link, Time, modelled_seconds, slowdown, speed
from driftline.results.show.axes import cost_title
from driftline.results.show.text_table import table

from .samples import confirmed, curve

POSITIVE = st.floats(1e-3, 1e3)
AMOUNTS = st.integers(0, 10**9)
COUNTS = st.fixed_dictionaries(dict.fromkeys(COUNTERS, AMOUNTS))
CLIENTS = st.integers(1, 1000)
PLAN = {"clients_per_round": 4, "flops_per_example": 1e6}


def seconds(
    counters: dict[str, Any],
    clients: int,
    *,
    bandwidth: float = 1.0,
    latency: float = 1.0,
    compute: float = 1.0,
    **more: Any,
) -> float:
    """Modelled time with a bandwidth in Mbit/s, a latency in ms, a speed in GFLOPS and a million operations."""
    time = Time(f"{bandwidth!r}Mbit,{latency!r}ms", f"{compute!r}GFLOPS", **{"flops_per_example": 1e6, **more})
    return float(modelled_seconds(counters, time, clients))


def priced(trial: TrialCurve, **more: Any) -> TrialCurve:
    """The trial at 8 kbit/s, 10 ms and 1 GFLOP/s."""
    return Time("8kbit,10ms", "1GFLOPS", **more).priced([trial])[1][0]


def read(time: Time, trials: tuple[TrialCurve, ...]) -> tuple[Reading, tuple[TrialCurve, ...]]:
    time, curves = time.priced(trials)
    return Reading("test_accuracy", "time", time), curves


def counted(values: Any, examples: int = 100, plan: dict[str, Any] = PLAN, **more: Any) -> TrialCurve:
    """A trial whose slowest client computes `examples` examples in each round."""
    made = curve(values, slowest_examples=examples * np.arange(len(values)), **more)
    return replace(made, plan=plan, _cache={})


def test_a_round_by_hand() -> None:
    """100 examples of a million operations at 1 GFLOP/s, 10 ms, and a quarter of 800 bytes over 1 kByte/s."""
    found = priced(counted([0, 1, 2]))
    np.testing.assert_allclose(found.cost("time"), [0, 0.1 + 0.01 + 0.2, 2 * 0.31], rtol=1e-15)
    late = priced(counted([0, 1, 2]), stragglers=2.0)
    harmonic = 1 + 1 / 2 + 1 / 3 + 1 / 4
    np.testing.assert_allclose(late.cost("time"), [0, 0.1 * (1 + 2 * harmonic) + 0.21, 2 * (0.31 + 0.2 * harmonic)])


def test_appendix_a_of_scaling_laws_for_diloco() -> None:
    """6 N D / (R Q) + (2 N / W + latency) T / H, which is its formula for a server in place of a ring of chips."""
    parameters, tokens, workers, flops, bandwidth, latency, steps, every = 35e6, 7e8, 8, 3e14, 1e10, 0.01, 10_000, 30
    number = steps / every
    counters = {
        "exchanges": number,
        "slowest_examples": tokens / workers,
        **dict.fromkeys(("bytes_up", "bytes_down"), number * workers * 2 * parameters),  # bfloat16
    }
    time = Time("10Gbit,10ms", "300TFLOPS", flops_per_example=6 * parameters)
    words = bandwidth / 16  # parameters a second
    wanted = 6 * parameters * tokens / (workers * flops) + (2 * parameters / words + latency) * number
    assert float(modelled_seconds(counters, time, workers)) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize(("replicas", "inside", "every"), [(1, 8, 30), (2, 4, 10), (8, 64, 100), (4, 1, 1)])
def test_appendix_a_with_rings(replicas: int, inside: int, every: int) -> None:
    """6 N D / (R Q) + (2 N (1 - M/R) / W0 + e0) T + (2 N (1 - 1/R) / W1 + e1) T/H, in numbers of two bytes."""
    parameters, tokens, steps = 35e6, 7e8, 12_000
    chips, exchanges = replicas * inside, steps / every
    counters = {
        "exchanges": exchanges,
        "slowest_examples": tokens / replicas,
        "client_gradients": float(steps * replicas),
        **dict.fromkeys(("bytes_up", "bytes_down"), exchanges * replicas * 2 * parameters),
    }
    time = Time("10Gbit,10ms", "300TFLOPS", flops_per_example=6 * parameters, ring=f"{inside},400Gbit,0.1ms")
    within, across = 4e11 / 16, 1e10 / 16  # numbers a second
    wanted = 6 * parameters * tokens / (chips * 3e14)
    if inside > 1:
        wanted += (2 * parameters * (1 - replicas / chips) / within + 1e-4) * steps
    wanted += (2 * parameters * (1 - 1 / chips) / across + 1e-2) * exchanges
    found = float(modelled_seconds(counters, time, replicas, 2 * parameters))
    assert found == pytest.approx(wanted, rel=1e-12)


def test_an_overlap_hides_at_most_what_is_sent() -> None:
    counters: dict[str, Any] = {"exchanges": 2.0, "slowest_examples": 100.0, "client_gradients": 40.0}
    counters |= dict.fromkeys(("bytes_up", "bytes_down"), 4e6)
    plain, some, all_ = (seconds(counters, 4, bandwidth=16.0, latency=0.0, overlap=share) for share in (0, 0.5, 1e6))
    assert plain == pytest.approx(0.1 + 1.0)
    assert some == pytest.approx(plain - 0.5 * 2 * 0.1 / 10)  # two exchanges, each of 4 clients takes 10 steps
    assert all_ == pytest.approx(0.1)


def test_an_overlap_hides_in_its_own_round_and_dropped_clients_send_nothing() -> None:
    """At 8 kbit/s the 4 clients of a round send 100 bytes each in 0.1 s, of which 0.05 s may overlap."""
    rounds = np.arange(3)
    trial = counted([0, 1, 2], client_gradients=4 * rounds, plan={**PLAN, "senders_per_round": 2})
    trial = replace(trial, columns={**trial.columns, "bytes_down": 0 * rounds, "bytes_up": 400 * rounds}, _cache={})
    np.testing.assert_allclose(priced(trial).cost("time"), 0.31 * rounds, rtol=1e-12)
    fragments = replace(trial, plan=PLAN, columns={**trial.columns, "bytes_up": np.array([0, 8, 400])}, _cache={})
    late = 0.01 + 0.098 - 0.05  # the first round sends for 0.012 s, and hides nothing of the second
    np.testing.assert_allclose(priced(fragments, overlap=0.5).cost("time"), [0, 0.1, 0.2 + late], rtol=1e-12)


def test_rings_and_overlaps_need_their_counters_and_are_named() -> None:
    ring = Time("8kbit,10ms", "1GFLOPS", ring="8,400Gbit,1ms", overlap=0.5)
    assert str(ring) == "8kbit,10ms; 1GFLOPS; ring 8,400Gbit,1ms; overlap 0.5"
    assert Time(**ring.to_json()) == ring
    assert list(Time("8kbit,10ms", "1GFLOPS").to_json()) == ["network", "compute", "stragglers", "flops_per_example"]
    gradients = 10 * np.arange(3)
    with pytest.raises(InvalidSpec, match="must store its model's size for cost=time: run the study again"):
        ring.priced([counted([0, 1, 2], client_gradients=gradients)])
    trial = counted([0, 1, 2], client_gradients=gradients, plan={**PLAN, "model_bytes": 100})
    assert ring.priced([trial])[1][0].cost("time")[-1] > 0
    for text in ("8", "0,1Gbit,1ms", "x,1Gbit,1ms", "1.5,1Gbit,1ms"):
        with pytest.raises(InvalidSpec, match=r"^ring: must be "):
            Time("8kbit,10ms", "1GFLOPS", ring=text)


@pytest.mark.parametrize("clients", [1, 7])
def test_stragglers_are_the_mean_of_the_slowest(clients: int) -> None:
    draws = np.random.default_rng(0).exponential(size=(200_000, clients))
    assert slowdown(0.3, clients) == pytest.approx(float((1 + 0.3 * draws).max(axis=1).mean()), rel=3e-3)


@given(COUNTS, CLIENTS, st.sampled_from(COUNTERS), AMOUNTS)
def test_more_of_anything_takes_longer(counters: dict[str, Any], clients: int, name: str, more: int) -> None:
    assert seconds({**counters, name: counters[name] + more}, clients) >= seconds(counters, clients)


@given(st.lists(COUNTS, min_size=1, max_size=5), CLIENTS)
def test_whole_curves_at_once(rows: list[dict[str, Any]], clients: int) -> None:
    time = Time("1Mbit,1ms", "1GFLOPS", stragglers=0.5, flops_per_example=1e6)
    columns = {name: np.array([row[name] for row in rows], float) for name in COUNTERS}
    alone = [float(modelled_seconds(row, time, clients)) for row in rows]
    np.testing.assert_allclose(modelled_seconds(columns, time, clients), alone, rtol=1e-14)


@pytest.mark.parametrize(
    ("text", "bandwidth", "latency"),
    [
        ("10Gbit,10ms", 1e10, 0.01),
        ("1.5 Mbit/s , 200us", 1.5e6, 2e-4),
        ("56kbit,1s", 56e3, 1.0),
        ("1e3bit,0ms", 1e3, 0.0),
        ("infbit,0s", np.inf, 0.0),
    ],
)
def test_networks_are_read(text: str, bandwidth: float, latency: float) -> None:
    found = Link.parse(text)
    assert (found.bandwidth, found.latency) == (pytest.approx(bandwidth), pytest.approx(latency))


@pytest.mark.parametrize(
    "text", ["", "10Gbit", "10ms,10Gbit", "10GB,10ms", "-1Gbit,1ms", "0Gbit,1ms", "1Gbit,infs", "1Gbit,1m"]
)
def test_other_networks_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(InvalidSpec, match=r"^network: must be a bandwidth above 0 and a latency, such as [^\n]*$"):
        Time(text, "1GFLOPS")


@pytest.mark.parametrize(("text", "value"), [("300GFLOPS", 3e11), ("1.5 TFLOP/s", 1.5e12), ("2eflops", 2e18)])
def test_speeds_are_read(text: str, value: float) -> None:
    assert speed(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "300", "300GF", "0GFLOPS", "-1GFLOPS", "GFLOPS"])
def test_other_speeds_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(InvalidSpec, match=r"^compute: must be a speed above 0, such as 300GFLOPS, got [^\n]*$"):
        Time("1Gbit,1ms", text)


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("stragglers", -0.1, "at least 0"),
        ("stragglers", np.nan, "at least 0"),
        ("stragglers", "0.1", "at least 0"),
        ("flops_per_example", 0, "above 0"),
        ("flops_per_example", np.inf, "above 0"),
        ("flops_per_example", True, "above 0"),
    ],
)
def test_other_numbers_are_refused(name: str, value: Any, rule: str) -> None:
    with pytest.raises(InvalidSpec, match=f"^{name}: must be a number, {rule}, got "):
        Time("1Gbit,1ms", "1GFLOPS", **{name: value})


def test_operations_are_those_of_the_study_unless_given() -> None:
    time = Time("1Gbit,1ms", "1GFLOPS")
    trials = [counted([0, 1]), counted([0, 1], number=1)]
    assert time.priced(trials)[0].flops_per_example == 1e6
    assert replace(time, flops_per_example=5.0).priced(trials)[0].flops_per_example == 5.0
    unknown = counted([0, 1], plan={"clients_per_round": 4, "flops_per_example": None})
    for others, why in (([unknown], "not stored with this study"), ([*trials, unknown], "not stored")):
        with pytest.raises(InvalidSpec, match=rf"^flops_per_example: must be given \(--flops-per-example\): .* {why}"):
            time.priced(others)
    other = counted([0, 1], plan={**PLAN, "flops_per_example": 7.0})
    with pytest.raises(InvalidSpec, match="are not the same in all its trials"):
        time.priced([*trials, other])
    assert replace(time, flops_per_example=5.0).priced([unknown, other])[0].flops_per_example == 5.0


def test_a_trial_without_a_report_is_left_as_it_is() -> None:
    waiting = replace(curve([]), columns={}, _cache={})
    time, (found, _) = Time("1Gbit,1ms", "1GFLOPS").priced([waiting, counted([0, 1])])
    assert found == waiting
    assert time.flops_per_example == 1e6


@pytest.mark.parametrize(
    ("trial", "what"),
    [(curve([0, 1]), "report slowest_examples"), (counted([0, 1], plan={}), "store its clients per round")],
    ids=["counter", "clients"],
)
def test_studies_of_older_versions_are_refused_in_one_line(trial: TrialCurve, what: str) -> None:
    with pytest.raises(InvalidSpec, match=f"^cost: trial {trial.trial} must {what} for cost=time: run the study again"):
        priced(trial)


def test_examples_are_a_cost() -> None:
    found = curve([0, 1, 2], examples=[0, 30, 60])
    assert found.cost("examples").tolist() == [0, 30, 60]
    with pytest.raises(InvalidSpec, match=r"must report examples for cost=examples; .* run the study again with"):
        curve([0, 1, 2]).cost("examples")


def test_a_result_names_what_it_was_read_with_and_has_a_verdict() -> None:
    """Equal work, so that the budgets are equal in modelled time too: 1 round takes 0.1 + 0.01 + 0.2 s."""
    ends = {"a": [0.90, 0.91, 0.89, 0.92, 0.90, 0.88], "b": [0.80, 0.82, 0.79, 0.80, 0.81, 0.78]}
    trials = tuple(
        replace(trial, columns={**trial.columns, "slowest_examples": 100 * trial.rounds}, plan=PLAN, _cache={})
        for name, values in ends.items()
        for trial in confirmed([[0.0, end, end] for end in (1.0, *values)], label=name)
    )
    reading, curves = read(Time("8kbit,10ms", "1GFLOPS", stragglers=0.25), trials)
    document = frontier_document("s", curves, reading, 2)
    parameters = document["definitions"]["parameters"]
    assert parameters["cost"] == "time"
    assert parameters["time"] == {
        "network": "8kbit,10ms", "compute": "1GFLOPS", "stragglers": 0.25, "flops_per_example": 1e6
    }  # fmt: skip
    assert document["definitions"]["cost"].startswith("modelled seconds (8kbit,10ms; 1GFLOPS; stragglers 0.25): ")
    assert cost_title(document) == "seconds, modelled (8kbit,10ms; 1GFLOPS; stragglers 0.25)"
    assert table(document).startswith("s: test_accuracy (rises) against time (8kbit,10ms; 1GFLOPS; stragglers 0.25)\n")
    assert max(map(len, table({**document, "study": "a-long-name-of-a-study"}).splitlines())) <= 80
    a_round = 0.1 * (1 + 0.25 * 25 / 12) + 0.01 + 0.2
    assert [document["scale"][name] for name in ("first", "last")] == pytest.approx([a_round, 2 * a_round])
    found = compare(document, "a", "b")
    assert (found["verdict"], found["claims"]["configurations"]["verdict"]) == (None, "a")
    assert found["ledger"]["a"]["cost"] == pytest.approx(7 * 2 * a_round)
