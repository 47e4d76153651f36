"""Torch modules of people's own, named by a document: found, checked, and trained as a plain loop trains them."""

import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from trainers import Pack, parse
from trainers.errors import MissingDataError, SpecError
from trainers.own_function import GROUP, located, require_declared

SIZES = (5, 9, 7)
FORM = 'task.model.module must be "file.py:function" or "package.module:function", got '
GENERATOR = np.random.default_rng(0)
WORDS = GENERATOR.integers(0, 12, (sum(SIZES), 6))
VECTORS = GENERATOR.normal(size=(sum(SIZES), 6, 4))
CLASSES = np.arange(sum(SIZES)) % 3
METHOD = {"name": "fedavg", "client_lr": 0.2, "server_lr": 0.3, "local_steps": 3}

NET = '''
import torch
from torch import nn


class Tied(nn.Module):
    """Scores by the embedding that reads the words, times a constant that is a buffer."""

    def __init__(self, vocabulary=12, width=4):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.mixed = nn.LSTM(width, width, batch_first=True)
        self.back = nn.Linear(width, vocabulary, bias=False)
        self.back.weight = self.words.weight
        self.head = nn.Linear(vocabulary, 3)
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, words):
        return self.head(self.back(self.mixed(self.words(words))[0]).mean(1)) * self.scale


class Adapted(nn.Module):
    """A layer with a low-rank adapter beside it."""

    def __init__(self, rank=2):
        super().__init__()
        self.base = nn.Linear(24, 8)
        self.lora_a, self.lora_b = nn.Linear(24, rank, bias=False), nn.Linear(rank, 8, bias=False)
        self.head = nn.Linear(8, 3)

    def forward(self, rows):
        flat = rows.flatten(1)
        return self.head(torch.tanh(self.base(flat) + self.lora_b(self.lora_a(flat))))


def regression(outputs):
    return nn.Sequential(nn.Flatten(), nn.Linear(24, 8), nn.Tanh(), nn.Linear(8, outputs))


def normalised(width):
    return nn.Sequential(nn.Flatten(), nn.Linear(24, width), nn.BatchNorm1d(width), nn.Linear(width, 3))


def number():
    return 3


def broken(width: int = 3):
    raise RuntimeError("no such width")
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current folder with net.py and data; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    columns = {"y": CLASSES, "client": np.repeat(range(len(SIZES)), SIZES), "two": VECTORS[:, 0, :2]}
    np.savez(tmp_path / "words.npz", x=WORDS, **columns)
    np.savez(tmp_path / "vectors.npz", x=VECTORS, **columns)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith(("driftline_", "ownpackage")):
            del sys.modules[name]


def trial(data: str, model: Any, **task: Any) -> dict[str, Any]:
    named = {"name": "npz", "path": f"{data}.npz", "test_fraction": 0, "model": model, **task}
    return {"task": named, "method": METHOD, "rounds": 4, "dtype": "float64", "seed": 3}


def plain_fedavg(module: nn.Module, inputs: np.ndarray[Any, Any], loss: Callable[[torch.Tensor, slice], Any]) -> None:
    """Trains the parameters that need gradients by four rounds of FedAvg, all clients on all of their data."""
    rows = torch.as_tensor(inputs) if inputs.dtype.kind == "i" else torch.as_tensor(inputs, dtype=torch.float64)
    trained = [held for held in module.parameters() if held.requires_grad]
    ends = np.cumsum(SIZES).tolist()
    for _ in range(4):
        start, sums = [held.detach().clone() for held in trained], [torch.zeros_like(held) for held in trained]
        for end, size in zip(ends, SIZES, strict=True):
            own = slice(end - size, end)
            for held, first in zip(trained, start, strict=True):
                held.data.copy_(first)
            for _ in range(METHOD["local_steps"]):  # type: ignore[call-overload]
                gradients = torch.autograd.grad(loss(module(rows[own]), own), trained)
                for held, total, gradient in zip(trained, sums, gradients, strict=True):
                    held.data -= METHOD["client_lr"] * gradient
                    total += size / sum(SIZES) * gradient
        for held, first, total in zip(trained, start, sums, strict=True):
            held.data.copy_(first - METHOD["server_lr"] * total)


@pytest.mark.parametrize(
    ("data", "model", "task"),
    [
        ("words", {"module": "net.py:Tied", "width": 6}, {}),
        ("vectors", {"module": "net.py:Adapted", "train": ["head.*", "lora_?.weight"]}, {}),
        ("vectors", {"module": "net.py:regression"}, {"kind": "numbers", "targets": "two"}),
    ],
    ids=["tied weights and buffer", "adapter", "numbers"],
)
def test_a_module_trains_as_in_a_plain_loop(
    folder: Path, data: str, model: Any, task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainers.engine.oracles.one_by_one._LARGE", 1)
    pack = Pack.from_spec(parse(trial(data, model, **task)), device="cpu")
    module = pack.torch_modules()[0].train()
    frozen = {name: held.clone() for name, held in module.named_parameters() if "train" in model and "base" in name}
    for name, held in module.named_parameters():
        held.requires_grad_(name not in frozen)
    before = {name: held.detach().clone() for name, held in module.named_parameters()}
    wanted = torch.as_tensor(VECTORS[:, 0, :2] if task else CLASSES)

    def loss(scores: torch.Tensor, own: slice) -> torch.Tensor:
        if task:
            return 0.5 * (scores - wanted[own]).square().sum(1).mean()
        return F.cross_entropy(scores, wanted[own])

    plain_fedavg(module, WORDS if data == "words" else VECTORS, loss)
    lines = pack.advance()
    trained = pack.torch_modules()[0]
    for (name, held), other in zip(module.named_parameters(), trained.parameters(), strict=True):
        torch.testing.assert_close(held, other, rtol=0, atol=1e-10)
        assert torch.equal(other, before[name]) is (name in frozen)
    assert len(frozen) == (2 if "train" in model else 0)
    count = sum(held.numel() for held in module.parameters() if held.requires_grad)
    assert lines[-1]["bytes_up"] == 4 * len(SIZES) * count * 8  # only what is trained is sent


def test_what_is_frozen_is_not_in_a_checkpoint(folder: Path) -> None:
    model = {"module": "net.py:Adapted", "rank": 4}
    whole, parts = (
        Pack.from_spec(parse(trial("vectors", {**model, **train})), device="cpu") for train in ({}, {"train": "head.*"})
    )
    assert len(whole.to_bytes()) - len(parts.to_bytes()) >= 8 * (24 * 8 + 8 + 4 * 24 + 4 * 8)
    assert whole.torch_modules()[0].base.weight.shape == parts.torch_modules()[0].base.weight.shape  # type: ignore[union-attr]
    cnn = {"name": "cnn", "filters": [2], "dense": 8, "train": "6.*"}
    spec = parse({"task": {"name": "digits", "clients": 5, "model": cnn}, "method": METHOD, "rounds": 1})
    assert Pack.from_spec(spec, device="cpu").advance()[-1]["bytes_up"] == 5 * 4 * (8 * 10 + 10)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"module": "net.py"}, f'{FORM}"net.py"'),
        ({"module": 3},  "task.model.module must be a string, got module=3"),
        ({"module": "nett.py:make"}, 'task.model.module: no file "nett.py" in the current directory or beside the'),
        ({"module": "nowhere.net:make"}, 'task.model.module must name a module that is installed here, got "nowhere'),
        ({"module": "net.py:Tie"}, 'net.py has no function "Tie": did you mean Tied?'),
        ({"module": "net.py:Tied", "widht": 3}, 'Tied takes no argument "widht": did you mean width?'),
        ({"module": "net.py:normalised"}, "task.model.width must be given: an argument of normalised"),
        (
            {"module": "net.py:normalised", "width": 64},
            "task.model: layer 2 (BatchNorm1d) mixes the examples of a batch, which no local update method can average: write nn.GroupNorm(4, 64) in its place",  # noqa: E501
        ),
        ({"module": "net.py:Tied", "arguments": 3}, "task.model.arguments must be an object of names and values, got"),
        ({"module": "net.py:Tied", "sha256": "0"}, "net.py, "),
        ({"module": "net.py:number"}, "net.py:number must return a torch.nn.Module, got "),
        ({"module": "net.py:broken"}, "net.py:broken fails: RuntimeError: no such width"),
        ({"module": "syntax.py:make"}, "syntax.py fails when it is imported in line 2: SyntaxError: "),
        ({"module": "ends.py:make"}, "ends.py fails when it is imported in line 3: SystemExit: 1"),
        ({"module": "net.py:Adapted", "train": "haed.*"}, 'task.model.train: no parameter fits the pattern "haed.*"'),
        ({"module": "net.py:Adapted", "train": []}, 'task.model.train must be a pattern such as "head.*"'),
        ({"name": "softmax", "train": "weight"}, "task.model.train must be left out for the model softmax, which is"),
        ({"arguments": {}}, "task.model.name must be given: one of "),
    ],
)  # fmt: skip
def test_what_is_no_module_is_refused_in_one_line(folder: Path, model: Any, message: str) -> None:
    (folder / "syntax.py").write_text("import torch\ndef make(:\n")
    (folder / "ends.py").write_text("import sys\n\nsys.exit(1)\n")
    with pytest.raises((SpecError, MissingDataError)) as caught:
        Pack.from_spec(parse(trial("vectors", model)), device="cpu")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_changed_code_is_seen_and_refused_where_it_must_not_change(folder: Path) -> None:
    document = trial("vectors", {"module": "net.py:Adapted", "rank": 3})
    first = parse(document)
    assert parse(first.canonical).canonical == first.canonical
    checkpoint = Pack.from_spec(first, device="cpu").to_bytes()
    (folder / "net.py").write_text(NET.replace("torch.tanh", "torch.relu"))
    second = parse(document)
    assert first.canonical["task"]["model"]["sha256"] != second.canonical["task"]["model"]["sha256"]
    with pytest.raises(SpecError, match="the code has changed; go back to the old one, or begin a new study"):
        parse(first.canonical)
    with pytest.raises(Exception, match="the checkpoint must be of the same trials"):
        Pack.restore(second, checkpoint, device="cpu")
    one, other = (Pack.from_spec(spec, device="cpu").advance()[-1]["train_loss"] for spec in (second, parse(document)))
    assert one == other


def test_a_file_in_a_package_imports_its_other_modules(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = folder / "ownpackage"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "inner" / "__init__.py").touch()
    (package / "sizes.py").write_text("WIDTH = 7\n")
    (package / "inner" / "net.py").write_text(
        "from torch import nn\nimport ownpackage.sizes\nfrom ..sizes import WIDTH\n\n\n"
        "def make(classes):\n    assert WIDTH == ownpackage.sizes.WIDTH\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(24, WIDTH), nn.Linear(WIDTH, classes))\n"
    )
    spec = parse(trial("vectors", {"module": "ownpackage.inner.net:make"}))
    named = spec.canonical["task"]["model"]
    assert named["module"] == f"{(package / 'inner' / 'net.py').resolve()}:make"
    assert spec.canonical == parse(trial("vectors", {"module": "ownpackage/inner/net.py:make"})).canonical
    assert Pack.from_spec(spec, device="cpu").torch_modules()[0][1].out_features == 7  # type: ignore[index]
    (package / "sizes.py").write_text("WIDTH = 9\n")
    changed = parse(trial("vectors", {"module": "ownpackage.inner.net:make"}))
    assert changed.canonical["task"]["model"]["sha256"] != named["sha256"]
    assert Pack.from_spec(changed, device="cpu").torch_modules()[0][1].out_features == 9  # type: ignore[index]


def test_a_package_is_read_from_its_sources_and_nothing_is_written_beside_them(folder: Path) -> None:
    (folder / "ownpackage" / "inner").mkdir(parents=True)
    sizes = folder / "ownpackage" / "inner" / "sizes.py"
    (folder / "ownpackage" / "__init__.py").touch()
    (folder / "ownpackage" / "inner" / "__init__.py").touch()
    (folder / "ownpackage" / "net.py").write_text(
        "from torch import nn\n\n\ndef make(classes):\n    from .inner.sizes import WIDTH as width\n\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(24, width), nn.Linear(width, classes))\n"
    )
    for width in (7, 9):
        sizes.write_text(f"WIDTH = {width}\n")
        os.utime(sizes, ns=(10**9 + width, 10**9 + width))  # as if both were written in the same second
        pack = Pack.from_spec(parse(trial("vectors", {"module": "ownpackage/net.py:make"})), device="cpu")
        assert pack.torch_modules()[0][1].out_features == width  # type: ignore[index]
    assert not list(folder.rglob("__pycache__"))


def test_nothing_beside_a_module_hides_a_module_of_python(folder: Path) -> None:
    for name in ("random.py", "json/__init__.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(NET)
    Pack.from_spec(parse(trial("words", {"module": "random.py:Tied"})), device="cpu").advance(1)
    assert sys.modules["random"] is random
    with pytest.raises(SpecError, match="the folder json has the name of an installed module: rename it"):
        parse(trial("words", {"module": "json/__init__.py:Tied"}))
    assert located("random:Tied", folder) == ("random:Tied", None)  # a file beside a study hides no module either


def test_a_relative_file_is_one_beside_the_study(folder: Path) -> None:
    path, sha256 = located("net.py:make", folder)
    assert path == f"{(folder / 'net.py').resolve()}:make"
    assert located("net:make", folder) == (path, sha256)
    assert located(3, folder) == (3, None)


def test_a_service_calls_declared_functions_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = folder / "site"
    (site / "ownpackage-1.dist-info").mkdir(parents=True)
    (site / "ownpackage-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: ownpackage\nVersion: 1\n")
    (site / "ownpackage-1.dist-info" / "entry_points.txt").write_text(f"[{GROUP}]\nmine = ownpackage.net\n")
    (site / "ownpackage").mkdir()
    (site / "ownpackage" / "__init__.py").touch()
    (site / "ownpackage" / "net.py").write_text(f"from os import system\n{NET}")
    monkeypatch.syspath_prepend(str(folder / "first"))
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.syspath_prepend(str(folder / "first"))
    require_declared("ownpackage.net:make", "task.model.module")
    for other in ("net.py:make", "os:system", "ownpackage:make", "ownpackage.network:make", "/etc/net.py:make"):
        with pytest.raises(
            SpecError, match=r"^task\.model\.module must name a module that an installed package declares"
        ):
            require_declared(other, "task.model.module")
    assert parse(trial("words", {"module": "ownpackage.net:Tied"})).canonical["task"]["model"]["module"] == (
        "ownpackage.net:Tied"
    )
    with pytest.raises(SpecError, match='has no function "system"'):  # which it only imports
        parse(trial("words", {"module": "ownpackage.net:system", "command": "true"}))
