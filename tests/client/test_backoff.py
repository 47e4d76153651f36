"""Pauses grow up to the longest one, and jitter only shortens them."""

from itertools import islice

import pytest

from driftline.backoff import pauses


@pytest.mark.parametrize(
    ("first", "longest", "factor", "expected"),
    [(0.5, 3.0, 2.0, [0.5, 1.0, 2.0, 3.0, 3.0]), (2.0, 1.0, 2.0, [2.0, 1.0, 1.0]), (1.0, 100.0, 3.0, [1.0, 3.0, 9.0])],
)
def test_pauses_grow_until_the_longest(first: float, longest: float, factor: float, expected: list[float]) -> None:
    assert list(islice(pauses(first, longest, factor=factor), len(expected))) == expected


def test_jitter_only_shortens() -> None:
    found = list(islice(pauses(1.0, 1.0, jitter=0.5), 200))
    assert 0.5 <= min(found) < 0.7
    assert 0.8 < max(found) <= 1.0
