"""MaSS: default space, and a grid for models without known constants (the paper has no experiments)."""

from __future__ import annotations

from search_spaces.parameters import Choice, Float, Space


def default() -> Space:
    """client_lr and mixing on log scales, batch_statistical_condition_number from 1 (Nesterov) to 12, 1 to 32 steps."""
    return {
        "client_lr": Float(1e-4, 1.0, log=True),
        "mixing": Float(5e-3, 0.5, log=True),
        "batch_statistical_condition_number": Float(1.0, 12.0, log=True),
        "local_steps": Choice((1, 2, 4, 8, 16, 32)),
    }


def grid() -> Space:
    """client_lr on 5 decades from 1e-4 to 1, 6 values of mixing, 5 condition numbers (1: Nesterov): 150 in all."""
    return {
        "client_lr": Choice((1e-4, 1e-3, 1e-2, 1e-1, 1.0)),
        "mixing": Choice((0.5, 0.2, 0.1, 0.05, 0.01, 0.005)),
        "batch_statistical_condition_number": Choice((1.0, 2.0, 3.0, 6.0, 12.0)),
        "local_steps": Choice((10,)),
    }


def two_sequences() -> Space:
    """client_lr, momentum, and compensation_lr from 0 (Nesterov) up to what the smallest client_lr allows."""
    return {
        "client_lr": Float(1e-3, 1.0, log=True),
        "momentum": Float(0.0, 0.99, log=True, complement=True),
        "compensation_lr": Float(1e-5, 4e-4, log=True, also=(0.0,)),
        "local_steps": Choice((1, 2, 4, 8, 16, 32)),
    }


def constants() -> Space:
    """Only local_steps, for a study whose method has {"constants": "estimate"}."""
    return {"local_steps": Choice((1, 2, 4, 8, 16, 32))}
