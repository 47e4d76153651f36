"""The task text with a corpus of the server beside the clients': one vocabulary, two populations measured apart."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainers import Pack
from trainers import parse as parse_trial
from trainers.errors import MissingDataError, SpecError
from trainers.tasks import text

DIGITS = "0123456789" * 40
ADAMW = {"name": "adamw"}


@pytest.fixture
def document(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "plays").mkdir()
    for name in "ab":
        (tmp_path / "plays" / f"{name}.txt").write_text("the cat sat on the mat.\n" * 30)
    (tmp_path / "server.txt").write_text(DIGITS)
    return {
        "name": "text",
        "path": str(tmp_path / "plays"),
        "context": 5,
        "test_fraction": 0.25,
        "central": {"path": str(tmp_path / "server.txt")},
        "model": {"name": "lstm", "embedding": 4, "width": 8, "depth": 1},
    }


def parsed(document: dict[str, Any], **changes: Any) -> Any:
    return text.parse({**document, **changes}, "task")


def test_the_servers_windows_are_of_its_own_texts_alone(document: dict[str, Any]) -> None:
    task, alone = parsed(document), parsed(document, central=None)
    assert task.outputs == alone.outputs + 10
    assert [part.tolist() for part in task.parts] == [part.tolist() for part in alone.parts]
    assert (len(task.central), len(task.test[-1])) == (60, 19)  # of the 79 windows of 400 tokens
    assert task.apart == (False, False, True)
    problem = text.build(task, "float32")
    assert problem.test.people == 2
    assert problem.test.central.sum() == 19
    digits = np.unique(problem.central.targets)
    assert len(digits) == 10
    assert not np.isin(problem.train.targets, digits).any()
    assert np.isin(problem.test.targets, digits).all(axis=1).tolist() == problem.test.central.tolist()


def test_a_draw_of_sources_is_of_the_clients(document: dict[str, Any]) -> None:
    task = parsed(document, sources=1)
    assert (task.clients, len(task.central)) == (1, 60)
    spread = parsed(document, partition="iid", clients=3)
    assert (spread.clients, len(spread.central)) == (3, 60)
    assert sum(map(len, spread.parts)) == sum(map(len, parsed(document).parts))


def test_only_a_mixed_method_learns_the_servers_corpus(document: dict[str, Any]) -> None:
    def last(name: str, **central: Any) -> Any:
        method = {"name": name, "client_lr": 0.05, "delta_lr": 1.0, "local_steps": 10, **central}
        trial = {"task": document, "method": method, "client": ADAMW, "batch_size": 8, "rounds": 8}
        trial |= {"central": ADAMW} if central else {}
        return Pack.from_spec(parse_trial({**trial, "report": ["client_accuracy"]}), device="cpu").advance()[-1]

    clients, both = last("fedavg"), last("parallel_training", central_lr=0.05)
    assert clients["test_accuracy_federated"] > 0.5
    assert clients["test_accuracy_central"] < 0.05
    assert clients["client_accuracy_worst"] > 0.5  # the server is none of them
    assert both["test_accuracy_central"] > 0.5
    for row in (clients, both):
        apart = [row[f"test_loss_{whose}"] for whose in ("federated", "central")]
        assert row["test_loss"] == pytest.approx(np.average(apart, weights=[70, 19]))
        assert "test_bits_per_byte_central" not in row


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"context": 400}, "task.context must be at most 399, all tokens but one of the longest source of the"),
        ({"sources": 3}, "task.sources must be at most 2"),
        ({"central": {"path": "nowhere.txt"}}, 'task.central.path: no file or folder "nowhere.txt"'),
        ({"central": {"path": 3}}, "task.central"),
    ],
)
def test_what_cannot_be_used_is_refused(document: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises((SpecError, MissingDataError)) as caught:
        parsed(document, **changes)
    assert message in str(caught.value)


def test_a_change_of_the_servers_texts_is_noticed(document: dict[str, Any]) -> None:
    task, before = parsed(document), text.stamp(document)
    Path(document["central"]["path"]).write_text(DIGITS[::-1])
    assert text.stamp(document) != before
    with pytest.raises(SpecError, match=r"task\.path must not change, got other texts: start again"):
        text.build(task, "float32")
