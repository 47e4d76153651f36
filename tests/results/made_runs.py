"""Made-up runs for property tests: few seeds and rounds, small whole numbers with many ties."""

import numpy as np
from hypothesis import strategies as st

from driftline.results.runs import Runs


def runs(number: int, quality: list[list[float]], cost: list[float] | None = None, **changes: object) -> Runs:
    """A configuration with a row of qualities for each seed; untrained it has quality 0."""
    table = np.array(quality, dtype=float)
    costs = np.arange(1.0, table.shape[1] + 1) if cost is None else np.array(cost)
    fields = {
        "configuration": number,
        "rounds": np.arange(1.0, table.shape[1] + 1),
        "cost": np.tile(costs, (len(table), 1)),
        "quality": table,
        "start": np.zeros(len(table)),
        "diverged": np.full(len(table), table.shape[1]),
    }
    return Runs(**fields | changes)  # type: ignore[arg-type]


@st.composite
def several(draw: st.DrawFn, seeds: int | None = None) -> list[Runs]:
    """One to four configurations on the same one to five seeds, some of which diverge."""
    count = seeds or draw(st.integers(1, 5))
    found = []
    for number in range(draw(st.integers(1, 4))):
        length = draw(st.integers(1, 5))
        row = st.lists(st.integers(-2, 6), min_size=length, max_size=length)
        steps = draw(st.lists(st.integers(1, 3), min_size=length, max_size=length))
        diverged = np.array([draw(st.one_of(st.just(length), st.integers(0, length))) for _ in range(count)])
        quality = np.array([draw(row) for _ in range(count)], dtype=float)
        for values, end in zip(quality, diverged, strict=True):
            values[end:] = 0.0
        found.append(runs(number, quality.tolist(), np.cumsum(steps).tolist(), diverged=diverged))
    return found
