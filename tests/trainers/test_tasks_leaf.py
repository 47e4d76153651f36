"""The task data with LEAF's JSON: as published, in folders of train and test, with strings, and damaged."""

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainers.data.folder import data_dir
from trainers.data.table_task import TableTask
from trainers.errors import MissingDataError, SpecError
from trainers.tasks import data
from trainers.trial.document import parse as parse_trial

from .datasets import check_shape, needs

PUBLISHED = {"synthetic_1_1": 1084, "synthetic_iid": 805}


def leaf(data: Mapping[str, Any], **facts: Any) -> str:
    counts = {"num_samples": [len(one["y"]) for one in data.values()]}
    return json.dumps({**counts, "users": list(data), **facts, "user_data": data})


def people(seed: int, sizes: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    generator = np.random.default_rng(seed)
    return {
        name: {"y": generator.integers(0, 3, size).tolist(), "x": generator.standard_normal((size, 4)).tolist()}
        for name, size in sizes.items()
    }


TRAIN = people(0, {"cyd": 5, "ann": 12, "bob": 7, "none": 0, "dan": 2})
TEST = people(1, {"bob": 3, "ann": 4})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """LEAF's folders, with training users in two files."""
    monkeypatch.chdir(tmp_path)
    for side in ("train", "test"):
        (tmp_path / "own" / side).mkdir(parents=True)
    first = {name: TRAIN[name] for name in ("cyd", "ann")}
    rest = {name: TRAIN[name] for name in TRAIN if name not in first}
    (tmp_path / "own/train/a.json").write_text(leaf(first, hierarchies=["a", "b"]))
    with gzip.open(tmp_path / "own/train/b.json.gz", "wt") as file:
        file.write(leaf(rest))
    (tmp_path / "own/test/a.json").write_text(leaf(TEST))
    return tmp_path / "own"


def parsed(path: str = "own", **document: Any) -> TableTask:
    return data.parse({"name": "data", "path": path, **document}, "task")


@pytest.mark.data
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=needs(f"leaf_synthetic/{name}.json.gz")) for name in PUBLISHED]
)
def test_the_published_files_are_read_to_the_bit(name: str) -> None:
    place = f"leaf_synthetic/{name}.json.gz"
    settings = parsed(place, test_fraction=0, classes=10)
    with gzip.open(data_dir() / place) as file:
        published = json.load(file)
    assert settings.examples.tolist() == published["num_samples"]
    assert (settings.clients, settings.classes, sum(published["num_samples"])) == (30, 10, PUBLISHED[name])
    problem = data.build(settings, "float64")
    users = [published["user_data"][user] for user in published["users"]]
    assert problem.train.inputs.tolist() == [row for user in users for row in user["x"]]
    assert problem.train.targets.tolist() == [label for user in users for label in user["y"]]


def test_folders_of_train_and_test(folder: Path) -> None:
    settings = parsed()
    assert settings.examples.tolist() == [12, 7, 5, 2]
    assert [len(rows) for rows in settings.test] == [4, 3]
    assert settings.document["test"] == {"inputs": "x_test", "targets": "y_test", "client": "client_test"}
    assert data.parse(settings.document, "task").document == settings.document
    users = [TRAIN[name] for name in ("ann", "bob", "cyd", "dan")]
    problem = data.build(settings, "float64")
    assert problem.train.inputs.tolist() == [row for user in users for row in user["x"]]
    assert problem.train.targets.tolist() == [label for user in users for label in user["y"]]


def test_a_folder_without_train_and_test_holds_back_a_fifth(folder: Path) -> None:
    settings = parsed("own/train")
    assert (settings.document["test_fraction"], sum(map(len, settings.test))) == (0.2, 5)
    check_shape(data.build(settings, "float32").train, (4,), settings.examples)


def test_characters_and_labels_get_their_places_in_the_sorted_vocabulary(folder: Path) -> None:
    speech = {"romeo": {"x": ["abc", "bca"], "y": ["d", "b"]}, "julia": {"x": ["cab"], "y": ["é"]}}
    (folder.parent / "plays.json").write_text(leaf(speech))
    settings = parsed("plays.json", test_fraction=0, format="leaf", classes=80)
    problem = data.build(settings, "float32")
    assert problem.train.inputs.tolist() == [[2, 0, 1], [0, 1, 2], [1, 2, 0]]
    assert problem.train.targets.tolist() == [2, 1, 0]
    assert (problem.train.inputs.dtype, settings.whole) == (np.uint8, True)
    assert problem.model_settings == {"classes": 80, "vocabulary": 3}
    assert settings.notes[0] == "task.inputs: strings are numbered in 0..2, and softmax computes with these numbers"


def test_tokens_have_one_vocabulary_for_training_and_testing(folder: Path) -> None:
    (folder / "train/a.json").write_text(leaf({"u": {"x": [["to", "be"], ["or", "not"]], "y": [0, 1]}}))
    (folder / "train/b.json.gz").unlink()
    (folder / "test/a.json").write_text(leaf({"u": {"x": [["to", "question"]], "y": [1]}}))
    problem = data.build(parsed(), "float32")
    assert problem.train.inputs.tolist() == [[4, 0], [2, 1]]
    assert problem.test.inputs.tolist() == [[4, 3]]
    assert problem.model_settings["vocabulary"] == 5


def test_whole_numbers_stay_whole_until_a_fraction_comes(folder: Path) -> None:
    users = {"a": {"x": [[2**53 + 1]], "y": [0]}, "b": {"x": [[3]], "y": [1.0]}}
    (folder.parent / "ids.json").write_text(leaf(users))
    inputs = data.build(parsed("ids.json", test_fraction=0), "float32").train.inputs
    assert (inputs.dtype, inputs.tolist()) == (np.int64, [[2**53 + 1], [3]])
    users["b"]["x"] = [[0.5]]
    (folder.parent / "ids.json").write_text(leaf(users))
    assert data.build(parsed("ids.json", test_fraction=0), "float64").train.inputs.tolist() == [[2.0**53], [0.5]]


def test_a_trial_sees_the_folder_as_it_is_now(folder: Path) -> None:
    task = {"name": "data", "path": "own"}
    method = {"name": "fedavg", "client_lr": 0.05, "server_lr": 0.1, "local_steps": 3}
    document = {"task": task, "method": method, "rounds": 1}
    settings = parse_trial(document).task
    assert settings.clients == 4
    (folder / "train/c.json").write_text(leaf({"eve": TRAIN["ann"]}))
    assert parse_trial(document).task.clients == 5
    (folder / "train/c.json").rename(folder / "train/d.json")
    assert parse_trial(document).task.sha256 != settings.sha256


ANN = TRAIN["ann"]
WRONG: list[tuple[str | bytes, dict[str, Any], str]] = [
    # content of train/a.json, document, message
    ('{"user_data": {', {}, "task.path: train/a.json: Expecting value at character 15"),
    ("[1, 2]", {}, "task.path: train/a.json: Expecting { at character 0"),
    (leaf({"a": ANN}) + "}", {}, "task.path: train/a.json: Extra data at character "),
    ("", {}, "task.path: train/a.json: Expecting { at character 0"),
    ('{"users": []}', {}, 'task.path: train/a.json: must have "user_data"'),
    ('{"user_data": {"a": 3}}', {}, 'train/a.json: user "a": must be an object of lists, got 3'),
    ('{"user_data": {"a": {"x": [[1]], "y": 3}}}', {}, 'train/a.json: user "a": y must be a list, got 3'),
    ('{"user_data": {"a": {"x": [[1]], "y": [1]}, "b": {"x": [[1]]}}}', {}, 'user "b": y must be a list, got null'),
    (leaf({"a": {"x": [[1], [2]], "y": [1]}}), {}, 'user "a": columns must have one row for each example, got 2'),
    (leaf({"a": {"x": [[1], [2, 3]], "y": [1, 0]}}), {}, 'user "a": x must have examples of one shape, got lists'),
    (leaf({"a": {"x": [[1]], "y": [1]}, "b": {"x": [[1, 2]], "y": [1]}}), {}, 'user "b": x must have examples'),
    (leaf({"a": {"x": [[None]], "y": [1]}}), {}, 'user "a": x must hold numbers of 64 bits or strings, got missing'),
    (leaf({"a": {"x": [[2**70]], "y": [1]}}), {}, 'user "a": x must hold numbers of 64 bits or strings, got missing'),
    (leaf({"a": {"x": [["b", 1]], "y": [1]}}), {}, 'user "a": x must hold numbers or strings, got both'),
    (leaf({"a": {"x": [[1]], "y": ["b"]}, "b": {"x": [[1]], "y": [1]}}), {}, "must hold strings as before, got num"),
    (leaf({"a": {"x": ["b" * 300, "c"], "y": [1, 0]}}), {}, "x must hold strings of one length, or of at most 256"),
    (leaf({"a": {"x": ["ab", "c"], "y": [1, 0]}}), {"test_fraction": 0}, "strings of one length, got one of 2 char"),
    (
        leaf({"a": {"x": [[]] * 2, "y": [1, 0]}}),
        {"test_fraction": 0},
        'column "x" must hold examples, got float64 of shape (2,',
    ),
    (leaf({"a": {"x": [[-1], [2**63]], "y": [1, 0]}}), {}, 'user "a": x must hold numbers of 64 bits or strings, got'),
    (leaf({"a": {"x": [[0.5], [2**63]], "y": [1, 0]}}), {}, 'user "a": x must hold numbers of 64 bits or strings, got'),
    (
        leaf({"a": {"x": ["b" * 300], "y": [1]}, "b": {"x": ["b" * 299], "y": [1]}}),
        {},
        'user "b": x must hold strings of one length, or of at most 256',
    ),
    ('{"user_data": {"a": {"y": [1], "x": [[1]], "y": [1]}}}', {}, 'user "a": y must be given once'),
    ('{"user_data": {"a": {"z": {"b" 1}}}}', {}, 'user "a": Expecting : at character'),
    (
        b'{"user_data": {"a": {"x": [["\xe9"]]}}}',
        {},
        "train/a.json: must hold text in UTF-8, got other bytes: save the file",
    ),
    (leaf({"none": {"x": [], "y": []}}), {"test_fraction": 0}, 'column "x" must hold examples, got bool of shape (0,)'),
    (leaf({"bob": ANN}), {}, 'train/b.json.gz: user "bob": must be in one place, is in train/a.json already'),
    (leaf({"a": ANN}, users=["b"]), {}, 'user "b" must have as many examples as the file says, 12, got none'),
    (leaf({"a": ANN}, num_samples=[3]), {}, 'user "a" must have as many examples as the file says, 3, got 12'),
    (leaf({"a": ANN}, num_samples=[3, 4]), {}, '"users" and "num_samples" must be lists of one length'),
    ('{"a": ' + "[" * 100_000, {}, "task.path: train/a.json: RecursionError: "),
    (leaf({"a": ANN}), {"inputs": "z"}, 'task.inputs: no column "z" in own: known are '),
    (leaf({"a": ANN}), {"format": "lead"}, 'task.format: no format "lead": did you mean leaf?'),
    (leaf({"a": ANN}), {"path": "none"}, 'task.path: no file or folder "none" in the current directory'),
    (leaf({"a": ANN}), {"path": "."}, "task.path must be data that a format recognises ("),
    (leaf({"a": ANN}), {"path": ".", "format": "leaf"}, "task.path must be a folder of LEAF's .json or .json.gz files"),
    (leaf({"a": ANN}), {"path": "own/train/a.json", "format": "npz"}, "task.path must be an .npz file, as"),
]


@pytest.mark.parametrize(("content", "document", "message"), WRONG, ids=range(len(WRONG)))
def test_every_mistake_is_one_clear_line(
    folder: Path, content: str | bytes, document: dict[str, Any], message: str
) -> None:
    (folder / "train/a.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    if "test_fraction" in document and document["test_fraction"] == 0:
        (folder / "test/a.json").unlink()
        (folder / "train/b.json.gz").unlink()
    with pytest.raises((SpecError, MissingDataError)) as caught:
        parsed(**document)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_damaged_file_is_one_clear_line(folder: Path) -> None:
    """A file is cut, or one bit changed; its digest would tell if no error came."""
    file = folder / "train/b.json.gz"
    whole, generator = file.read_bytes(), np.random.default_rng(0)
    for place in generator.integers(20, len(whole), 12).tolist():
        for damaged in (whole[:place], whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :]):
            file.write_bytes(damaged)
            with pytest.raises(SpecError, match=r"^task\.path: train/b\.json\.gz: [^\n]+$"):
                parsed()


@pytest.mark.parametrize("link", ["own/train/c.json", "own/test"])
def test_links_out_of_the_folder_are_refused(folder: Path, link: str) -> None:
    secret = folder.parent / "secret"
    secret.mkdir()
    (secret / "c.json").write_text(leaf({"eve": ANN}))
    if link == "own/test":
        (folder / "test/a.json").unlink()
        (folder / "test").rmdir()
    (folder.parent / link).symlink_to(secret if link == "own/test" else secret / "c.json")
    with pytest.raises(SpecError, match=r"task\.path must be a folder of .* and no links out of it, got own"):
        parsed()
