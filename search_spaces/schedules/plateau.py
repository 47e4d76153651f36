"""Plateau decay: default space, and the settings of [B] in `search_spaces.rates`."""

from __future__ import annotations

from search_spaces.parameters import Choice, Int, Space, fixed


def default() -> Space:
    """A window of 5 to 100 rounds on a log scale (patience and cooldown follow it) and three decays for each rate."""
    return {
        "window": Int(5, 100, log=True),
        "client_decay": Choice((0.1, 0.5, 1.0)),
        "server_decay": Choice((0.5, 0.9, 1.0)),
    }


def paper() -> Space:
    """[B] section 9.1: window, patience and cooldown 100, min_delta 1e-4, client_decay 0.1, server_decay 0.9."""
    return {
        "window": fixed(100),
        "patience": fixed(100),
        "cooldown": fixed(100),
        "min_delta": fixed(1e-4),
        "client_decay": fixed(0.1),
        "server_decay": fixed(0.9),
    }
