"""The warning of the theory."""

from __future__ import annotations


class TheoryWarning(UserWarning):
    """A setting is outside the range in which the papers' statements hold; results are returned if they are defined."""
