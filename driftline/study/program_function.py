"""A Python function as a program: pickled into the study, so that notebooks and closures work."""

from __future__ import annotations

import base64
import inspect
import os
import sys
import textwrap
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from driftline.errors import InvalidSpec
from driftline.extras import optional_packages
from trainers import shown

COMMAND = ["python", "-P", "-m", "driftline.function_trial"]
"""Runs the function that the trial's document holds, with the Python that runs Driftline."""

MOST_BYTES = 4 * 2**20
"""Largest pickled function; data belong in files."""


def function_program(
    train: Callable[..., Any], objective: Any = None, *, metrics: Mapping[str, str] | None = None, **program: Any
) -> dict[str, Any]:
    """The program of a function ``train(trial)``.

    Args:
        train: Called in a process of its own for each trial, with a `driftline.trial.Trial`.
        objective: The study's objective; its quality is the one metric unless `metrics` are given.
        metrics: What it reports; metrics without a declared direction follow `driftline.study.directions`.
        program: Further keys of the program, such as costs and checkpoints.

    Raises:
        InvalidSpec: The function cannot be pickled.
    """
    from driftline.study.directions import direction

    quality = objective.get("quality") if isinstance(objective, Mapping) else None
    if metrics is None and not isinstance(quality, str):
        raise InvalidSpec("objective.quality", "must be given: the metric that the function reports")
    directions = dict(metrics) if metrics is not None else {str(quality): direction(str(quality))}
    with optional_packages():
        import cloudpickle
    try:
        function = cloudpickle.dumps(train)
        data = zlib.compress(cloudpickle.dumps(([os.path.abspath(sys.path[0])], function)))
    except Exception as error:
        problem = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise InvalidSpec("program", f"must be a function that can be pickled, got {shown(problem)}") from error
    if len(data) > MOST_BYTES:
        size = f"{len(data) / 2**20:.1f} MiB"
        raise InvalidSpec(
            "program", f"must hold at most 4 MiB with what it refers to, got {size}: read data from files"
        )
    try:
        source = textwrap.dedent(inspect.getsource(train))
    except (OSError, TypeError):
        source = None
    document = {"command": COMMAND, "metrics": directions, "function": base64.b64encode(data).decode(), **program}
    return document if source is None else document | {"source": source}
