"""What the theory warns of."""

from __future__ import annotations


class TheoryWarning(UserWarning):
    """A setting outside the range in which the papers' statements hold; numbers are given where they are defined."""
