"""Trains studies in this process, one trial after another, without a service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from driftline.results.curves import TrialCurve
from driftline.study.spec import Study
from driftline.study.trial_document import trial_document
from trainers.run import run


def first_configuration(study: Study, label: str) -> dict[str, Any]:
    """The first point of each of a label's ranges."""
    return {name: form.grid()[0] for name, form in study.entry(label).parameters().items()}


def trained(study: Study, labels: Sequence[str], seeds: Sequence[int]) -> list[TrialCurve]:
    """The first configuration of each label on these seeds: the first is that of its search, the others confirm it."""
    found = []
    for label in labels:
        values = first_configuration(study, label)
        for number, seed in enumerate(seeds):
            lines = list(run(trial_document(study, label, [values], seed)))
            names = dict.fromkeys(name for line in lines for name, value in line.items() if not isinstance(value, list))
            columns = {name: np.array([line.get(name) for line in lines], dtype=np.float64) for name in names}
            curve = TrialCurve(
                trial=f"study.{label}.{number}",
                label=label,
                phase="confirmation" if number else "search",
                number=max(number - 1, 0),
                seed=seed,
                configuration=0,
                hyperparameters=values,
                state="DIVERGED" if lines[-1].get("diverged") else "COMPLETE",
                columns=columns,
            )
            found.append(curve)
    return found
