"""`driftline export` and `driftline replay`: recorded tables, and studies simulated from them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftline.errors import InvalidSpec
from driftline.results.recorded_table import RecordedTable, joined, read, write
from driftline.study.budget import Budget
from driftline.study.sampler import read as read_sampler
from service.cli.file_errors import cannot_write, file_exists
from service.cli.jobs import is_remote
from service.cli.terminal import echo

if TYPE_CHECKING:
    from service.replay.simulation import Replay

_CLAIMS = {"configurations": "the configurations found", "methods": "the methods"}


def export_table(study: str, path: Path, *, as_json: bool, url: str | None, token_file: Path | None) -> None:
    """Writes the ended trials of an output folder, or of a study on a service, to a new table.

    Raises:
        Conflict: The file exists.
        InvalidSpec: The file cannot be written, or its name does not end in .parquet.
    """
    if os.path.lexists(path):  # also true of a link to nothing
        raise file_exists(path)
    if path.suffix != ".parquet":
        raise InvalidSpec("TABLE", f"must end in .parquet, got {str(path)!r}")
    table = _table(study, url, token_file)
    try:
        write(table, path)
    except OSError as error:
        raise cannot_write("TABLE", path, error) from error
    grids = [table.grid(label) for label in dict.fromkeys(trial.label for trial in table.trials)]
    if as_json:
        labels = {grid.label: {"configurations": len(grid.configurations), "seeds": len(grid.seeds)} for grid in grids}
        echo(json.dumps({"table": str(path), "trials": len(table.trials), "labels": labels}, indent=2))
        return
    echo(f"{path}: {len(table.trials)} trials")
    for grid in grids:
        echo(f"  {grid.label}: {len(grid.configurations)} configurations on all {len(grid.seeds)} seeds")


def replay_tables(
    paths: Sequence[Path],
    labels: str | None,
    budget: Mapping[str, int | str | None],
    *,
    sampler: str,
    studies: int,
    seed: int,
    lift: float,
    as_json: bool,
) -> None:
    """Simulates studies and prints what they conclude; what the budget leaves out comes from the table's study."""
    from service.replay.simulation import Replay, numbered, require_replayable
    from service.replay.summary import summary

    tables = {str(path): read(path) for path in paths}
    for part in tables.values():
        require_replayable(part.study.budget)  # a joined table has the budget of the first one
    table = joined(list(tables.values()))
    study_budget = table.study.budget
    usual = {
        "trials": study_budget.trials_per_method,
        "confirm": study_budget.confirm,
        "seeds": study_budget.seeds,
        "searches": study_budget.searches,
    }
    names = labels.split(",") if labels else list(table.study.labels)
    options = {key: value for key, value in budget.items() if value is not None}
    at: Any = options.pop("rungs", study_budget.rungs_at)
    at = at.split(",") if isinstance(at, str) and at != "auto" else at
    if "rule" in options and at is None:
        raise InvalidSpec("--rule", "needs rungs: give --rungs too")
    rule = options.pop("rule", study_budget.rung_rule)
    rungs = at if rule == "halving" else {"at": at, "rule": rule}
    whole: dict[str, Any] = {**usual, **options, **({} if at is None else {"rungs": rungs})}
    chosen = Budget(trials_per_method=whole.pop("trials"), rounds=study_budget.last_round, **whole)
    names = names * 2 if len(names) == 1 else names
    factors = {} if lift == 1 else {numbered(names)[-1]: lift}
    replay = Replay(table, names, chosen, read_sampler(sampler), lift=factors)
    counts = summary(replay, range(seed, seed + studies))
    if as_json:
        digests = {path: part.digest for path, part in tables.items()}
        budgeted = {**whole, "trials": chosen.trials_per_method}
        budgeted |= {} if chosen.rungs is None else {"rungs": chosen.model_dump(mode="json")["rungs"]}
        facts = {"sampler": replay.sampler, "budget": budgeted, "tables": digests}
        echo(json.dumps({**facts, **counts}, indent=2))
        return
    _print(replay, counts)


def _print(replay: Replay, counts: Mapping[str, Any]) -> None:
    budget, objective = replay.budget, replay.study.objective
    speed = 60 * counts["studies"] / counts["seconds"]
    echo(f"{counts['studies']:,} studies of {replay.study.name}, {speed:,.0f} a minute; sampler {replay.sampler}")
    echo(
        f"Each label: {budget.trials_per_method} trials in {budget.searches} searches, {budget.confirmed} "
        f"configurations confirmed on {budget.seeds} seeds. {objective.quality} over {objective.cost}.\n"
    )
    width = max(len(name) for name in replay.names)
    echo(f"{'':{width}}  area   95 % of studies")
    for name, area in counts["areas"].items():
        echo(f"{name:{width}}  {area['mean']:.3f}  {area['low']:.3f} to {area['high']:.3f}")
    for pair in counts["pairs"]:
        echo("")
        for claim, counted in pair["claims"].items():
            echo(f"{_CLAIMS[claim]}: a verdict is possible in {_share(counted['possible'])} of studies")
            for side in ("a", "b"):
                echo(f"  {pair[side]:{width}}  is better in {_share(counted[side])}")
            if counted["detectable"]:
                echo(
                    f"  mean difference {counted['difference']:+.3f}; one of {counted['detectable']:.3f} is found with "
                    "a probability of 80 % (median)"
                )


def _share(share: Mapping[str, float]) -> str:
    return f"{100 * share['share']:.1f} % ({100 * share['low']:.1f} to {100 * share['high']:.1f})"


def _table(study: str, url: str | None, token_file: Path | None) -> RecordedTable:
    if is_remote(study, url):
        from service.cli.jobs import connected

        with connected(url, token_file) as client:
            return client.job(study).table()
    from service.embedded.folder_results import stored_table

    return stored_table(Path(study))
