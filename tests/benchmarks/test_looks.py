"""Replays of a study that is extended: the trials at each look are those of `driftline extend`."""

from benchmarks.looks import extended
from driftline.results.curves import TrialCurve
from service.replay.simulation import Replay
from tests.replay.test_simulation import budget_of, table

BUDGET = budget_of(12, searches=2, confirm=4, seeds=3)


def confirmed(trials: list[TrialCurve]) -> dict[tuple[str, int], set[int]]:
    found: dict[tuple[str, int], set[int]] = {}
    for trial in trials:
        if trial.phase == "confirmation":
            found.setdefault((trial.label, trial.search), set()).add(trial.configuration)
    return found


def test_what_was_confirmed_stays_and_all_searches_confirm_as_many() -> None:
    replay = Replay(table(), ["fedavg", "fedavg"], BUDGET)
    grown = 0
    for study in range(5):
        early, late = extended(replay, study, [6, 12])
        before, after, whole = confirmed(early), confirmed(late), confirmed(replay.trials(study))
        assert {len(chosen) for chosen in before.values()} == {2}
        assert len({len(chosen) for chosen in after.values()}) == 1
        for key, chosen in after.items():
            assert before[key] <= chosen, "earlier ones stay"
            assert whole[key] <= chosen, "what the whole search chooses is added"
        grown += len(after["fedavg-1", 0]) > 2
        numbers = [(trial.label, trial.phase, trial.number) for trial in late]
        assert len(set(numbers)) == len(numbers)
        assert sum(trial.phase == "search" for trial in early) * 2 == sum(trial.phase == "search" for trial in late)
    assert grown, "no study chose anything new"
