"""The estimate of a study's time on this computer: measured in a process that ends in time and stays within memory."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from driftline.study.spec import Study
from service.api.timing import estimate

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
    assert [label.label for label in found.labels] == ["fedavg", "fedprox"]
    each = [label.seconds_a_round for label in found.labels if label.seconds_a_round is not None]
    assert found.seconds == pytest.approx(sum(each) * 2 * 10 / found.workers)
    assert min(each) > 0
    assert (found.trials, found.rounds) == (4, 40)


def test_training_that_needs_too_much_memory_is_unknown() -> None:
    found = estimate(digits(1_000_000), training_s=PLENTY_S, most_bytes=2**28)
    assert found.seconds is None
    assert {label.why for label in found.labels} == {"training needs more than 0.2 GiB of memory"}


def test_a_process_that_trains_on_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stand_in(text: str) -> Any:
        file = tmp_path / "python"
        file.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\n{text}\n")
        file.chmod(0o700)
        monkeypatch.setattr(sys, "executable", str(file))
        return estimate(digits(4), training_s=0.5)

    label = '{"label": "fedavg", "width": 2, "seconds_a_round": 0.5, "why": ""}'
    found = stand_in(f"cat > {tmp_path}/study; echo ready; echo '{label}'; exec sleep 1000")
    assert [one.seconds_a_round for one in found.labels] == [0.5, None]
    assert (found.seconds, found.labels[1].why) == (None, "no round was done in the 0.5 s that training may take")
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert stand_in("exit 1").seconds is None
