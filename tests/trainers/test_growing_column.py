"""Columns that grow block by block are those that are read at once, or are refused as these are."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from trainers.data.growing_column import GrowingColumn

WHOLE = st.sampled_from([0, 1, -5, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64])
NUMBERS = WHOLE | st.sampled_from([0.5, 1e20, -1e300])
KINDS = (WHOLE | st.booleans(), NUMBERS, st.sampled_from(["", "a", "b" * 256, "b" * 257]), NUMBERS | st.just("a"))


def rows_of(kind: Any) -> Any:
    rows = [st.lists(kind, min_size=length, max_size=length) for length in (0, 1, 2)]
    return st.one_of(*(st.lists(row, min_size=1, max_size=8) for row in (kind, *rows)))


def column(blocks: list[list[Any]]) -> str:
    grown = GrowingColumn()
    try:
        for block in blocks:
            grown.extend(block)
    except ValueError:
        return "refused"
    array = grown.array()
    return f"{array.dtype} {array.shape} {array.tolist()}"


@given(st.one_of(*map(rows_of, KINDS)), st.integers(1, 5))
@example([-1, 2**63], 1)
@example(["b" * 257, "b"], 1)
@example([[], []], 1)
def test_blocks_of_any_size_make_the_same_column(rows: list[Any], size: int) -> None:
    assert column([rows[at : at + size] for at in range(0, len(rows), size)]) == column([rows])
