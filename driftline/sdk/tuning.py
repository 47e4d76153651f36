"""`driftline.tune`: tunes a Python function on this computer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from driftline.sdk.job import Job
from driftline.sdk.studies import local_studies
from driftline.study.spec import Study
from driftline.trial import Trial


def tune(
    train: Callable[[Trial], Any],
    *,
    methods: Mapping[str, Mapping[str, Any]],
    quality: str,
    rounds: int,
    cost: str = "rounds",
    trials: int = 16,
    seeds: int = 6,
    name: str | None = None,
    out: str | Path | None = None,
    **program: Any,
) -> Job:
    """Tunes a function on this computer, whatever DRIFTLINE_URL says.

    Args:
        train: Called with a `driftline.trial.Trial` for each trial, in a process of its own.
        methods: Label -> its hyperparameters: a `Float`, `Int` or `Choice`, or a fixed value. A mapping with the key
            ``space`` is an entry as in a study, with ``constraints`` and ``start`` too.
        quality: The metric that is compared. It rises if its name says so (`driftline.study.directions`), unless
            ``metrics={"bleu": "rises"}`` is given.
        rounds: Rounds of a trial.
        cost: "rounds", "seconds", or one of ``costs``.
        trials: Configurations that are searched for each label.
        seeds: Fresh seeds on which the best ones are run again; a verdict needs 6.
        name: Name of the study; that of the function by default.
        out: Its output folder; out/NAME by default.
        program: Further keys of a study's `program`: metrics, costs, checkpoints, env, silence, grace.

    Returns:
        The running study. The same call again continues it, or shows its results.

    Raises:
        InvalidSpec: A value is invalid, or the function cannot be pickled; or the folder is another study's.
        Conflict: Another process works in the folder.
    """
    entries = [
        {"label": label, **(entry if "space" in entry or "fixed" in entry else {"space": entry})}
        for label, entry in methods.items()
    ]
    plain = re.sub(r"[^A-Za-z0-9.-]+", "-", getattr(train, "__name__", "")).strip("-.")
    study = Study(
        name=name or plain or "tuned",
        program={"function": train, **program},
        methods=entries,
        objective={"quality": quality, "cost": cost},
        budget={"trials_per_method": trials, "rounds": rounds, "seeds": seeds},
    )
    return local_studies().submit(study, out=out)
