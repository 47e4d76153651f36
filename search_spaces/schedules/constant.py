"""Constant rates: nothing to tune."""

from __future__ import annotations

from search_spaces.parameters import Space


def default() -> Space:
    """The empty space."""
    return {}
