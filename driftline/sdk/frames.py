"""Trials and curves as they are, and as pandas data frames; pandas is imported when a frame is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from driftline.errors import DriftlineError
from driftline.results.show.number_text import hyperparameters_text, number
from driftline.study.directions import sign
from driftline.study.notebook import html_table, html_title
from driftline.wire.records import TrialRecord

if TYPE_CHECKING:
    from pandas import DataFrame

_SHOWN = 20  # most trials of a notebook's table
_FIELDS = ("label", "phase", "number", "seed", "configuration", "state", "rounds_done")


class TrialRecords(list[TrialRecord]):
    """Trials of a study, a list of `TrialRecord`.

    Args:
        trials: The trials.
        metric: The study's quality.
    """

    def __init__(self, trials: Iterable[TrialRecord], metric: str) -> None:
        super().__init__(trials)
        self._metric = metric

    def __repr__(self) -> str:
        states = Counter(trial.state for trial in self)
        counts = ", ".join(f"{count} {state.lower()}" for state, count in states.items())
        return f"TrialRecords({len(self)} trials{': ' if counts else ''}{counts})"

    def _repr_html_(self) -> str:
        """HTML for notebooks: the first trials."""
        direction = sign(self._metric)
        heads = ("trial", "label", "phase", "seed", "state", "rounds", self._metric, "hyperparameters")
        rows = [
            (
                trial.id.removeprefix(f"{trial.study_id}."),
                trial.label,
                trial.phase,
                str(trial.seed),
                trial.state.lower(),
                str(trial.rounds_done),
                "" if trial.values is None else number(direction * trial.values.quality),
                hyperparameters_text(trial.hyperparameters),
            )
            for trial in self[:_SHOWN]
        ]
        more = f"and {len(self) - _SHOWN} more" if len(self) > _SHOWN else ""
        return html_title(f"{len(self)} trials", "") + html_table(heads, rows) + more

    def to_frame(self) -> DataFrame:
        """A pandas DataFrame with a row for each trial.

        Columns: ``trial`` (its id), ``label``, ``phase``, ``number``, ``seed``, ``configuration``, ``state``,
        ``rounds_done``, ``quality`` (at the end, in the unit of the metric; missing unless COMPLETE), ``speed`` (mean
        quality over log10 cost; larger is better for all metrics), ``error``, then one for each hyperparameter.

        Raises:
            DriftlineError: pandas is not installed.
        """
        columns: dict[str, list[Any]] = {"trial": [trial.id for trial in self]}
        columns |= {name: [getattr(trial, name) for trial in self] for name in _FIELDS}
        direction = sign(self._metric)
        columns["quality"] = [None if trial.values is None else direction * trial.values.quality for trial in self]
        columns["speed"] = [None if trial.values is None else trial.values.speed for trial in self]
        columns["error"] = [trial.error for trial in self]
        for name in sorted({name for trial in self for name in trial.hyperparameters}):
            columns[name] = [trial.hyperparameters.get(name) for trial in self]
        return frame(columns)


class CurvesByTrial(dict[str, dict[str, list[Any]]]):
    """Curves of a study, a dict: trial id -> metric -> a value for each reported round; None where there is none."""

    def __repr__(self) -> str:
        metrics = dict.fromkeys(name for curve in self.values() for name in curve)
        return f"CurvesByTrial({len(self)} trials{': ' if metrics else ''}{', '.join(metrics)})"

    def to_frame(self) -> DataFrame:
        """A pandas DataFrame with a row for each trial and reported round.

        Columns: ``trial`` (its id), ``round``, then one for each metric; a value is missing where the trial did not
        report the metric in that round.

        Raises:
            DriftlineError: pandas is not installed.
        """
        lengths = {trial: len(curve["round"]) for trial, curve in self.items() if "round" in curve}
        columns: dict[str, list[Any]] = {"trial": [trial for trial, count in lengths.items() for _ in range(count)]}
        for name in dict.fromkeys(["round", *(name for curve in self.values() for name in curve)]):
            columns[name] = [
                value for trial, count in lengths.items() for value in self[trial].get(name, [None] * count)
            ]
        return frame(columns)


def frame(columns: Mapping[str, Sequence[Any]]) -> DataFrame:
    """A pandas DataFrame of these columns.

    Raises:
        DriftlineError: pandas is not installed.
    """
    try:
        from pandas import DataFrame
    except ImportError as error:
        raise DriftlineError("to_frame needs pandas: pip install pandas") from error
    return DataFrame(columns)
