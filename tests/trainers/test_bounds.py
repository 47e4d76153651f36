"""Documents with numbers, words and arrays of any size: refused in one short line, in milliseconds."""

import json
import subprocess
import sys
import time
from typing import Any

import pytest
import torch

from tests.trainers.documents import METHOD, with_, wrong
from trainers import run
from trainers.errors import SpecError
from trainers.registry import models
from trainers.spelling import hint, nearest
from trainers.trial import sizes
from trainers.trial.document import parse
from trainers.values import digits, integer, shown

WORK = {**METHOD, "local_steps": 2}


def digits_with(**changes: Any) -> dict[str, Any]:
    """A trial on digits, with some keys changed; model is the task's."""
    task = {"name": "digits", "clients": 10, "model": changes.pop("model", "softmax")}
    return {"task": task, "method": WORK, "rounds": 1, **changes}


def quadratic(**task: Any) -> dict[str, Any]:
    return {"task": {"name": "quadratic", **task}, "method": WORK, "rounds": 1}


@pytest.mark.parametrize("word", ["fedavg" * 170_000, "-_ " * 300_000, "é" * 10**6], ids=range(3))
def test_a_long_word_is_compared_in_no_time(word: str) -> None:
    """14 s of processor time for a megabyte, before; a thousand comparisons take less than that one."""
    start = time.thread_time()
    for _ in range(20):
        assert nearest(word, ["fedavg" * 9, "fedprox"]) in (None, "fedavg" * 9)
        assert len(hint(word, [f"word{number}" * 1000 for number in range(1000)])) < 5000
    assert time.thread_time() - start < 7


def test_only_the_beginning_of_a_word_counts() -> None:
    assert nearest("a" * 60 + "b" * 1000, ["a" * 60]) == "a" * 60
    assert hint("zebra", [f"n{number:03}" for number in range(60)]).endswith("n048, n049 and 10 more")


@pytest.mark.parametrize(
    "value",
    [10**5000, [10**5000], {"a": [-(10**5000)]}, ["x" * 10**6] * 3, [0] * 10**6, {"x" * 10**6: 1}, "\ud800"],
    ids=range(7),
)
def test_whatever_its_size_a_value_is_shown_short_and_printable(value: Any) -> None:
    assert len(shown(value)) <= 60
    shown(value).encode("utf-8")


def test_whole_numbers_have_a_largest() -> None:
    assert shown(10**5000) == "a number of about 5001 digits"
    with pytest.raises(SpecError, match=r"^rounds must be at most 9223372036854775807, got rounds=1"):
        integer(1e30, "rounds")
    with pytest.raises(SpecError, match=r"a number must have at most 400 digits, got .* of 5000 digits"):
        digits("9" * 5000)


TOO_MANY = (
    "task.model must be smaller: parameters x clients of a round x trials of a pack must be at most 34359738368, got "
)
LARGE = [
    (
        with_("method.local_steps", 10**30),
        "method.local_steps must be at most 9223372036854775807, got local_steps=1000000000000000000000000000000",
    ),
    (
        with_("method.local_steps", 10**11),
        "method.local_steps must mean at most 100000000 local steps a round, got 100000000000",
    ),
    (
        digits_with(method={**METHOD, "local_steps": None, "local_epochs": 10**9}, batch_size=1),
        "method.local_epochs must mean at most 100000000 local steps a round, got 144000000000",
    ),
    ({**quadratic(problem="random", gradient_noise=0.1), "method": {**METHOD, "local_steps": 10**8}}, None),
    (
        {
            **quadratic(problem="random", clients=1000, dimension=100, gradient_noise=0.1),
            "method": {**METHOD, "local_steps": 10**6},
        },
        (
            "method.local_steps must be smaller with gradient_noise: clients of a round x local steps x dimension must "
            "be at most 34359738368, got 1000 x 1000000 x 100"
        ),
    ),
    (with_("seed", 2**63), "seed must be in [0, 9223372036854775807], got seed=9223372036854775808"),
    (digits_with(batch_size=10**10), None),  # shuffled batches of all examples of a client
    (
        digits_with(batch_size=10**10, batching="with_replacement"),
        (
            "batch_size must be smaller: examples x clients of a round x numbers of an example must be at most "
            "34359738368, got 10000000000 x 10 x 64"
        ),
    ),
    (
        digits_with(batch_size=10**6, batching="with_replacement", method={**METHOD, "local_steps": 10**5}),
        (
            "batch_size must be smaller: examples x clients of a round x local steps must be at most 34359738368, "
            "got 1000000 x 10 x 100000"
        ),
    ),
    (digits_with(model={"name": "mlp", "hidden": [10**8]}), f"{TOO_MANY}7500000010 x 10 x 1"),
    (digits_with(model={"name": "mlp", "hidden": [10**8]}, clients_per_round=1), None),
    (
        digits_with(model={"name": "mlp", "hidden": [10**6]}, members=[{"client_lr": 0.1}] * 50),
        f"{TOO_MANY}75000010 x 10 x 50",
    ),
    (
        digits_with(model={"name": "mlp", "hidden": [1] * 1001}),
        "task.model.hidden must have at most 1000 numbers, got 1001",
    ),
    (
        quadratic(problem="random", dimension=10**7),
        "task.dimension must be small enough that clients x dimension^2 is at most 100000000, got 10 x 10000000^2",
    ),
    (quadratic(problem="random", dimension=3000), None),
    (
        {**quadratic(), "task": {"name": "linear_regression", "dimension": 10**9}},
        "task must be smaller: examples of all clients x dimension must be at most 100000000, got 1e+13",
    ),
    (
        {
            **quadratic(),
            "task": {"name": "linear_regression", "examples": 1, "dimension": 10**5, "orientation": "random"},
        },
        "task must be smaller: dimension^2 must be at most 100000000, got 1e+10",
    ),
    (
        {**quadratic(), "task": {"name": "npz", "path": "x" * 10_000}},
        (
            'task.path: no file "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx ... in the current '
            "directory or in $DATA_DIR: give its path or set DATA_DIR; a service looks on its own computer"
        ),
    ),
]


@pytest.mark.parametrize(("document", "message"), LARGE, ids=range(len(LARGE)))
def test_what_could_never_fit_is_refused_before_anything_is_allocated(document: Any, message: str | None) -> None:
    if message is None:
        assert parse(document).members == 1
    else:
        assert str(wrong(document)) == message


@pytest.mark.parametrize("path", ["x", "task.x", "method.x", "method.name", "task.name", "server.name"])
@pytest.mark.parametrize("text", ["x" * 10**6, "x\n\x1b" * 10**5], ids=["x", "lines"])
def test_messages_cut_what_they_repeat(path: str, text: str) -> None:
    document = with_(path.replace("x", text), 1) if path.endswith("x") else with_(path, text)
    error = wrong(document)
    assert len(str(error)) < 800
    assert len(error.path) < 100


def test_parameters_are_counted_as_training_has_them() -> None:
    for model in ("softmax", {"name": "mlp", "hidden": [7, 5]}, {"name": "cnn", "filters": [3, 4], "dense": 6}):
        spec = parse(digits_with(model=model, report=["params"]))
        first = next(run.run(digits_with(model=model, report=["params"])))
        assert sizes.parameters(spec.task) == len(first["params"])
    assert sizes.parameters(parse(quadratic(problem="random", dimension=4)).task) == 4


def test_a_model_that_needs_memory_to_be_built_is_counted_in_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(problem: Any, dtype: torch.dtype, device: torch.device) -> Any:
        raise NotImplementedError(f"not on {device}")

    monkeypatch.setattr(models()["mlp"], "build", build)
    assert sizes.parameters(parse(digits_with(model={"name": "mlp", "hidden": [31]})).task) is None


def test_classes_that_no_table_of_targets_has_room_for(tmp_path: Any) -> None:
    import numpy as np

    file = tmp_path / "few.npz"
    np.savez(file, x=np.zeros((100, 2)), y=np.arange(100) % 2, client=np.arange(100) % 5)
    document = digits_with(method={**WORK, "local_steps": 1})
    document["task"] = {"name": "npz", "path": str(file), "classes": 10**9, "model": "softmax"}
    with pytest.raises(SpecError, match=r"^task\.classes must be smaller: examples x classes must be at most 343"):
        list(run.run(document))
    document["task"]["classes"] = 60_000  # 3.6e9 numbers, were it a square
    assert len(list(run.run(document))) == 2


def test_the_command_ends_in_one_line(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "trial.json"
    long = '"' + "x" * 10**6 + '"'
    for text, message in (
        ('{"seed": ' + "9" * 5000 + "}", "error: a number must have at most 400 digits, got "),
        (f"{{{long}: 1, {long}: 2}}", "error: every key must occur once in its object, got "),
    ):
        file.write_text(text)
        assert run.main([str(file)]) == 2
        err = capsys.readouterr().err
        assert err.startswith(message)
        assert err.count("\n") == 1
        assert len(err) < 300


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 745. GiB for an array with shape (100000000001,) and data type int64"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB."),
        RuntimeError("[enforce fail at alloc_cpu.cpp:119] err == 0. DefaultCPUAllocator: can't allocate memory: you"),
    ],
)
def test_out_of_memory_ends_in_one_line(
    error: Exception, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(run, "_chunk", fail)
    file = tmp_path / "trial.json"
    file.write_text(json.dumps(with_("rounds", 1)))
    assert run.main([str(file)]) == 1
    assert capsys.readouterr().err.startswith("error: memory ran out, got ")
    monkeypatch.setattr(run, "_chunk", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run.main([str(file)])


def test_memory_that_really_runs_out(tmp_path: Any) -> None:
    file = tmp_path / "trial.json"
    file.write_text(json.dumps(digits_with(model={"name": "mlp", "hidden": [50_000]})))  # 150 MB for ten clients
    code = (
        "import resource, sys, torch; from trainers.engine.packs.pack import Pack; from trainers.run import main; "
        "held = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize() + (200 << 20); "
        "resource.setrlimit(resource.RLIMIT_AS, (held, held)); sys.exit(main(sys.argv[1:]))"
    )
    arguments = [sys.executable, "-c", code, str(file), "--device", "cpu"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].startswith("error: memory ran out, got ")
    assert "Traceback" not in done.stderr
