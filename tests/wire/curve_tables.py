"""Random columns of curves, and their bits."""

import struct
from typing import Any

from hypothesis import strategies as st

from driftline.wire.curve_codec import Cell

CELLS: st.SearchStrategy[Cell] = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False)
)


@st.composite
def tables(draw: st.DrawFn) -> dict[str, list[Cell]]:
    """Columns of one trial over several segments."""
    rounds = draw(st.lists(st.integers(0, 2000), min_size=1, max_size=12, unique=True).map(sorted))
    kinds = st.sampled_from([CELLS, st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 2**40)])
    columns: dict[str, list[Cell]] = {"round": list(rounds)}
    for name in draw(st.lists(st.sampled_from(["train_loss", "test_accuracy", "bytes_up", "é"]), unique=True)):
        columns[name] = draw(st.lists(draw(kinds), min_size=len(rounds), max_size=len(rounds)))
    return columns


def bits(columns: dict[str, list[Cell]]) -> dict[str, list[Any]]:
    """The columns with the bits of floats, and the types of all other values."""
    return {
        name: [struct.pack("<d", value) if isinstance(value, float) else (type(value), value) for value in values]
        for name, values in columns.items()
    }
