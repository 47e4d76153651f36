"""`driftline data describe` and `driftline init --data`: what they say about data, and studies that are valid."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from driftline.errors import InvalidSpec
from driftline.study.check import check
from driftline.study.spec import Study
from tests.command_line import printed, refusal
from trainers.engine.packs.pack import Pack
from trainers.trial.document import parse as parse_trial

GENERATOR = np.random.default_rng(0)


def people(path: Path) -> None:
    rows = [f"{20 + n % 50},{('Rome', 'Oslo')[n % 2]},{('no', 'yes')[n % 3 == 0]},c{n % 7}" for n in range(60)]
    path.write_text("\n".join(["age,city,label,client", *rows]) + "\n")


def wards(path: Path) -> None:
    rows = [f"{20 + n % 50},{'mf'[n % 2]},w{n % 7},name {n},{int(n % 3 == 0)}" for n in range(60)]
    path.write_text("\n".join(["age,sex,ward,name,label", *rows]) + "\n")


def prices(path: Path) -> None:
    path.write_text("".join(["size,y\n", *(f"{n},{0.5 * n + 0.25}\n" for n in range(40))]))


def images(path: Path) -> None:
    labels = np.arange(24) % 3
    pixels = GENERATOR.integers(0, 50, (24, 1, 4, 4)) + 100 * labels[:, None, None, None]
    np.savez(path, x=pixels.astype(np.uint8), y=labels, client=np.arange(24) // 6)


def sentences(path: Path) -> None:
    texts = [f"{('good', 'poor')[n % 2]} film number {n} of this year" for n in range(60)]
    path.write_text("\n".join(["review,stars,label", *(f"{text},{n % 5},{n % 2}" for n, text in enumerate(texts))]))


def speeches(path: Path) -> None:
    rows = [{"text": f"to be or not to be number {n % 4}", "client": f"c{n % 6}"} for n in range(60)]
    path.write_text("\n".join(map(json.dumps, rows)))


def names(path: Path) -> None:
    rows = [f'"Doe, Mr. John {n}",{n % 50},{int(n % 50 < 25)}' for n in range(60)]
    path.write_text("\n".join(["name,age,label", *rows]) + "\n")


def one_person(path: Path) -> None:
    path.write_text("\n".join(["userId,movieId", *(f"1,{n % 7}" for n in range(40))]))


def ratings(path: Path) -> None:
    rows = [f"{n % 6},{n % 7},{n % 5},2024-05-{1 + n // 6:02}T10:00:00" for n in range(120)]
    path.write_text("\n".join(["userId,movieId,rating,timestamp", *rows]))


KINDS: dict[str, tuple[Callable[[Path], None], dict[str, Any], list[str]]] = {
    # what writes the file, keys of the task, what the table says
    "people.csv": (
        people,
        {"scale": "standardise", "inputs": ["age", "city"]},
        [
            "people.csv: csv, 48 training and 12 test examples",
            "clients     7, of 6 to 8 examples, median 7\n",
            "labels      2: no 31, yes 17",
            'city    2 different strings  "Rome"',
            "age     numbers, 20 to 69    20",
        ],
    ),
    "wards.csv": (
        wards,
        {"clients": 10},
        ["so they are spread over 10 clients at random; if ward does, set client: ward\n"],
    ),
    "prices.csv": (
        prices,
        {"model": "linear", "partition": "iid", "clients": 10},
        [
            "clients     10, of 3 to 4 examples, median 3, drawn at random",
            "targets     numbers to predict",
            "note: task.client: no column says whose an example is, so they are spread over 10 clients at random\n",
        ],
    ),
    "reviews.csv": (
        sentences,
        {"inputs": "review", "words": 10000, "targets": "label"},
        ["labels      2: 0 24, 1 24", 'review  texts of 7.0 words in the mean  "good film number 0 of this year"'],
    ),
    "speeches.jsonl": (
        speeches,
        {"kind": "tokens", "inputs": "text", "words": 10000, "context": 20},
        [
            "clients     6, of 8 to 8",
            "targets     each word of a text, from those before it",
            "text    texts of 8.0 words",
        ],
    ),
    "ratings.csv": (
        ratings,
        {"kind": "pairs", "inputs": "movieId", "client": "userId", "order": "timestamp", "context": 10},
        [
            "note: task.inputs: not used: rating;",
            "clients     5, of 19 to 19",
            "targets     each item of a client",
            "timestamp  dates or times",
        ],
    ),
    "names.csv": (names, {"inputs": ["name", "age"]}, ["numbers, 0 to 49", "texts of 4.0 words in the mean"]),
    "one.csv": (one_person, {"kind": "pairs", "client": "userId"}, ["31 training and 8 test", "there is one client"]),
    "images.npz": (images, {"scale": "unit"}, ["x       numbers of 1 x 4 x 4, 0 to 249", "clients     4, of 4 to 5"]),
}


LABELLED = ("people.csv", "wards.csv", "reviews.csv", "names.csv", "images.npz")


@pytest.fixture(params=KINDS)
def own(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    KINDS[request.param][0](tmp_path / request.param)
    return str(request.param)


def test_a_description_and_a_study_that_trains(own: str) -> None:
    _, keys, said = KINDS[own]
    table = printed("data", "describe", own, "--plot", "own.svg")
    for line in said:
        assert line in table
    assert Path("own.svg").read_text().startswith("<?xml")
    document = json.loads(printed("data", "describe", own, "--json"))
    assert document["clients"] == len(document["sizes"])
    assert (document["label_skew"] is None) == (own not in LABELLED)
    assert sum(document["labels"].values()) in (0, sum(document["sizes"]))
    printed("init", "study.yaml", "--data", own)
    study = Study.from_yaml("study.yaml")
    check(study)
    assert keys.items() <= study.task.items()
    assert study.name == own.partition(".")[0]
    trial = {
        "task": study.task,
        "method": {"name": "fedavg", "client_lr": 0.01, "delta_lr": 1.0, "local_steps": 2},
        "rounds": 2,
        "eval_every": 1,
        "clients_per_round": yaml.safe_load(Path("study.yaml").read_text())["clients_per_round"],
    }
    lines = Pack.from_spec(parse_trial(trial), device="cpu").advance()
    assert lines[-1]["test_loss"] < lines[0]["test_loss"]


def test_what_is_wrong_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    people(tmp_path / "people.csv")
    (tmp_path / "taken.png").write_text("")
    (tmp_path / "ragged.csv").write_text("x,y\n1,2\n3\n")
    (tmp_path / "visits.csv").write_text("age,outcome\n1,well\n3,ill\n")
    for arguments, message in (
        (["data", "describe", "people.csv", "--targets", "lable"], '--targets: no column "lable" in people.csv: did'),
        (["data", "describe", "people.csv", "--client", "who"], '--client: no column "who" in people.csv: known are'),
        (["data", "describe", "visits.csv"], "--targets must be given, one of the columns age, outcome"),
        (["init", "study.yaml", "--data", "visits.csv"], "--targets must be given, one of the columns age, outcome"),
        (["data", "describe", "none.csv"], 'no file or folder "none.csv"'),
        (["data", "describe", "ragged.csv"], "ragged.csv: CSV parse error: Row #3: Expected 2 columns"),
        (["data", "describe", "people.csv", "--plot", "own.txt"], "--plot: must end in .png, .svg or .pdf, got"),
        (["init", "study.yaml", "--data", "ragged.csv"], "ragged.csv: CSV parse error"),
    ):
        error = refusal(*arguments)
        assert isinstance(error, InvalidSpec)
        assert str(error).startswith(message)
        assert "\n" not in str(error)
    taken = refusal("data", "describe", "people.csv", "--plot", "taken.png")
    assert "taken.png exists and is not overwritten" in str(taken)
    assert not Path("study.yaml").exists()
