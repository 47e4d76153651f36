"""`space: theory`: derived once, frozen into the study, and recognised again (`driftline.study.theory_spaces`)."""

from typing import Any

import pytest

from driftline import Study
from driftline.errors import InvalidSpec
from driftline.study import theory_spaces
from driftline.study.theory_spaces import adopted, curvature_ratio, derived, pending
from trainers import LossEstimate


def study(*entries: dict[str, Any], **more: Any) -> Study:
    document = {"name": "priors", "task": {"name": "digits", "clients": 10}, "objective": {"quality": "test_loss"}}
    document |= {"methods": list(entries) or [{"name": "fedavg", "space": "theory"}], "batch_size": 20}
    return Study.from_json(document | {"budget": {"trials_per_method": 32, "rounds": 20}} | more)


def test_the_derived_study_is_whole_and_holds_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    first = derived(study())
    entry = first.methods[0]
    assert entry.theory.measured["smoothness"] > 0
    assert entry.start
    assert entry.space["client_lr"] != study().methods[0].space["client_lr"]
    assert Study.from_json(first.to_json()) == first
    assert first == derived(study())
    assert not first.check()
    monkeypatch.setattr(theory_spaces.trainers, "estimate_curvature", lambda trial: pytest.fail("measured again"))
    assert derived(first) == first


def test_a_study_without_theory_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = study({"name": "fedavg"})
    monkeypatch.setattr(theory_spaces.trainers, "estimate_curvature", lambda trial: pytest.fail("measured"))
    assert derived(plain) is plain
    assert "theory" not in plain.to_json()["methods"][0]


def test_entries_share_one_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def measured(trial: Any) -> LossEstimate:
        calls.append(trial)
        return LossEstimate(1.0, 0.1, (1.0, 1.0, 1.0), 1.0, 0.1, 0.1, 10)

    monkeypatch.setattr(theory_spaces.trainers, "estimate_curvature", measured)
    two = derived(study({"name": "fedavg", "space": "theory"}, {"name": "scaffold", "space": "theory"}))
    assert len(calls) == 1
    assert not pending(two)
    lines = two.outlook()
    assert sum(line.startswith("Measured at the initial model") for line in lines) == 1
    assert any(line.startswith("Space of scaffold from theory: client_lr ") for line in lines)


def test_the_users_own_points_come_first_and_stay_inside() -> None:
    point = {"client_lr": 1e-3, "server_lr": 10.0}
    entry = derived(study({"name": "fedavg", "space": "theory", "start": [point]})).methods[0]
    assert entry.start[0] == point
    assert len(entry.start) > 1
    assert entry.space["client_lr"].contains(1e-3)
    prior = derived(study({"name": "fedavg", "space": "theory", "prior": [point]})).methods[0]
    assert prior.prior == [point]
    assert prior.space["server_lr"].contains(10.0)
    zero = derived(study({"name": "fedavg", "space": "theory", "start": [{"client_lr": 0}]})).methods[0]
    assert zero.space["client_lr"].contains(0)


def test_first_points_satisfy_the_constraints_and_leave_most_trials_to_the_sampler() -> None:
    limited = {"name": "fedavg", "space": "theory", "constraints": ["server_lr * local_steps <= 4"]}
    entry = derived(study(limited)).methods[0]
    assert entry.start
    assert all(point["server_lr"] * point["local_steps"] <= 4 for point in entry.start)
    assert len(entry.start) <= 4


def test_the_servers_momentum_is_derived_where_it_is_asked_for() -> None:
    server = {"name": "sgd", "space": "theory"}
    entry = derived(study({"name": "fedavg", "space": "theory", "server": server})).methods[0]
    assert entry.server.space["momentum"].ends()[1] < 0.99
    assert any(point["server.momentum"] > 0 for point in entry.start)
    default = {"name": "sgd", "space": "default"}
    kept = derived(study({"name": "fedavg", "space": "theory", "server": default})).methods[0]
    assert kept.server.space["momentum"].ends()[1] == 0.99


def test_a_derived_study_is_recognised_as_the_one_in_the_file() -> None:
    written = study()
    stored = derived(written)
    assert adopted(written, stored) == stored
    other = study({"name": "fedavg", "space": "theory", "start": [{"local_steps": 4}]})
    assert adopted(other, stored).methods[0].start == other.methods[0].start  # another study
    outside = study({"name": "fedavg", "space": "theory", "start": [{"client_lr": 1e-3}]})
    assert adopted(outside, stored) == outside


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        ({"name": "mass", "space": "theory"}, "methods[0].space: theory has no rates for mass: use default"),
        ({"name": "fedavg", "space": "theory", "client": "adam"}, "methods[0].space: theory needs plain sgd on the"),
        (
            {"name": "fedavg", "server": {"name": "sgd", "space": "theory"}},
            "methods[0].server.space: theory needs space",
        ),
        (
            {"name": "fedavg", "schedule": {"name": "plateau", "space": "theory"}},
            "methods[0].schedule.space: must be a",
        ),
    ],
    ids=["method", "client", "server-alone", "schedule"],
)
def test_what_theory_cannot_say_is_refused_in_one_line(entry: dict[str, Any], line: str) -> None:
    with pytest.raises(InvalidSpec) as error:
        derived(study(entry))
    assert str(error.value).startswith(line)


def test_an_invalid_study_is_left_to_the_check() -> None:
    wrong = study({"name": "fedavgg", "space": {}, "theory": {"parts": ["method"]}})
    assert derived(wrong) is wrong


def test_the_ratio_of_curvatures_is_1_unless_both_tasks_can_be_measured() -> None:
    def of(task: dict[str, Any]) -> Study:
        return study(task=task, objective={"quality": "excess_loss"}, batch_size=None)

    def bowl(curvature: float) -> Study:
        hessian = [[curvature, 0.0], [0.0, 1.0]]
        return of({"name": "quadratic", "hessians": [hessian, hessian], "centers": [[1.0, 1.0], [2.0, 3.0]]})

    assert curvature_ratio(bowl(2.0), bowl(8.0)) == 0.25
    assert curvature_ratio(bowl(2.0), bowl(2.0)) == 1.0
    assert curvature_ratio(of({"name": "nowhere"}), bowl(8.0)) == 1.0
