"""The estimate of a study's time on this computer: its parts, and the processes that measure them."""

import json
import os
import re
import sys
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from driftline import Client
from driftline.errors import InvalidSpec
from driftline.study.spec import Study
from driftline.wire.budgets import CheckedStudy, StudyEstimate
from service.embedded import timing
from service.embedded.room import memory_remark
from service.embedded.timing import Timings, composed, estimate, evaluations, refuse_failing
from service.embedded.timing_process import PackKind, PackSpeed, documents, timed
from trainers import evaluation_grid
from trainers.registry import methods

PLENTY_S = 120.0
SPACE = {"client_lr": 0.1, "server_lr": 0.5, "local_steps": 2}


def digits(hidden: int) -> Study:
    return Study.from_json(
        {
            "name": "small",
            "task": {"name": "digits", "clients": 10, "partition": "iid", "model": {"name": "mlp", "hidden": [hidden]}},
            "methods": [{"name": "fedavg", "space": SPACE}, {"name": "fedprox", "space": SPACE | {"prox": 0.1}}],
            "budget": {"trials_per_method": 2, "rounds": 10, "seeds": 0},
        }
    )


def measured(*speeds: PackSpeed, slowdown: float = 1.0) -> Timings:
    """Stand-in speeds: the first pack of all takes 0.5 s more."""
    first = replace(speeds[0], first_s=0.5)
    return Timings([2.0], [1.5], [replace(speed, slowdown=slowdown) for speed in (first, *speeds[1:])])


def test_each_label_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "PATIENCE", PLENTY_S)
    monkeypatch.setattr(timing, "PROCESSES", 1)
    found = estimate(digits(4), training_s=1.0)
    pattern = r"(fed.*): a round of one trial takes ([0-9.]+) ms in packs of 1"
    labels = [match for line in found.rests_on if (match := re.fullmatch(pattern, line))]
    assert [match[1] for match in labels] == ["fedavg", "fedprox"]
    assert min(float(match[2]) for match in labels) > 0
    assert found.seconds is not None
    assert found.cpu_hours is not None
    assert found.seconds > 3600 * found.cpu_hours / (os.cpu_count() or 1) > 0
    assert (found.trials, found.packs, found.rounds) == (4, 4, 40)


def test_parts_add_up() -> None:
    document = digits(4).to_json()
    budget = {"trials_per_method": 16, "rounds": 100, "confirm": 2, "seeds": 6}
    study = Study.from_json(document | {"budget": budget, "eval_every": 50})
    fedavg = PackSpeed("fedavg", "search", 2, build_s=0.1, round_s=0.01, evaluation_s=0.2)
    fedprox = replace(fedavg, label="fedprox", round_s=0.03)
    alone = replace(fedavg, phase="confirmation", width=1, build_s=0.05, round_s=0.02)
    found = composed(study, measured(fedavg, fedprox, alone), workers=2)
    # 4 packs of each label in the search, 6 in confirmation; fedprox has no speed of its own for the latter
    search = 1600 * (0.01 + 0.03) + 2 * 16 * 3 * 0.2 + 8 * 0.1
    confirmation = 1200 * (0.02 + 0.03) + 2 * 12 * 3 * 0.2 + 6 * (0.05 + 0.1)
    around = timing.WAIT_S + timing.AROUND * 2.0 + 1.5 + 0.5 + timing.TRIAL * 2.0 * 56
    handing = timing.PACK * 2.0
    training = (search / 8 + handing) * (1 + 4) + (confirmation / 12 + handing) * 6
    assert found.seconds == pytest.approx(around + training)
    assert found.cpu_hours == pytest.approx((search + confirmation) / 3600)
    assert found.rests_on[1:] == [
        "fedavg: a round of one trial takes 10.00 ms in packs of 2, 20.00 ms in packs of 1",
        "fedprox: a round of one trial takes 30.00 ms in packs of 2",
        f"time: 2 CPU workers of this computer; {around:.0f} s of it for the start, files and MLflow",
    ]


def test_other_programs_slow_down_all_but_waiting() -> None:
    study = digits(4)
    speeds = PackSpeed("fedavg", width=1, round_s=0.01), PackSpeed("fedprox", width=1, round_s=0.03)
    alone, busy = (composed(study, measured(*speeds, slowdown=factor), workers=2) for factor in (1.0, 3.0))
    assert alone.seconds is not None
    assert busy.seconds == pytest.approx(timing.WAIT_S + 3 * (alone.seconds - timing.WAIT_S))
    assert busy.rests_on[-1].endswith(", all 3.0 times as long because of other programs")


def test_evaluations_are_those_of_the_trials() -> None:
    def study(**keys: Any) -> Study:
        budget = {"trials_per_method": 9, "rounds": 90, "confirm": 2, "seeds": 2, **keys.pop("budget", {})}
        return Study.from_json(digits(4).to_json() | {"budget": budget} | keys)

    assert evaluations(study(eval_every=40), "fedavg", "search") == 9 * 4  # after 0, 40, 80 and 90 rounds
    assert evaluations(study(eval_every=40), "fedavg", "confirmation") == 4 * 4
    assert evaluations(study(), "fedavg", "search") == 9 * len(evaluation_grid(90))
    # rungs at 10, 30 and 90 rounds: 9 trials are evaluated after 0 and 10, 3 after 20 and 30, 1 after 40, 50, ..., 90
    assert evaluations(study(eval_every=10, budget={"rungs": "auto"}), "fedavg", "search") == 9 * 2 + 3 * 2 + 6


def test_what_is_timed_breaks_no_constraint() -> None:
    document = digits(4).to_json()
    space = {**SPACE, "client_lr": {"float": [0.01, 1]}}
    entry = {"name": "fedavg", "space": space, "constraints": ["client_lr * local_steps <= 0.2"]}
    budget = {**document["budget"], "trials_per_method": 8}
    wide = {"sampler": "random", "resources": {"packs": 8}}
    study = Study.from_json({**document, "methods": [entry], "budget": budget, **wide})
    for drawing in islice(documents(study, "fedavg", "search", seed=0), 3):
        assert len({member["client_lr"] for member in drawing["members"]}) == 8
        assert max(member["client_lr"] for member in drawing["members"]) <= 0.1


def test_a_pack_that_is_timed_has_one_structure() -> None:
    document = digits(4).to_json()
    entry = {
        "name": "fedavg",
        "space": SPACE,
        "server": {"name": "sgd", "space": {"nesterov": {"choice": [False, True]}}},
    }
    budget = {**document["budget"], "trials_per_method": 16}
    study = Study.from_json({**document, "methods": [entry], "budget": budget, "resources": {"packs": 4}})
    drawn = list(islice(documents(study, "fedavg", "search", seed=0), 8))
    assert {drawing["server"]["nesterov"] for drawing in drawn} == {False, True}
    assert {len(drawing["members"]) for drawing in drawn} == {4}


def test_branches_are_timed_one_by_one() -> None:
    document = digits(4).to_json()
    entry = {"name": "fedavg", "space": SPACE, "schedule": {"name": "plateau", "space": {"window": {"int": [1, 3]}}}}
    budget = {"trials_per_method": 8, "rounds": 10, "seeds": 0, "branches": 4}
    methods = [entry, {"name": "fedprox", "space": SPACE | {"prox": 0.1}}]
    study = Study.from_json({**document, "methods": methods, "budget": budget})
    widths = {label: len(next(documents(study, label, "search", seed=0))["members"]) for label in study.labels}
    assert widths == {"fedavg": 1, "fedprox": 4}
    speeds = [PackSpeed(label, width=width, round_s=0.1) for label, width in widths.items()]
    alone = "branches: the trials of fedavg as if each were trained alone; rounds that they share take less"
    assert alone in composed(study, measured(*speeds), workers=2).rests_on


def test_packs_of_a_search_with_rungs_share_no_products() -> None:
    document = digits(4).to_json() | {"resources": {"packs": 4}}
    budget = {"trials_per_method": 9, "rounds": 9, "confirm": 4, "seeds": 1}
    for rungs, separate in ((None, [False, False]), ("auto", [True, False])):
        study = Study.from_json(document | {"methods": document["methods"][:1], "budget": budget | {"rungs": rungs}})
        kinds = [PackKind(study, "fedavg", phase, seed=0) for phase in timing.PHASES]
        first = kinds[0].pack(None).plan
        assert [kind.pack(first).plan.separate for kind in kinds] == separate


def test_training_that_needs_too_much_memory_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "PROCESSES", 1)
    found = estimate(digits(1_000_000), training_s=PLENTY_S, most_bytes=2**28)
    assert found.seconds is None
    assert {line.partition(": ")[2] for line in found.rests_on if line.startswith("fed")} == {
        "unknown: training needs more than 0.2 GiB of memory"
    }


def test_an_error_of_a_method_is_named_and_other_labels_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("a method's\nown bug")

    monkeypatch.setattr(methods()["fedavg"], "train_round", broken)
    found = composed(digits(4), measured(*timed(digits(4), 0.2, 2**30, seed=0)), workers=2)
    assert found.seconds is None
    assert "fedavg: unknown: training fails with ValueError: a method's own bug" in found.rests_on
    assert any(line.startswith("fedprox: a round of one trial takes") for line in found.rests_on)


def test_a_study_of_labels_that_fail_to_train_is_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def broken(*_: object) -> None:
        tried.append(1)
        raise IndexError("index out of range in self")

    monkeypatch.setattr(methods()["fedavg"], "train_round", broken)
    speeds = list(timed(digits(4), 0.2, 2**30, seed=0))
    assert {(speed.label, speed.fails) for speed in speeds if not speed.width} == {("fedavg", True)}
    assert len(tried) == 3, "configurations"
    with pytest.raises(InvalidSpec) as caught:
        refuse_failing(digits(4), measured(*speeds))
    assert str(caught.value) == "methods[0]: fedavg: training fails with IndexError: index out of range in self"
    refuse_failing(digits(4), measured(*speeds, PackSpeed("fedavg", width=1)))  # another process found one that trains


def test_models_that_memory_cannot_hold_are_refused_before_anything_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    models = 4 * 10 * (65 * 4 + 5 * 10)  # bytes
    for total, notes in ((3 * models, 0), (3 * models - 1, 1), (models, 1)):
        monkeypatch.setattr("service.embedded.room.total_memory", lambda total=total: total)
        remarks = memory_remark(digits(4))
        assert len(remarks) == notes
        assert all(remark.startswith("task.model: the models of all clients of a round take ") for remark in remarks)
    document = digits(4).to_json()
    document["methods"][1]["space"]["clients_per_round"] = {"choice": [1, 4, 2]}
    cohorts = Study.from_json(document | {"clients_per_round": 1})
    for total, notes in ((4 * models * 3 // 10, 0), (4 * models * 3 // 10 - 1, 1)):
        monkeypatch.setattr("service.embedded.room.total_memory", lambda total=total: total)
        assert len(memory_remark(cohorts)) == notes
    monkeypatch.setattr("service.embedded.room.total_memory", lambda: models - 1)
    with pytest.raises(InvalidSpec, match=r"task\.model: must fit into this computer: .* take a smaller model"):
        Client().validate(digits(4), estimate=False)


def test_a_study_of_days_gets_a_note() -> None:
    checked = CheckedStudy(spec={}, fingerprint="")
    long = StudyEstimate(trials=1, packs=1, rounds=1, seconds=144_142_591)
    assert checked.estimated(long).remarks == [
        "budget: the study takes about 1,668 days: fewer trials_per_method, rounds or labels take less"
    ]
    assert checked.estimated(long.model_copy(update={"seconds": 3600.0})).remarks == []


def test_processes_that_train_on_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stand_in(text: str) -> StudyEstimate:
        file = tmp_path / "python"
        file.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid$6\n{text}\n")
        file.chmod(0o700)
        monkeypatch.setattr(sys, "executable", str(file))
        return estimate(digits(4), training_s=0.2)

    label = json.dumps(asdict(PackSpeed("fedavg", width=2, round_s=0.5)))
    found = stand_in(f"cat > {tmp_path}/study$6; echo loaded 1.5; echo ready 0.5; echo '{label}'; exec sleep 1000")
    assert found.seconds is None
    assert "fedavg: a round of one trial takes 500.00 ms in packs of 2" in found.rests_on
    assert "fedprox: unknown: no round was done in the time that training may take" in found.rests_on
    assert (tmp_path / "pid0").is_file()
    for file in tmp_path.glob("pid*"):
        with pytest.raises(ProcessLookupError):
            os.kill(int(file.read_text()), 0)
    assert stand_in("exit 1").seconds is None


def test_a_local_client_checks_and_estimates_without_starting_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def timed(study: Study) -> StudyEstimate:
        return StudyEstimate(trials=4, packs=4, rounds=40, seconds=1.5, rests_on=[study.name])

    monkeypatch.setattr(timing, "estimate", timed)
    with Client(out=tmp_path) as client:
        checked = client.validate(digits(4))
        assert checked.estimate == timed(digits(4))
        assert checked.spec == digits(4).to_json()
        assert client.validate(digits(4), estimate=False).estimate is None
        assert checked.remarks == []
        large = Study.from_json(digits(4).to_json() | {"resources": {"gpu": 64}})
        (remark,) = client.validate(large, estimate=False).remarks
        assert remark.startswith("resources.gpu: this computer cannot run the study: a pack needs ")
        pooled = Study.from_json(digits(4).to_json() | {"resources": {"pool": "a100"}})
        (remark,) = client.validate(pooled, estimate=False).remarks
        assert remark == "resources.pool: ignored, this computer has no pools of workers"
        wrong = Study.from_json(digits(4).to_json() | {"task": {"name": "digits", "clients": 0}})
        with pytest.raises(InvalidSpec, match="clients"):
            client.validate(wrong)
    assert list(tmp_path.iterdir()) == []
