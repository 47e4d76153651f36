"""Properties: however reports are cut, repeated and interleaved, the same curves are stored."""

import itertools
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from driftline.wire.curve_codec import encode
from driftline.wire.driver_messages import Report
from service.store.store import Store

from .store_setup import packed, reach

ROUNDS = 300  # more than a segment
SHARED = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def curve(trial: int) -> dict[str, list[Any]]:
    rounds = list(range(ROUNDS + 1))
    return {
        "round": rounds,
        "train_loss": [None if number == 0 else 1 / (number + trial) for number in rounds],
        "test_accuracy": [number / ROUNDS if number % 7 == trial else None for number in rounds],
        "bytes_up": [number * 10**9 for number in rounds],
        "diverged": [False] * len(rounds),
    }


def part(columns: dict[str, list[Any]], start: int, stop: int) -> dict[str, list[Any]]:
    return {name: values[start:stop] for name, values in columns.items()}


@st.composite
def deliveries(draw: st.DrawFn) -> list[list[tuple[int, int, int]]]:
    """For two trials: a cut of all rounds into pieces, some of them sent again later, in some order."""
    pieces = []
    for trial in range(2):
        inner = draw(st.lists(st.integers(1, ROUNDS), max_size=4, unique=True).map(sorted))
        cuts = [0, *inner, ROUNDS + 1]
        pieces += [(trial, start, stop) for start, stop in itertools.pairwise(cuts)]
    repeats = draw(st.lists(st.sampled_from(pieces), max_size=4))
    order = draw(st.permutations(pieces + repeats))
    packs: list[list[tuple[int, int, int]]] = []
    while order:  # a request holds one piece, or one of each trial
        together = 2 if len(order) > 1 and order[0][0] != order[1][0] and draw(st.booleans()) else 1
        packs.append(list(order[:together]))
        order = order[together:]
    return packs


@given(deliveries())
@SHARED
def test_the_same_curves_however_they_were_sent(
    sqlite_store: Store, requests: list[list[tuple[int, int, int]]]
) -> None:
    study, attempt, trials = packed(sqlite_store)
    reach(sqlite_store, study, ROUNDS)
    for pieces in requests:
        reports = {trials[trial]: encode(part(curve(trial), start, stop)) for trial, start, stop in pieces}
        body = Report(attempt=attempt, pack="p1", reports=reports, rounds_done=ROUNDS)
        version = sqlite_store.curves.report(study, body)
        assert sqlite_store.curves.report(study, body) == version  # a repeat changes nothing
    assert sqlite_store.curves.columns(study) == {trials[0]: curve(0), trials[1]: curve(1)}
    assert len([event for event in sqlite_store.events.read(study) if event.kind == "progress"]) == 1
