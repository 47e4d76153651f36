"""The list of a study's trials: its digest, what it depends on, and the first trial that differs."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from driftline.results.trial_list import first_difference, missed, trial_list
from driftline.study.spec import Study
from driftline.wire.ids import trial_id
from driftline.wire.records import StudyPlan, StudyRecord, TrialRecord
from tests.driver.store_client import quadratic

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PLAN = StudyPlan(generation=4, width=2, confirmation_width=2)


def trial(label: str, number: int, phase: Any = "search", study: str = "s", **changes: Any) -> TrialRecord:
    values = {"seed": 0, "configuration": number, "hyperparameters": {"client_lr": number / 8}, **changes}
    key = trial_id(study, label, phase, number)
    return TrialRecord(
        id=key, study_id=study, label=label, phase=phase, number=number, created_at=NOW, updated_at=NOW, **values
    )


def record(study: Study | None = None, plan: StudyPlan | None = PLAN) -> StudyRecord:
    spec = (study or quadratic(sampler="tpe")).to_json()
    return StudyRecord(id="s", name="small", spec=spec, plan=plan, created_at=NOW, updated_at=NOW)


def some(study: str = "s", **changes: Any) -> list[TrialRecord]:
    return [trial(label, number, study=study, **changes) for label in ("short", "long") for number in range(3)]


def test_the_digest_is_of_the_trials_and_not_of_their_order_ids_or_results() -> None:
    found = trial_list(record(), some())
    assert (found["trials"], found["asking"]) == (6, "generations")
    assert (found["reproducible"], found["exceptions"]) == (True, [])
    again = [other.model_copy(update={"state": "DIVERGED", "rounds_done": 7}) for other in reversed(some("t"))]
    assert trial_list(record(), again)["digest"] == found["digest"]


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"configuration": 9}, {"hyperparameters": {"client_lr": 0.1}}], ids=str
)
def test_any_other_trial_changes_the_digest(change: dict[str, Any]) -> None:
    other = [*some()[:-1], some()[-1].model_copy(update=change)]
    assert trial_list(record(), other)["digest"] != trial_list(record(), some())["digest"]
    assert trial_list(record(), some()[:-1])["digest"] != trial_list(record(), some())["digest"]


def test_asynchronous_asking_is_no_reproducible_study() -> None:
    budget = {"trials_per_method": 3, "rounds": 2, "asking": "asynchronous"}
    learning = trial_list(record(quadratic(sampler="tpe", budget=budget)), some())
    assert (learning["asking"], learning["reproducible"]) == ("asynchronous", False)
    assert learning["exceptions"][0].startswith("asked asynchronously")
    assert trial_list(record(quadratic(sampler="random", budget=budget)), some())["reproducible"]
    stopping = trial_list(record(quadratic(sampler="random", budget={**budget, "rungs": [1]})), some())
    assert stopping["exceptions"][0].startswith("compared asynchronously")


def test_a_study_without_a_plan_claims_nothing() -> None:
    found = trial_list(record(plan=None), some())
    assert (found["plan"], found["reproducible"]) == (None, False)


def test_a_failed_trial_ends_reproducibility_two_generations_later() -> None:
    failed = trial("a", 5, state="FAILED")
    asked = [trial("a", number) for number in range(12)]
    assert missed(failed, asked, PLAN) is None
    staged = PLAN.model_copy(update={"stages": {"a": [5, 2, 6]}})  # a.s00005 is in the stage of trials 5 and 6
    assert missed(failed, asked[:7], staged) is None
    assert str(missed(failed, asked[:8], staged)).startswith("a.s00007 and later trials were asked for")
    later = [*asked, trial("a", 12)]
    without = "without the result of a.s00005, which had failed"
    assert missed(failed, later, PLAN) == f"a.s00012 and later trials were asked for {without}"
    assert missed(failed, [*asked, trial("b", 12)], PLAN) is None
    chosen = [*asked, trial("a", 0, "confirmation")]
    assert missed(failed, chosen, PLAN) == f"the configurations of a to confirm were chosen {without}"
    stopped = [*asked[:6], trial("a", 6, state="STOPPED"), *asked[7:]]
    assert missed(failed, stopped, PLAN) == f"trials of a were stopped at rungs {without}"
    assert missed(failed, [trial("a", 3, state="STOPPED"), *asked[4:]], PLAN) is None
    assert missed(failed, later, PLAN.model_copy(update={"generation": 0})) is None
    assert missed(trial("a", 0, "confirmation", state="FAILED"), later, PLAN) is None
    found = trial_list(record(), [*later[:5], failed, *later[6:]])
    assert (found["reproducible"], len(found["exceptions"])) == (False, 1)


def test_search_trials_added_after_the_confirmation_are_an_exception() -> None:
    """The study run at once would have chosen what to confirm from all of them."""
    found = [*some(), trial("short", 0, "confirmation"), trial("long", 0, "confirmation")]
    assert trial_list(record(), found)["reproducible"]
    late = trial("short", 3).model_copy(update={"created_at": NOW + timedelta(hours=1)})
    extended = trial_list(record(), [*found, late])
    assert not extended["reproducible"]
    assert extended["exceptions"] == ["short was extended by search trials after configurations were confirmed"]


def at(hour: int, number: int, phase: Any, **changes: Any) -> TrialRecord:
    """A trial of one label that was created at this hour, and has ended half an hour later."""
    created = NOW + timedelta(hours=hour)
    whole = trial("short", number, phase, configuration=0, state="COMPLETE")
    return whole.model_copy(update={"created_at": created, "updated_at": created + timedelta(minutes=30), **changes})


def test_looks_are_extensions_by_search_trials_or_seeds_after_results() -> None:
    def looks(*trials: TrialRecord) -> int:
        found: int = trial_list(record(), [*reversed(trials)])["looks"]
        return found

    once = [at(0, 0, "search"), at(1, 0, "confirmation"), at(1, 1, "confirmation")]
    assert (looks(), looks(*once[:1]), looks(*once)) == (1, 1, 1)
    longer = [*once, at(2, 1, "search"), at(3, 2, "confirmation"), at(3, 3, "confirmation")]
    assert looks(*longer) == 2, "more trials, and their confirmation"
    assert looks(*longer[:-2]) == 2, "they may change what the search chooses"
    seeds = [*longer, at(4, 4, "confirmation"), at(4, 5, "confirmation")]
    assert looks(*seeds) == 3, "more seeds"
    assert looks(*once, at(2, 2, "confirmation"), at(3, 3, "confirmation")) == 3, "twice more seeds"
    waiting = {"state": "WAITING", "updated_at": NOW + timedelta(hours=1)}
    assert looks(once[0], at(1, 0, "confirmation", **waiting), at(2, 1, "search")) == 1, "nothing was confirmed yet"


def test_what_the_plan_says_is_in_the_result() -> None:
    changed = PLAN.model_copy(update={"exceptions": ["out of memory"]})
    found = trial_list(record(plan=changed), some())
    assert (found["reproducible"], found["exceptions"]) == (False, ["out of memory"])
    assert found["plan"] == PLAN.model_dump(exclude={"exceptions"})


def test_the_first_trial_that_differs_is_named() -> None:
    one = [*some(), trial("short", 0, "confirmation", seed=1)]
    assert first_difference(one, reversed([*some("t"), trial("short", 0, "confirmation", "t", seed=1)])) is None
    rates = {"hyperparameters": {"client_lr": 0.5}}
    other = [item.model_copy(update=rates) if item.number else item for item in one]
    assert first_difference(one, other) == "long.s00001: client_lr is 0.125 and 0.5"
    moved = [*one[:-1], one[-1].model_copy(update={"seed": 2})]
    assert first_difference(one, moved) == "short.c00000: seed is 1 and 2"
    assert first_difference(one[:-1], one) == "short.c00000: only the second study has it"
    assert first_difference(one, one[1:]) == "short.s00000: only the first study has it"
