"""Constant rates: nothing to try."""

from __future__ import annotations

from search_spaces.parameters import Space


def default() -> Space:
    """Empty."""
    return {}
