"""The report item_rows: the items of a client's batches are the rows of the table that its training changes."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trainers import Pack, parse
from trainers.errors import SpecError

ITEMS, CONTEXT, WIDTH = 60, 3, 8
METHOD = {"name": "fedavg", "client_lr": 0.5, "server_lr": 0.5}


@pytest.fixture
def task(tmp_path: Path) -> dict[str, Any]:
    draws = np.random.default_rng(1)
    rows = [{"who": who, "film": f"{draws.integers(ITEMS):02}"} for who in "abc" for _ in range(30 + 5 * ord(who) % 7)]
    rows += [{"who": "d", "film": f"{item:02}"} for item in range(ITEMS)]  # all items, in nobody's training
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    task = {"name": "data", "path": str(tmp_path / "log.jsonl"), "kind": "pairs", "inputs": "film", "client": "who"}
    task |= {"context": CONTEXT, "test": {"clients": ["d"]}}
    return {**task, "model": {"name": "dual_encoder", "embedding": WIDTH}}


def trained(task: dict[str, Any], **changes: Any) -> list[dict[str, Any]]:
    document = {"task": task, "method": {**METHOD, "local_steps": 4}, "batch_size": 2, "rounds": 2, "eval_every": 1}
    return Pack.from_spec(parse({**document, "report": ["item_rows", "params"], **changes}), device="cpu").advance()


@pytest.mark.parametrize("batch_size", [2, None])
def test_a_client_changes_no_other_rows(task: dict[str, Any], batch_size: int | None) -> None:
    before, *_, after = trained(task, batch_size=batch_size, clients_per_round=1, rounds=1)
    tables = [np.array(line["params"])[: (ITEMS + 1) * WIDTH].reshape(ITEMS + 1, WIDTH) for line in (before, after)]
    changed = (tables[0] != tables[1]).any(1)
    assert not changed[0]  # no item
    if batch_size is None:
        assert after["item_rows"] == changed.sum() < ITEMS
    else:
        assert 5 < changed.sum() <= after["item_rows"] <= 4 * batch_size * (CONTEXT + 1)


def test_it_is_the_mean_over_the_clients(task: dict[str, Any]) -> None:
    """Full batches touch every item of a client."""
    counts: dict[str, set[str]] = {}
    for line in Path(task["path"]).read_text().splitlines():
        counts.setdefault(json.loads(line)["who"], set()).add(json.loads(line)["film"])
    wanted = np.mean([len(counts[who]) for who in "abc"])
    lines = trained(task, batch_size=None, weighting="uniform")[1:]
    assert [line["item_rows"] for line in lines] == pytest.approx([wanted] * 2)


def test_every_trial_of_a_pack_counts_its_own_steps(task: dict[str, Any]) -> None:
    members = [{"local_steps": steps} for steps in (1, 4, 2)]
    packed = trained(task, members=members)
    alone = [trained(task, method={**METHOD, **one})[-1]["item_rows"] for one in members]
    assert [line["item_rows"] for line in packed[-3:]] == alone
    assert alone[0] < alone[2] < alone[1]


def test_a_round_without_a_local_loop_has_none_and_other_tasks_are_refused(task: dict[str, Any]) -> None:
    central = {**task, "central": {"spreadout": 0.001}}
    pooled = {"name": "pooled_training", "client_lr": 0.1, "server_lr": 0.1, "local_steps": 1}
    line = trained(central, method=pooled)[-1]
    assert line["item_rows"] is None or math.isnan(line["item_rows"])
    with pytest.raises(SpecError, match="report"):
        trained({"name": "digits"})


def test_it_changes_nothing(task: dict[str, Any]) -> None:
    with_it, without = trained(task)[-1], trained(task, report=["params"])[-1]
    assert torch.equal(torch.tensor(with_it["params"]), torch.tensor(without["params"]))
