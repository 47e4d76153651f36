"""Recorded tables: the curves of many configurations, each on many seeds, in one Parquet file.

A line of the file is a trial: label, configuration, hyperparameters (JSON), seed, state, and as lists its rounds, its
quality and its counters. The file's metadata under ``driftline`` is JSON: the study, the metric, how the quality is
stored, the definitions of the study's results, and a digest. `service.replay` simulates studies from such tables.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from driftline.errors import InvalidSpec, NotFound
from driftline.results.curves import Array, TrialCurve
from driftline.results.definitions import definitions
from driftline.results.runs import WHOLE
from driftline.study.directions import direction
from driftline.study.spec import Study
from driftline.wire.records import StudyRecord, TrialRecord
from trainers import COSTS, hint, shown
from trainers.own_files import put

VERSION = 1
COUNTERS = tuple(column for cost in ("bytes", "client_gradients") for column in COSTS[cost].counters)
"""Counters that a table keeps. Seconds are left out: they depend on the machine."""

Precision = Literal["float16", "float64"]
_KEY = b"driftline"
_LEVEL = 12  # compression level


@dataclass(frozen=True)
class Grid:
    """The configurations of a label that were run on every seed of the label.

    Attributes:
        label: The label.
        configurations: Their numbers, increasing.
        seeds: The seeds, increasing.
        curves: (configuration, seed) -> its trial.
    """

    label: str
    configurations: tuple[int, ...]
    seeds: tuple[int, ...]
    curves: Mapping[tuple[int, int], TrialCurve]


@dataclass(frozen=True)
class RecordedTable:
    """Ended trials of a study.

    Attributes:
        study: The study that they belong to.
        trials: For each label, configuration and seed at most one trial, with the columns `round`, the study's quality
            and the counters.
        digest: SHA-256 of what the file holds; "" if the table was not read from a file.
    """

    study: Study
    trials: tuple[TrialCurve, ...]
    digest: str = ""

    def grid(self, label: str) -> Grid:
        """The configurations of a label that were run on all its seeds.

        Raises:
            NotFound: The table has no trial of this label.
        """
        curves = {(trial.configuration, trial.seed): trial for trial in self.trials if trial.label == label}
        if not curves:
            labels = sorted({trial.label for trial in self.trials})
            raise NotFound(f"no trials of label {shown(label)} in this table: {hint(label, labels)}")
        seeds = sorted({seed for _, seed in curves})
        numbers = sorted({number for number, _ in curves})
        whole = tuple(number for number in numbers if all((number, seed) in curves for seed in seeds))
        return Grid(label, whole, tuple(seeds), curves)


def recorded(study: Study, trials: Iterable[TrialCurve]) -> RecordedTable:
    """The table of a study: its ended trials.

    Args:
        study: The study.
        trials: Its trials, with all columns.
    """
    names = {"round", study.objective.quality, *COUNTERS}
    kept = [
        replace(
            trial,
            columns={name: values for name, values in trial.columns.items() if name in names},
            _cache={},
        )
        for trial in trials
        if trial.state in WHOLE
    ]
    order = {label: index for index, label in enumerate(study.labels)}
    return RecordedTable(study, tuple(sorted(kept, key=lambda t: (order[t.label], t.configuration, t.seed))))


def recorded_trial(
    label: str,
    configuration: int,
    seed: int,
    hyperparameters: Mapping[str, Any],
    state: str,
    columns: Mapping[str, Array],
) -> TrialCurve:
    """A trial of a table, as a search trial with the number of its configuration."""
    return TrialCurve(
        trial=f"{label}.{configuration}.{seed}",
        label=label,
        phase="search",
        number=configuration,
        seed=seed,
        configuration=configuration,
        hyperparameters=dict(hyperparameters),
        state=state,
        columns=dict(columns),
    )


def study_table(
    study: StudyRecord, trials: Iterable[TrialRecord], columns: Mapping[str, Mapping[str, Sequence[Any] | Array]]
) -> RecordedTable:
    """The table of a stored study.

    Args:
        study: The study.
        trials: All its trials.
        columns: Their curves by trial id.

    Raises:
        NotFound: No trial has ended.
    """
    table = recorded(study.study, [TrialCurve.from_record(trial, columns.get(trial.id) or {}) for trial in trials])
    if not table.trials:
        raise NotFound(f"no trial of study {study.name!r} has ended yet: export it later")
    return table


def joined(tables: Sequence[RecordedTable]) -> RecordedTable:
    """One table of several with different labels.

    Raises:
        InvalidSpec: Their studies differ in more than the labels, or two have the same label.
    """
    studies = [table.study for table in tables]
    require_agreement(studies, ("methods", "budget", "seed", "resources", "sampler"))
    first = studies[0].to_json()
    methods = [entry for table in tables for entry in table.study.to_json()["methods"]]
    study = Study.from_json(first | {"methods": methods})
    return RecordedTable(study, tuple(trial for table in tables for trial in table.trials))


def require_agreement(studies: Sequence[Study], may_differ: Collection[str]) -> None:
    """Checks that studies agree in their rounds, and in every key but some.

    Args:
        studies: The studies.
        may_differ: Keys in which they may differ.

    Raises:
        InvalidSpec: Two studies differ in another key.
    """
    first = studies[0].to_json()
    for study in studies[1:]:
        other = study.to_json()
        for key in sorted((first.keys() | other.keys()) - set(may_differ)):
            if first.get(key) != other.get(key):
                raise InvalidSpec(key, f"studies must agree, got {shown(first.get(key))} and {shown(other.get(key))}")
        budgets = studies[0].budget, study.budget
        if len({(budget.unit, budget.amount) for budget in budgets}) > 1:
            texts = [budget.trial_text for budget in budgets]
            raise InvalidSpec(f"budget.{budgets[0].unit}", f"studies must agree, got {texts[0]} and {texts[1]}")


def write(table: RecordedTable, path: Path, precision: Precision = "float64") -> None:
    """Writes a table to a Parquet file.

    Args:
        table: The table.
        path: The file; replaced if it exists.
        precision: Of the quality. float16 stores positive losses by their natural logarithm, with an error below 0.1 %
            for losses from 0.02 to 50, and other metrics as they are.
    """
    import pyarrow as pa
    import pyarrow.parquet as parquet

    metric = table.study.objective.quality
    logarithm = precision == "float16" and direction(metric) == "falls" and _positive(table, metric)
    trials = table.trials
    ends = np.cumsum([0, *(len(trial.rounds) for trial in trials)])
    quality = _joined_column(trials, metric)
    if logarithm:
        quality = np.log(quality)

    def lists(values: Any) -> Any:
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values)

    columns: dict[str, Any] = {
        "label": pa.array([trial.label for trial in trials]).dictionary_encode(),
        "configuration": pa.array([trial.configuration for trial in trials], pa.int32()),
        "hyperparameters": pa.array([json.dumps(dict(trial.hyperparameters)) for trial in trials]).dictionary_encode(),
        "seed": pa.array([trial.seed for trial in trials], pa.int64()),
        "state": pa.array([trial.state for trial in trials]).dictionary_encode(),
        "round": lists(pa.array(_joined_column(trials, "round").astype(np.int32))),
        "quality": lists(pa.array(quality.astype(np.float16 if precision == "float16" else np.float64))),
    }
    for name in COUNTERS:
        if all(name in trial.columns for trial in trials):
            columns[name] = lists(pa.array(_joined_column(trials, name)))
    facts = {
        "version": VERSION,
        "study": table.study.to_json(),
        "quality": {"metric": metric, "stored": "natural logarithm" if logarithm else "as it is"},
        "definitions": definitions(
            metric, table.study.objective.cost, table.study.budget.amount, unit=table.study.budget.unit
        ),
    }
    lines = pa.table(columns)
    lines = lines.replace_schema_metadata({_KEY: json.dumps({**facts, "digest": _digest(lines, facts)})})
    encoded = {"quality.list.element": "BYTE_STREAM_SPLIT"}
    plain = [name for name in lines.column_names if name != "quality"]
    out = io.BytesIO()
    parquet.write_table(
        lines, out, compression="zstd", compression_level=_LEVEL, use_dictionary=plain, column_encoding=encoded
    )
    put(path, out.getvalue())


def read(path: Path) -> RecordedTable:
    """Reads a table.

    Raises:
        NotFound: There is no such file.
        InvalidSpec: The file is no table, has another version, or is damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as parquet

    if not path.is_file():
        raise NotFound(f"no table {path}: make one with `driftline export`")
    try:
        lines = parquet.read_table(path)
        facts = json.loads(lines.schema.metadata[_KEY])
    except (pa.ArrowInvalid, KeyError, TypeError, ValueError) as error:
        raise InvalidSpec(str(path), "must be a table that `driftline export` wrote") from error
    if facts["version"] != VERSION:
        raise InvalidSpec(str(path), f"must be a table of version {VERSION}, got {shown(facts['version'])}")
    study, stored = Study.from_json(facts["study"]), facts["quality"]
    digest = facts.pop("digest")
    if _digest(lines, facts) != digest:
        raise InvalidSpec(str(path), "is damaged: its digest does not fit")
    logarithm = stored["stored"] == "natural logarithm"
    return RecordedTable(study, tuple(_trials(lines, stored["metric"], logarithm)), digest)


def _trials(lines: Any, metric: str, logarithm: bool) -> Iterable[TrialCurve]:
    lines = lines.combine_chunks()
    ends: Any = lines["round"].chunk(0).offsets.to_numpy() if len(lines) else np.zeros(1, dtype=np.int64)
    names = {"round": "round", "quality": metric, **{name: name for name in COUNTERS if name in lines.column_names}}
    values: dict[str, Array] = {
        name: np.asarray(lines[column].chunk(0).values.to_numpy(), dtype=np.float64) if len(lines) else np.zeros(0)
        for column, name in names.items()
    }
    if logarithm:
        values[metric] = np.exp(values[metric])
    parsed: dict[str, dict[str, Any]] = {}
    keys = ("label", "configuration", "seed", "state", "hyperparameters")
    rows = zip(*(lines[key].to_pylist() for key in keys), strict=True)
    for (label, configuration, seed, state, text), begin, end in zip(rows, ends[:-1], ends[1:], strict=True):
        if text not in parsed:
            parsed[text] = json.loads(text)
        columns = {name: column[begin:end] for name, column in values.items()}
        yield recorded_trial(label, configuration, seed, parsed[text], state, columns)


def _joined_column(trials: Sequence[TrialCurve], name: str) -> Array:
    parts = [trial.columns.get(name, np.full(len(trial.rounds), np.nan)) for trial in trials]
    return np.concatenate(parts) if parts else np.zeros(0)


def _positive(table: RecordedTable, metric: str) -> bool:
    values = _joined_column(table.trials, metric)
    return bool((values[np.isfinite(values)] > 0).all())


def _digest(lines: Any, facts: Mapping[str, Any]) -> str:
    """SHA-256 of what a file holds, as it is stored: losses as logarithms, so that no rounding of `exp` enters."""
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name in lines.column_names:
        column = lines[name].combine_chunks()
        values = column.flatten() if hasattr(column, "offsets") else column
        digest.update(name.encode())
        numeric = (
            values.type.bit_width if hasattr(values.type, "bit_width") and not hasattr(column, "dictionary") else 0
        )
        digest.update(
            values.to_numpy(zero_copy_only=False).tobytes() if numeric else json.dumps(values.to_pylist()).encode()
        )
    return digest.hexdigest()
