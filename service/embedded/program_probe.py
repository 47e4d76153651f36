"""What `driftline validate` says of a study's program: it trains two rounds of each label, twice with one seed."""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from driftline.errors import InvalidSpec
from driftline.study.spec import Study
from driftline.study.trial_document import trial_document
from driftline.study.validation import Errors
from driftline.wire.budgets import StudyEstimate
from service.cores import usable_cores
from service.driver.job import PackJob
from service.driver.programs.program_pack import ProgramPack
from service.driver.programs.report_lines import DIVERGED, ROUND, SECONDS, ProgramError
from service.samplers.allowed import first_allowed

ROUNDS = 2
"""Rounds that are tried."""


@dataclass(frozen=True)
class Probe:
    """Two runs of a label with one seed.

    Attributes:
        label: The label.
        lines: The report lines of the first run.
        difference: The first difference between the runs; "" if their lines are equal.
        round_s: Seconds of a round.
        around_s: Seconds of a run outside its rounds.
    """

    label: str
    lines: list[dict[str, Any]]
    difference: str
    round_s: float
    around_s: float

    def text(self) -> str:
        """The findings, in one line."""
        first, last = self.lines[0], self.lines[-1]
        counted = [name for name in last if name not in (ROUND, SECONDS, DIVERGED) and first.get(name) is not None]
        amounts = [f"{name} {last[name]:.6g}" for name in counted if last[name] is not None]
        equal = "two runs with one seed reported equal lines"
        if self.difference:
            equal = f"two runs with one seed differ ({self.difference}): results depend on more than the seed"
        took = f"a round takes {self.round_s:.3g} s, a start {self.around_s:.3g} s"
        return f"{self.label}: {took}; {equal}; after round {last[ROUND]}: {', '.join(amounts)}"


def probed(study: Study) -> StudyEstimate:
    """Runs the program for each label, and estimates the study from that.

    Raises:
        InvalidSpec: A run fails: a line for each such label.
    """
    errors, probes = Errors(), []
    for index, label in enumerate(study.labels):
        try:
            probes.append(_probe(study, label))
        except ProgramError as error:
            errors.add(InvalidSpec(f"methods[{index}]", f"{label}: {error}"))
    errors.raise_any()
    budget, workers = study.budget, max(1, int(usable_cores() // study.resources.cpus))
    reuse = study.program is not None and study.program.reuse  # then each worker starts the program once
    starts = sum(probe.around_s for probe in probes) * (workers / len(probes) if reuse else budget.trials)
    trained = sum(probe.round_s for probe in probes) * budget.rounds_of_trials
    rests_on = ["trials and rounds: the budget, if no trial diverges", *(probe.text() for probe in probes)]
    rests_on.append(f"time: {workers} runs at once on this computer")
    return StudyEstimate(
        trials=budget.trials * len(probes),
        packs=budget.trials * len(probes),
        rounds=budget.rounds_of_trials * len(probes),
        cpu_hours=(starts + trained) * study.resources.cpus / 3600,
        seconds=(starts + trained) / workers,
        rests_on=rests_on,
    )


def _probe(study: Study, label: str) -> Probe:
    entry, generator = study.entry(label), np.random.default_rng(study.seed)
    space = entry.parameters()
    draws = ({name: parameter.sample(generator) for name, parameter in space.items()} for _ in count())
    document = trial_document(study, label, [first_allowed(draws, entry.constraints)], study.seed)
    document["rounds"] = min(ROUNDS, study.budget.last_round)
    began = time.monotonic()
    first = _run(document, study)
    took = time.monotonic() - began
    second = _run(document, study)
    span = first[-1][ROUND] - first[0][ROUND]
    seconds = first[-1][SECONDS] - (first[0][SECONDS] if span else 0.0)
    round_s = seconds / (span or max(first[-1][ROUND], 1))
    around_s = max(took - round_s * document["rounds"], 0.0)
    return Probe(label, first, _difference(first, second), round_s, around_s)


def _run(document: dict[str, Any], study: Study) -> list[dict[str, Any]]:
    """The report lines of one run; its log is kept if it fails."""
    folder = Path(tempfile.mkdtemp(prefix="driftline-validate-"))
    pack = ProgramPack(PackJob("validate", document, "", place=str(folder / "run"), cpus=study.resources.cpus))
    try:
        lines = []
        while not pack.done:
            lines += pack.advance()
    finally:
        pack.close()
    shutil.rmtree(folder, ignore_errors=True)
    return lines


def _difference(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> str:
    """The first difference between two runs, not counting seconds."""
    for one, other in zip(first, second, strict=False):
        for name in one.keys() | other.keys():
            if name != SECONDS and one.get(name) != other.get(name):
                return f"round {one[ROUND]}: {name} {one.get(name)} and {other.get(name)}"
    return "" if len(first) == len(second) else f"{len(first)} and {len(second)} lines"
