"""Texts in a column: sentences whose next word is learned, and bags of words, from every form of data."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from trainers import Pack, parse
from trainers.data import table_files
from trainers.data.words import OTHERS, Sentences, Words, numbered
from trainers.errors import SpecError
from trainers.models import lstm
from trainers.problem import PADDING, Examples
from trainers.tasks import data

from . import table_forms
from .token_rounds import SEED, follow

CPU = torch.device("cpu")
WORDS, CONTEXT = 5, 6
MODEL = {"name": "lstm", "embedding": 3, "width": 6, "depth": 1, "projection": 0}
KNOWN = ("tea", "the", "a", "is", "hot", "cold", "Tea")
TEXTS = [" ".join(np.random.default_rng(row).choice(KNOWN, row % 9).tolist()) for row in range(40)]
TEXTS[-1] = "rare " + "x" * 400
CLIENTS = [f"c{row // 8}" for row in range(40)]
TAGS = ["drink|warm" if "hot" in text else "drink" for text in TEXTS]


def write(folder: Path, form: str) -> dict[str, Any]:
    path = folder / f"data.{form}"
    table_forms.write(path, {"text": TEXTS, "client": CLIENTS, "tags": TAGS})
    return {"name": "data", "path": str(path), "inputs": "text", "words": WORDS}


def sentences(keys: dict[str, Any], **more: Any) -> Any:
    return data.parse({**keys, "kind": "tokens", "context": CONTEXT, "model": MODEL, **more}, "task")


def expected(texts: list[str], context: int) -> tuple[list[list[int]], list[list[int]]]:
    """Inputs and targets, word by word; the words known are those of `TEXTS`."""
    often: dict[str, int] = {}
    for word in " ".join(TEXTS).split():
        often[word] = often.get(word, 0) + 1
    known = sorted(often, key=lambda word: -often[word])[:WORDS]
    inputs, targets = [], []
    for text in texts:
        tokens = [OTHERS + known.index(word) if word in known else 3 for word in text.split()]
        line = [1, *tokens, 2, *[0] * context]
        inputs.append(
            line[:context] if len(tokens) >= context else [*line[: len(tokens) + 1], *[0] * context][:context]
        )
        targets.append([*line[1 : len(tokens) + 2], *[PADDING] * context][:context])
    return inputs, targets


def rows_of(examples: Examples, texts: int) -> list[Any]:
    assert len(examples.inputs) == texts
    return [*zip(examples.inputs.tolist(), np.asarray(examples.targets).tolist(), strict=True)]


@pytest.mark.parametrize("form", ["parquet", "jsonl", "csv", "npz", "h5"])
def test_sentences_of_every_form_are_the_same_examples(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "_LARGE", 0)
    task = sentences(write(tmp_path, form), test_fraction=0)
    problem = data.build(task, "float64")
    assert rows_of(problem.train, 40) == list(zip(*expected(TEXTS, CONTEXT), strict=True))
    assert problem.train.inputs.dtype == np.int16
    assert problem.train.sizes.tolist() == [8] * 5
    assert task.outputs == OTHERS + WORDS
    assert task.tokens == CONTEXT


@pytest.mark.parametrize("form", ["parquet", "h5"])
def test_bags_hold_the_shares_of_all_words(tmp_path: Path, form: str) -> None:
    keys = write(tmp_path, form) | {"kind": "tags", "targets": "tags", "separator": "|", "test_fraction": 0}
    problem = data.build(data.parse({**keys, "model": "logistic"}, "task"), "float64")
    inputs, _ = expected(TEXTS, 10)
    wanted = [
        [sum(token == OTHERS + word for token in line[1:]) / max(len(text.split()), 1) for word in range(WORDS)]
        for text, line in zip(TEXTS, inputs, strict=True)
    ]
    assert problem.train.inputs == pytest.approx(np.array(wanted), rel=1e-6)
    assert problem.train.targets[:, 1].tolist() == ["hot" in text for text in TEXTS]


def test_lists_of_words_are_texts(tmp_path: Path) -> None:
    rows = ({"text": text.split(), "client": who} for text, who in zip(TEXTS, CLIENTS, strict=True))
    (tmp_path / "lists.jsonl").write_text("\n".join(map(json.dumps, rows)))
    lists = write(tmp_path, "jsonl") | {"path": str(tmp_path / "lists.jsonl")}
    examples = [
        data.build(sentences(keys, test_fraction=0), "float64").train for keys in (lists, write(tmp_path, "csv"))
    ]
    assert rows_of(examples[0], 40) == rows_of(examples[1], 40)


def test_what_fills_a_matrix_of_words_is_no_word(tmp_path: Path) -> None:
    words = np.array([["a", "b", ""], ["b", "", ""], ["", "", ""]] * 3)
    np.savez(tmp_path / "matrix.npz", text=words, client=np.repeat(["c", "d", "e"], 3), single=np.array("a b"))
    keys = {"name": "npz", "path": str(tmp_path / "matrix.npz"), "inputs": "text", "words": 9, "test_fraction": 0}
    train = data.build(sentences({**keys, "name": "data"}), "float64").train
    assert train.inputs[:3, :4].tolist() == [[1, 5, 4, 0], [1, 4, 0, 0], [1, 0, 0, 0]]
    with pytest.raises(SpecError, match=r'column "single" must hold a text an example, got <U3 of shape \(\)'):
        sentences({**keys, "name": "data", "inputs": "single", "client": None, "partition": "iid", "clients": 1})


def test_tested_words_are_those_of_training(tmp_path: Path) -> None:
    keys = write(tmp_path, "csv")
    (tmp_path / "test.csv").write_text("text,client\ntea unheard the,c0\n")
    problem = data.build(sentences(keys, test={"path": str(tmp_path / "test.csv")}), "float64")
    assert problem.test is not None
    assert rows_of(problem.test, 1) == list(zip(*expected(["tea unheard the"], CONTEXT), strict=True))


def test_tests_without_a_known_word_are_refused(tmp_path: Path) -> None:
    keys = write(tmp_path, "csv")
    (tmp_path / "test.csv").write_text("text,client\nunheard,c0\nof,c0\n")
    with pytest.raises(SpecError, match=r"task.test must have words that are known, got none in 2 texts"):
        sentences(keys, test={"path": str(tmp_path / "test.csv")})


def test_words_as_frequent_as_others_are_known_in_their_order() -> None:
    [examples] = numbered([Sentences.of(["b a", "c b", "a c"])], Words(2, 2), "task")
    assert examples.inputs.tolist() == [[1, 4], [1, 3], [1, 5]]
    [few] = numbered([Sentences.of(["b a", ""])], Words(9), "task")
    assert few.inputs.tolist() == [[0.5, 0.5], [0, 0]]


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_padding_counts_nowhere(tmp_path: Path) -> None:
    """A trial against a plain loop over sentences of their own lengths, and the measures by their definitions."""
    rate, steps, size = 0.3, 3, 4
    spec = parse(
        {
            "task": {**write(tmp_path, "csv"), "kind": "tokens", "context": CONTEXT, "model": MODEL},
            "method": {"name": "fedavg", "client_lr": rate, "delta_lr": 1.0, "local_steps": steps},
            "clients_per_round": 5,
            "batch_size": size,
            "rounds": 3,
            "seed": SEED,
            "dtype": "float64",
            "eval_every": 1,
            "report": ["params", "client_loss"],
        }
    )
    lines = Pack.from_spec(spec).advance()
    model = lstm.build(data.build(spec.task, "float64"), torch.float64, CPU)

    def sums(module: Any, inputs: torch.Tensor, targets: torch.Tensor) -> list[tuple[torch.Tensor, int, int, int]]:
        """(loss, tokens, words predicted right, words known) of each sentence."""
        found = []
        for line, wanted in zip(inputs, targets, strict=True):
            length = int((wanted != PADDING).sum())
            scores, own = module(line[None, :length].long())[0], wanted[:length].long()
            words = own >= OTHERS
            right = int(((scores.argmax(1) == own) & words).sum())
            found.append((F.cross_entropy(scores, own, reduction="sum"), length, right, int(words.sum())))
        return found

    def local(module: Any, batches: Any, place: int) -> None:
        optimizer = torch.optim.SGD(module.parameters(), lr=rate)
        for step in range(steps):
            batch = batches.batch(step, 5)[0].data
            optimizer.zero_grad()
            each = sums(module, batch["inputs"][place], batch["targets"][place])
            torch.stack([loss / length for loss, length, _, _ in each]).mean().backward()
            optimizer.step()

    module = follow(lines, model, model.source(SEED, size, "shuffled"), local)
    assert model.test is not None
    with torch.no_grad():
        each = sums(module, torch.as_tensor(model.test.inputs), torch.as_tensor(model.test.targets))
    loss, tokens, right, words = (float(sum(column)) for column in zip(*each, strict=True))
    last = lines[-1]
    assert last["test_loss"] == pytest.approx(loss / tokens, rel=1e-10)
    assert last["test_perplexity"] == pytest.approx(np.exp(loss / tokens), rel=1e-10)
    assert last["test_accuracy"] == pytest.approx(right / words, rel=1e-12)
    ends = np.cumsum(model.test.sizes)
    own = [each[end - size : end] for end, size in zip(ends, model.test.sizes, strict=True)]
    by_client = [sum(float(one[0]) for one in some) / sum(one[1] for one in some) for some in own]
    assert last["client_loss_mean"] == pytest.approx(np.mean(by_client), rel=1e-10)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_accuracy_of_clients_counts_known_words_and_leaves_out_who_has_none(tmp_path: Path) -> None:
    keys = write(tmp_path, "csv")
    with (tmp_path / "data.csv").open("a") as file:
        file.write('"odd even",c5,drink\n"odd",c5,drink\n"odd",c5,drink')
    task = sentences(keys)
    model = lstm.build(data.build(task, "float64"), torch.float64, CPU)
    document = {
        "task": {**keys, "kind": "tokens", "context": CONTEXT, "model": MODEL},
        "method": {"name": "fedavg", "client_lr": 0.1, "delta_lr": 1.0, "local_steps": 1},
        "init": np.random.default_rng(0).normal(size=model.layout.count).tolist(),
        "rounds": 1,
        "dtype": "float64",
        "report": ["train_accuracy", "params"],
        "adaptation": {"steps": [0, 1], "client_lr": 0.1},
    }
    last = Pack.from_spec(parse(document)).advance()[-1]
    module = model.torch_module(model.start(last["params"], 0))
    with torch.no_grad():
        guesses = module(torch.as_tensor(model.inputs).long()).argmax(2)
    known = model.targets >= OTHERS
    right, places = known & (guesses == model.targets), np.split(np.arange(len(known)), model.offsets[1:])
    shares = [float(right[own].double().sum() / known[own].sum()) for own in places]
    weights = [size * (not np.isnan(share)) for size, share in zip(model.sizes, shares, strict=True)]
    assert weights[-1] == 0 < sum(shares[:-1])
    assert last["train_accuracy"] == pytest.approx(np.average(np.nan_to_num(shares), weights=weights), rel=1e-12)
    assert 0 <= last["adapted_accuracy_0"] <= 1


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"context": None}, "task.context must be given for tokens"),
        ({"words": None}, "task.words must be given for tokens"),
        ({"targets": "tags"}, "task.targets must be left out for tokens, which are the words of inputs, got"),
        ({"scale": "unit"}, "task.scale must be none for tokens"),
        ({"inputs": ["text"]}, "task.inputs must be one column, of text"),
        ({"inputs": "client", "client": None, "partition": "iid", "clients": 2, "words": 3}, None),
        ({"context": 2**16, "clients": None}, None),
        ({"model": "softmax", "kind": "classes", "targets": "tags"}, "task.context must be left out for classes"),
        ({"test": {"inputs": "text", "targets": "tags"}}, "task.test.targets must be left out for tokens"),
    ],
)
def test_keys_of_texts(tmp_path: Path, changes: dict[str, Any], error: str | None) -> None:
    keys = write(tmp_path, "csv")
    if error is None:
        sentences(keys, **changes)
        return
    with pytest.raises(SpecError) as caught:
        sentences(keys, **changes)
    assert str(caught.value).startswith(error)


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ('{"text": "a", "client": 1}\n{"text": null, "client": 1}', "must have a text in every row, got none in row 1"),
        ('{"text": ["a", null], "client": 1}', "must have a text in every row, got"),
        ('{"text": 3, "client": 1}\n{"text": 4, "client": 1}', "must hold strings, for the key words"),
        ('{"text": " ", "client": 1}\n{"text": "", "client": 1}', "must hold words, got none in all 2 texts"),
    ],
)
def test_texts_that_are_none(tmp_path: Path, rows: str, error: str) -> None:
    (tmp_path / "bad.jsonl").write_text(rows)
    with pytest.raises(SpecError, match=error) as caught:
        sentences({"name": "data", "path": str(tmp_path / "bad.jsonl"), "inputs": "text", "words": 9})
    assert "\n" not in str(caught.value)


def test_more_numbers_than_memory_are_refused() -> None:
    texts = Sentences(np.zeros(1, np.int32), np.zeros(10**6, np.int64), ("a",))
    with pytest.raises(SpecError, match=r"task.words must be at most 1073 for 1000000 texts"):
        numbered([texts], Words(2000), "task")
