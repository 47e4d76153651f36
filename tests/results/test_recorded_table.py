"""Recorded tables: what is written is read again, and damage is noticed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.errors import InvalidSpec, NotFound
from driftline.results.curves import TrialCurve
from driftline.results.recorded_table import RecordedTable, joined, read, recorded, write
from driftline.study.spec import Study

from .samples import curve


def study(label: str = "fedavg", metric: str = "test_loss", **changes: Any) -> Study:
    document: dict[str, Any] = {
        "name": "small",
        "task": {"name": "digits"},
        "methods": [{"name": "fedavg", "label": label, "space": {"client_lr": {"float": [1e-3, 10], "log": True}}}],
        "objective": {"quality": metric, "cost": "rounds"},
        "budget": {"trials_per_method": 4, "rounds": 4},
    }
    return Study(**{**document, **changes})


def facts(table: RecordedTable) -> list[Any]:
    """Everything that a file keeps of a table's trials, with NaN as a string."""
    names = ("label", "configuration", "seed", "state", "hyperparameters")
    columns = [
        {name: list(map(str, column.tolist())) for name, column in trial.columns.items()} for trial in table.trials
    ]
    return [([getattr(one, name) for name in names], own) for one, own in zip(table.trials, columns, strict=True)]


losses = st.floats(min_value=1e-4, max_value=1e6)


@st.composite
def trials(draw: st.DrawFn) -> list[TrialCurve]:
    """Up to 6 trials of 2 configurations; some diverged, some values missing."""
    found = []
    for number in range(draw(st.integers(1, 6))):
        values = draw(st.lists(losses | st.just(np.nan), min_size=1, max_size=5))
        one = curve(
            [draw(losses), *values],
            metric="test_loss",
            number=number,
            configuration=number // 3,
            seed=number % 3,
            state=draw(st.sampled_from(["COMPLETE", "DIVERGED"])),
        )
        found.append(one)
    return found


@given(trials())
def test_float64_keeps_every_bit(tmp_path_factory: pytest.TempPathFactory, found: list[TrialCurve]) -> None:
    path = tmp_path_factory.mktemp("table") / "table.parquet"
    table = recorded(study(), found)
    write(table, path)
    again = read(path)
    assert facts(again) == facts(table)
    assert again.study == table.study


@given(trials())
def test_float16_keeps_losses_to_half_a_percent(
    tmp_path_factory: pytest.TempPathFactory, found: list[TrialCurve]
) -> None:
    path = tmp_path_factory.mktemp("table") / "table.parquet"
    table = recorded(study(), found)
    write(table, path, "float16")
    again = read(path)
    for one, other in zip(table.trials, again.trials, strict=True):
        np.testing.assert_allclose(other.columns["test_loss"], one.columns["test_loss"], rtol=5e-3)
        for name in ("round", "client_gradients", "bytes_up"):
            assert other.columns[name].tolist() == one.columns[name].tolist()
    write(again, path, "float16")
    assert read(path).digest == again.digest


def test_accuracies_are_stored_as_they_are(tmp_path: Path) -> None:
    write(recorded(study(metric="test_accuracy"), [curve([0.0, 0.5, 0.75])]), tmp_path / "a", "float16")
    assert read(tmp_path / "a").trials[0].columns["test_accuracy"].tolist() == [0.0, 0.5, 0.75]


def test_only_ended_trials_are_recorded() -> None:
    found = [curve([2.0, 1.0], metric="test_loss", number=n, state=s) for n, s in enumerate(("FAILED", "COMPLETE"))]
    assert [trial.configuration for trial in recorded(study(), found).trials] == [1]


def test_the_grid_has_the_configurations_on_every_seed() -> None:
    found = [
        curve([2.0, 1.0], metric="test_loss", number=number, configuration=number, seed=seed)
        for number, seeds in ((0, (0, 1)), (1, (0,)), (2, (0, 1)))
        for seed in seeds
    ]
    table = recorded(study(), found)
    grid = table.grid("fedavg")
    assert (grid.configurations, grid.seeds) == ((0, 2), (0, 1))
    with pytest.raises(NotFound, match="fedavg"):
        table.grid("fedag")


def test_damage_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    write(recorded(study(), [curve([2.0, 1.0], metric="test_loss")]), path)
    lines = parquet.read_table(path)
    changed = lines.set_column(lines.column_names.index("seed"), "seed", [[7]])
    parquet.write_table(changed.replace_schema_metadata(lines.schema.metadata), path)
    with pytest.raises(InvalidSpec, match="is damaged"):
        read(path)
    facts = json.loads(lines.schema.metadata[b"driftline"]) | {"version": 2}
    parquet.write_table(lines.replace_schema_metadata({"driftline": json.dumps(facts)}), path)
    with pytest.raises(InvalidSpec, match="must be a table of version 1, got 2"):
        read(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="driftline export"):
        read(tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("a,b\n")
    with pytest.raises(InvalidSpec, match="must be a table"):
        read(tmp_path / "text.parquet")


def test_tables_of_one_task_are_joined() -> None:
    one, other = (recorded(study(label), [curve([2.0, 1.0], metric="test_loss", label=label)]) for label in "ab")
    assert [trial.label for trial in joined([one, other]).trials] == ["a", "b"]
    assert joined([one, other]).study.labels == ("a", "b")
    with pytest.raises(InvalidSpec, match="unique"):
        joined([one, one])
    elsewhere = recorded(study("b", task={"name": "digits", "clients": 9}), other.trials)
    with pytest.raises(InvalidSpec, match="task: studies must agree"):
        joined([one, elsewhere])
