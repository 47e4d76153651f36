"""Several studies on one scale: as one study with all their labels would have been, or refused."""

from dataclasses import replace
from typing import Any

import pytest

from driftline.errors import InvalidSpec
from driftline.results.comparison import compare
from driftline.results.curves import TrialCurve
from driftline.results.document import Reading, frontier_document
from driftline.results.study_result import StudyResult, joined_result
from driftline.study.spec import FixedScale, Study

from .samples import study

READING = Reading("test_loss", "rounds")
TRIALS = study(("fedavg", "fedprox"), 16, seeds=6, confirm=2)


def part(labels: tuple[str, ...], reading: Reading = READING, **keys: Any) -> tuple[Study, StudyResult]:
    """A study of some of the labels, and its result."""
    document: dict[str, Any] = {
        "name": "-".join(labels),
        "task": "digits",
        "clients_per_round": 5,
        "methods": [{"name": "fedavg", "label": label} for label in labels],
        "objective": {"quality": reading.quality, "cost": reading.cost},
        "budget": {"trials_per_method": 16, "rounds": 200},
    }
    whole = Study.from_json(document | keys)
    curves: tuple[TrialCurve, ...] = tuple(trial for trial in TRIALS if trial.label in labels)
    scale = whole.objective.scale
    rungs = whole.budget.rung_rounds
    if len(rungs) > 1:
        early = [replace(trial.until(rungs[0]), state="STOPPED") for trial in curves if trial.phase == "search"]
        curves = (*early, *(trial for trial in curves if trial.phase == "confirmation"))
    found = frontier_document(whole.name, curves, reading, 200, labels, scale=scale, rungs=rungs)
    return whole, StudyResult(found, curves, reading)


def test_joined_studies_are_read_as_one_study_with_all_labels() -> None:
    joined = joined_result([part(("fedavg",), seed=1, sampler="random"), part(("fedprox",))]).document
    alone = frontier_document("fedavg and fedprox", TRIALS, READING, 200, ["fedavg", "fedprox"])
    assert joined == alone
    assert compare(joined, "fedavg", "fedprox") == compare(alone, "fedavg", "fedprox")
    own = [part((label,))[1].document["scale"] for label in ("fedavg", "fedprox")]
    assert own[0] != own[1]  # so areas of the two results could not be compared


def test_trials_that_were_stopped_early_were_granted_their_rounds_only() -> None:
    budget = {"trials_per_method": 16, "rounds": 200, "rungs": [100]}
    joined = joined_result([part(("fedavg",), budget=budget), part(("fedprox",))]).document
    few, many = (joined["methods"][label]["granted"]["rounds"] for label in ("fedavg", "fedprox"))
    assert many - few == 16 * 100
    assert compare(joined, "fedavg", "fedprox")["verdict"] is None


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("a", "b"), ["a/fedavg", "b/fedavg", "b/fedprox"]),
        (("a", "a"), ["1-a/fedavg", "2-a/fedavg", "2-a/fedprox"]),
    ],
)
def test_labels_of_two_studies_stay_apart(names: tuple[str, str], expected: list[str]) -> None:
    one, other = part(("fedavg",), name=names[0]), part(("fedavg", "fedprox"), name=names[1])
    result = joined_result([one, other])
    assert list(result.document["methods"]) == expected
    counts = [method["ledger"]["trials"] for method in result.document["methods"].values()]
    assert counts == [
        len([trial for trial in TRIALS if trial.label == label]) for label in ("fedavg", "fedavg", "fedprox")
    ]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"task": {"name": "digits", "clients": 7}}, "task: studies must agree"),
        ({"batch_size": 3}, "batch_size: studies must agree, got null and 3"),
        ({"budget": {"trials_per_method": 16, "rounds": 100}}, "budget.rounds: .* got 200 rounds and 100 rounds"),
        ({"reading": Reading("test_accuracy", "rounds")}, "quality: must be given, .* got test_loss and test_accuracy"),
    ],
)
def test_studies_that_differ_in_more_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSpec, match=message):
        joined_result([part(("fedavg",)), part(("fedprox",), **keys)])


def test_a_scale_that_all_studies_fix_stays() -> None:
    fixed = {"objective": {"quality": "test_loss", "scale": {"start": 2.3, "best": 0.05}}}
    scale = FixedScale(start=2.3, best=0.05)
    both = joined_result([part(("fedavg",), **fixed), part(("fedprox",), **fixed)]).document["scale"]
    assert (both["start"], both["best"], both["fixed"]) == (scale.start, scale.best, True)
    assert not joined_result([part(("fedavg",), **fixed), part(("fedprox",))]).document["scale"]["fixed"]
