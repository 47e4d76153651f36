"""Replays of labels that start from studies of their own: told apart by this alone, unless the result says so."""

import numpy as np

from benchmarks.shared_starts import LABELS, doubled, given, verdicts
from driftline.results.recorded_table import RecordedTable
from driftline.sdk.frontier import Frontier
from driftline.study.spec import Study
from service.replay.simulation import Replay
from tests.replay.test_simulation import budget_of, table


def starting_from(recorded: RecordedTable, **points: dict[str, float]) -> Study:
    document = recorded.study.to_json()
    for form in document["methods"]:
        form["start"] = [points[form["label"]]]
    return Study.from_json(document)


def test_a_method_that_starts_better_is_named_unless_the_starts_are_known() -> None:
    """Each of the six searches tries its label's starting point and nothing else."""
    recorded = doubled(table(20, 42))
    grid = recorded.grid(LABELS[0])
    complete = [n for n in grid.configurations if grid.curves[n, 0].state == "COMPLETE"]
    ends = {n: float(np.mean([grid.curves[n, seed].columns["test_loss"][-1] for seed in grid.seeds])) for n in complete}
    best, worst = (grid.curves[chosen(ends, key=ends.__getitem__), 0].hyperparameters for chosen in (min, max))
    differ, same = starting_from(recorded, one=best, other=worst), starting_from(recorded, one=best, other=best)
    assert verdicts(recorded, differ, 6, 0) == (True, False)
    assert verdicts(recorded, same, 6, 0) == (False, False)


def test_labels_take_what_their_own_earlier_study_recommends() -> None:
    recorded = doubled(table())
    before = Replay(recorded, LABELS, budget_of(12, confirm=4, seeds=3))
    document = {**before.document(before.trials(7)), "specification": recorded.study.to_json()}
    both = given(recorded.study, Frontier(document), ("start", "prior"))
    only = given(recorded.study, Frontier(document), ("start",))
    for label in LABELS:
        tried = [trial.hyperparameters for trial in before.trials(7) if trial.label == label]
        entry = both.entry(label)
        assert entry.start
        assert entry.prior
        assert all(point in tried for point in (*entry.start, *entry.prior))
        assert only.entry(label).start == entry.start
        assert not only.entry(label).prior
    assert both.entry("one").start != both.entry("other").start
