"""The estimate of a study's time on this computer: measured in a process that ends in time and stays within memory."""

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from driftline import Client
from driftline.errors import InvalidSpec
from driftline.study.spec import Study
from driftline.wire.budgets import StudyEstimate
from service.embedded import timing
from service.embedded.timing import estimate, training_seconds

PLENTY_S = 120.0
SPACE = {"client_lr": 0.1, "server_lr": 1.0, "local_steps": 2}


def digits(hidden: int) -> Study:
    return Study.from_json(
        {
            "name": "small",
            "task": {"name": "digits", "clients": 10, "partition": "iid", "model": {"name": "mlp", "hidden": [hidden]}},
            "methods": [{"name": "fedavg", "space": SPACE}, {"name": "fedprox", "space": SPACE | {"prox": 0.1}}],
            "budget": {"trials_per_method": 2, "rounds": 10, "seeds": 0},
        }
    )


def test_each_label_is_timed() -> None:
    found = estimate(digits(4), training_s=PLENTY_S)
    words = [
        re.fullmatch(r"(fed.*): ([0-9.]+) ms a round of one trial, timed in packs of 1", line)
        for line in found.rests_on
    ]
    labels = [match for match in words if match is not None]
    assert [match[1] for match in labels] == ["fedavg", "fedprox"]
    workers = os.cpu_count() or 1
    each = [float(match[2]) / 1000 for match in labels]
    assert min(each) > 0, "quick packs are repeated until there is something to time"
    around = next(float(match[1]) for line in found.rests_on if (match := re.search(r"; (\d+) s of it", line)))
    packs = timing.PACK * around / timing.AROUND * 4
    assert found.seconds == pytest.approx(around + training_seconds(sum(each) * 2 * 10 + packs, 4, workers), abs=1)
    assert found.cpu_hours == pytest.approx(sum(each) * 2 * 10 / 3600, abs=1e-6)
    assert (found.trials, found.packs, found.rounds) == (4, 4, 40)


def test_what_is_timed_breaks_no_constraint() -> None:
    document = digits(4).to_json()
    space = {**SPACE, "client_lr": {"float": [0.01, 1]}}
    entry = {"name": "fedavg", "space": space, "constraints": ["client_lr * local_steps <= 0.2"]}
    budget = {**document["budget"], "trials_per_method": 8}
    wide = {"sampler": "random", "resources": {"packs": 8}}
    study = Study.from_json({**document, "methods": [entry], "budget": budget, **wide})
    timed = timing._document(study, "fedavg")["members"]
    assert len({member["client_lr"] for member in timed}) == 8
    assert max(member["client_lr"] for member in timed) <= 0.1


def test_branches_are_timed_one_by_one() -> None:
    document = digits(4).to_json()
    entry = {"name": "fedavg", "space": SPACE, "schedule": {"name": "plateau", "space": {"window": {"int": [1, 3]}}}}
    budget = {"trials_per_method": 8, "rounds": 10, "seeds": 0, "branches": 4}
    methods = [entry, {"name": "fedprox", "space": SPACE | {"prox": 0.1}}]
    found = estimate(Study.from_json({**document, "methods": methods, "budget": budget}), training_s=PLENTY_S)
    packs = {line.partition(":")[0]: line[-1] for line in found.rests_on if line.startswith("fed")}
    assert packs == {"fedavg": "1", "fedprox": "4"}
    alone = "branches: the trials of fedavg as if each were trained alone; rounds that they share take less"
    assert alone in found.rests_on


def test_training_that_needs_too_much_memory_is_unknown() -> None:
    found = estimate(digits(1_000_000), training_s=PLENTY_S, most_bytes=2**28)
    assert found.seconds is None
    assert {line.partition(": ")[2] for line in found.rests_on if line.startswith("fed")} == {
        "unknown: training needs more than 0.2 GiB of memory"
    }


def test_a_process_that_trains_on_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stand_in(text: str) -> Any:
        file = tmp_path / "python"
        file.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\n{text}\n")
        file.chmod(0o700)
        monkeypatch.setattr(sys, "executable", str(file))
        return estimate(digits(4), training_s=0.5)

    label = '{"label": "fedavg", "width": 2, "seconds_a_round": 0.5, "why": ""}'
    found = stand_in(f"cat > {tmp_path}/study; echo ready; echo '{label}'; exec sleep 1000")
    assert found.seconds is None
    assert "fedavg: 500.00 ms a round of one trial, timed in packs of 2" in found.rests_on
    assert "fedprox: unknown: no round was done in the 0.5 s that training may take" in found.rests_on
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
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
