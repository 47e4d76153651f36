"""The task text: every token is a target once, held-out ends, vocabularies, and texts that cannot be used."""

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainers import Pack
from trainers import parse as parse_trial
from trainers.data import byte_pairs, text_sources
from trainers.errors import MissingDataError, SpecError
from trainers.tasks import text

from .datasets import needs

SHAKESPEARE = [pytest.mark.data, needs(text_sources.SHAKESPEARE)]
TEXTS = {"b.txt": "naïve café, ÿ\n" * 40, "a.txt": "the cat sat on the mat.\n" * 30, "deep/c.txt": "hi"}
SIZE = 270  # of the vocabulary of byte pairs


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, written in TEXTS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(written, encoding="utf-8")
    (tmp_path / "notes.md").write_bytes(b"\xff\x00")  # no text of the task
    return tmp_path


def parsed(path: Path | str | None, **settings: Any) -> Any:
    given = {"path": None if path is None else str(path), "context": 16, **settings}
    return text.parse({"name": "text", **given}, "task")


@pytest.mark.parametrize("vocabulary", ["bytes", "characters", "bpe"])
def test_tokens_are_the_texts_and_every_one_is_a_target_once(folder: Path, vocabulary: str) -> None:
    settings = parsed(folder, vocabulary=vocabulary, vocabulary_size=SIZE if vocabulary == "bpe" else None)
    problem, pieces = text.build(settings, "float32"), table(vocabulary)
    assert settings.clients == 2  # c.txt is shorter than a window
    assert settings.notes == (
        "task.context: 1 of 3 files are left out, shorter than a window of 16 tokens and the next: deep/c.txt",
    )
    for client, name in enumerate(("a.txt", "b.txt")):
        own = slice(problem.train.offsets[client], problem.train.offsets[client] + problem.train.sizes[client])
        held = slice(problem.test.offsets[client], problem.test.offsets[client] + problem.test.sizes[client])
        inputs, targets = (
            np.concatenate([getattr(problem.train, kind)[own], getattr(problem.test, kind)[held]])
            for kind in ("inputs", "targets")
        )
        assert inputs.ravel()[1:].tolist() == targets.ravel()[:-1].tolist()  # windows lie next to one another
        written, found = TEXTS[name].encode(), decoded(np.append(inputs.ravel(), targets[-1, -1]), pieces)
        assert found == written[: len(found)]
        assert problem.test.sizes[client] == int(len(inputs) * 0.1)
        assert len(written) - len(found) < 16 * max(map(len, pieces))
    assert problem.train.inputs.itemsize == (2 if vocabulary == "bpe" else 1)
    assert problem.model_settings["classes"] == {"bytes": 256, "characters": 19, "bpe": SIZE}[vocabulary]
    assert problem.train.inputs.max() < problem.model_settings["classes"]
    wanted = len(decoded(problem.test.targets.ravel(), pieces)) / problem.test.targets.size
    assert problem.model_settings["bytes_per_token"] == pytest.approx(wanted, rel=1e-12)


def learned() -> Any:
    """A vocabulary of the parts that are trained on."""
    return byte_pairs.train([TEXTS[name][: len(TEXTS[name]) * 9 // 10] for name in sorted(TEXTS)], SIZE, "task")


def table(vocabulary: str) -> list[bytes]:
    """The bytes of each token."""
    if vocabulary == "bytes":
        return [bytes([byte]) for byte in range(256)]
    if vocabulary == "characters":
        return [one.encode() for one in sorted(set("".join(TEXTS.values())))]
    tokenizer, byte_of = learned(), {letter: byte for byte, letter in enumerate(shown_bytes())}
    return [bytes(byte_of[letter] for letter in tokenizer.id_to_token(number)) for number in range(SIZE)]


def shown_bytes() -> list[str]:
    """GPT-2's characters for the 256 bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def decoded(tokens: np.ndarray, pieces: list[bytes]) -> bytes:
    return b"".join(pieces[token] for token in tokens.tolist())


def test_byte_pairs_are_learned_from_what_is_trained_on_alone(folder: Path) -> None:
    settings = parsed(folder, vocabulary="bpe", vocabulary_size=SIZE)
    written = TEXTS["a.txt"]
    (folder / "a.txt").write_text(written[: int(len(written) * 0.9)] + "zqzqzqzq\n" * 8)
    again = parsed(folder, vocabulary="bpe", vocabulary_size=SIZE)
    assert again.document["sha256"] != settings.document["sha256"]
    first = text.build(again, "float32").train.inputs[:20]
    assert first.tolist() == byte_pairs.encode(learned(), written)[: 20 * 16].reshape(20, 16).tolist()


def test_evenly_cut_clients_have_the_same_windows(folder: Path) -> None:
    natural = text.build(parsed(folder, vocabulary="bytes"), "float32")
    even = text.build(parsed(folder, vocabulary="bytes", partition="iid", clients=5), "float32")
    assert np.ptp(even.train.sizes) <= 1
    assert even.train.clients == 5
    for one, other in ((natural.train, even.train), (natural.test, even.test)):
        pairs = [np.hstack([part.inputs, part.targets]).tolist() for part in (one, other)]
        assert sorted(pairs[0]) == sorted(pairs[1])
    served = text.build(parsed(folder, vocabulary="bytes", central={"fraction": 0.25}), "float32")
    assert served.central is not None
    assert len(served.central.inputs) + len(served.train.inputs) == len(natural.train.inputs)


def test_a_trial_learns_and_its_metrics_follow_from_its_loss(folder: Path) -> None:
    trial = {
        "task": {
            "name": "text",
            "path": str(folder),
            "context": 16,
            "model": {"name": "transformer", "width": 16, "depth": 1, "heads": 2},
        },
        "method": {"name": "fedavg", "client_lr": 0.01, "delta_lr": 1.0, "local_steps": 10},
        "client": {"name": "adamw"},
        "batch_size": 8,
        "rounds": 3,
        "report": ["client_accuracy"],
    }
    spec = parse_trial(trial)
    last, first = Pack.from_spec(spec, device="cpu").advance()[-1], math.log(19)
    assert (last["examples"], last["tokens"]) == (2 * 3 * 10 * 8, 2 * 3 * 10 * 8 * 16)
    assert last["test_loss"] < 0.8 * first
    assert last["test_perplexity"] == pytest.approx(math.exp(last["test_loss"]))
    per_byte = dict(spec.task.model_settings)["bytes_per_token"]
    assert 1 < per_byte < 2
    assert last["test_bits_per_byte"] == pytest.approx(last["test_loss"] / math.log(2) / per_byte)
    assert last["client_accuracy_p10"] < last["test_accuracy"] < last["client_accuracy_p90"]
    spec = parse_trial({**trial, "task": {**trial["task"], "validation": 0.3}})
    targets = text.build(spec.task, "float32").test.targets[len(np.concatenate(spec.task.test)) :]
    own = len(decoded(targets.ravel(), table("characters"))) / targets.size
    assert abs(own - per_byte) > 0.001
    last = Pack.from_spec(spec, device="cpu").advance()[-1]
    assert last["validation_bits_per_byte"] == pytest.approx(last["validation_loss"] / math.log(2) / own)
    assert last["test_bits_per_byte"] == pytest.approx(last["test_loss"] / math.log(2) / per_byte)


def no_change(folder: Path) -> Path:
    return folder


def with_file(name: str, content: bytes, alone: bool = False) -> Callable[[Path], Path]:
    def change(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name if alone else folder

    return change


def with_link(folder: Path) -> Path:
    (folder / "link.txt").symlink_to("/etc/hostname")
    return folder


def emptied(folder: Path) -> Path:
    for name in TEXTS:
        (folder / name).unlink()
    return folder


WRONG: dict[str, tuple[Callable[[Path], Path], dict[str, Any], str]] = {
    "missing": (lambda folder: folder / "no.txt", {}, "task.path: no file or folder "),
    "binary": (with_file("d.txt", b"ab\0c"), {}, "must hold text, got a binary file: byte 2 of d.txt is zero"),
    "latin": (
        with_file("d.txt", "café".encode("latin-1"), alone=True),
        {},
        "task.path must hold text in UTF-8, but byte 3 of d.txt is not: save it as UTF-8",
    ),
    "empty": (with_file("d.txt", b""), {}, "task.path must hold text, got an empty file: d.txt"),
    "no_text": (emptied, {}, "task.path must hold .txt files, got none in "),
    "link": (with_link, {}, "task.path must hold its files, got a link out of it: link.txt"),
    "one_file": (
        lambda folder: folder / "a.txt",
        {},
        "task.partition must not be natural for a single file: use iid",
    ),
    "short": (
        with_file("d.txt", b"tiny", alone=True),
        {"partition": "iid", "clients": 1},
        "task.context must be at most 3, all tokens but one of the longest source, got context=16",
    ),
    "vocabulary": (no_change, {"vocabulary": "words"}, 'task.vocabulary must be one of bytes, characters, bpe'),
    "size_of_characters": (
        no_change,
        {"vocabulary_size": 300},
        "task.vocabulary_size must be left out for the vocabulary characters, got vocabulary_size=300: it is for bpe",
    ),
    "small_size": (no_change, {"vocabulary": "bpe", "vocabulary_size": 256}, "task.vocabulary_size must be in [257, "),
    "large_size": (
        no_change,
        {"vocabulary": "bpe", "vocabulary_size": 5000},
        "the pairs of this text, got vocabulary_size=5000",
    ),
    "sources": (no_change, {"sources": 3}, "task.sources must be at most 2, those with a window of 16 tokens"),
    "test_windows": (no_change, {"test_windows": 99}, "task.test_windows must be at most 7, the windows held out"),
    "test_fraction": (
        no_change,
        {"test_fraction": 0.001},
        "task.test_fraction must hold a window out, got test_fraction=0.001 of at most 44 windows",
    ),
    "sha256": (no_change, {"sha256": "0" * 64}, "task.sha256 must be that of the tokens, "),
    "model": (no_change, {"model": "softmax"}, 'task.model must be a model of tokens, got model="softmax"'),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_texts_that_cannot_be_used(folder: Path, case: str) -> None:
    change, settings, message = WRONG[case]
    with pytest.raises(SpecError) as caught:
        parsed(change(folder), **settings)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_texts_that_are_too_large_are_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = sum(len(written.encode()) for written in TEXTS.values())
    monkeypatch.setattr(text_sources, "_MOST_BYTES", size - 1)
    with pytest.raises(SpecError, match=f"task.path must hold at most {size - 1} bytes of text, got {size}"):
        parsed(folder)


def test_byte_pairs_need_their_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(SpecError) as caught:
        parsed(folder, vocabulary="bpe")
    assert str(caught.value) == (
        "task.vocabulary must be bytes or characters without the package tokenizers, got bpe: "
        'run pip install "driftline[text]"'
    )


def test_another_model_refuses_tokens_and_a_model_of_tokens_other_targets() -> None:
    with pytest.raises(SpecError, match='model of labelled examples, got model="lstm"'):
        parse_trial({"task": {"name": "digits", "model": "lstm"}, "method": {"name": "fedavg"}, "rounds": 1})


def test_texts_that_change_or_vanish_are_noticed(folder: Path) -> None:
    settings, document = parsed(folder), {"name": "text", "path": str(folder)}
    before = text.stamp(document)
    (folder / "e.txt").write_text("more and more\n" * 5)
    assert text.stamp(document) != before
    with pytest.raises(SpecError, match=r"task\.path must not change, got other texts: start again"):
        text.build(settings, "float32")
    for file in [*folder.rglob("*.txt")]:
        file.unlink()
    assert text.stamp(document) is None
    with pytest.raises(SpecError, match=r"task\.path"):
        text.build(settings, "float32")


def test_missing_data_says_which_variable_to_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DATA_DIR", str(tmp_path))
    with pytest.raises(MissingDataError, match=r"task: the data file shakespeare/.* set DATA_DIR to the folder"):
        parsed(None)


@pytest.mark.data
@needs(text_sources.SHAKESPEARE)
def test_shakespeares_roles_are_clients() -> None:
    settings = parsed(None, context=80)
    assert settings.outputs == 77
    assert (settings.clients, len(settings.test)) == (1157, 698)
    drawn = [parsed(None, context=80, sources=count) for count in (10, 20)]
    assert [one.clients for one in drawn] == [10, 20]
    assert {part.tobytes() for part in drawn[0].parts} <= {part.tobytes() for part in drawn[1].parts}
    assert settings.notes == ()
