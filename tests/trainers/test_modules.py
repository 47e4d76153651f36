"""Modules of people's own: seeded where they draw, evaluated in evaluation mode, refused where they keep state."""

import random
import re
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from trainers import Pack, parse
from trainers.engine.oracles.oracle import ModelBuilder
from trainers.engine.packs.plan import Plan
from trainers.errors import SpecError
from trainers.models._network import Network
from trainers.problem import Examples, Problem
from trainers.registry import models

CPU = torch.device("cpu")
GENERATOR = np.random.default_rng(0)
ROWS = GENERATOR.normal(size=(40, 6))
IMAGES = GENERATOR.normal(size=(40, 3, 6, 6))
SEQUENCES = GENERATOR.normal(size=(40, 5, 8))
WORDS = GENERATOR.integers(0, 20, (40, 5))
CLASSES = np.arange(40) % 3
SHARED = nn.Linear(6, 3)
Make = Callable[[], nn.Module]


class Between(nn.Module):
    """Two layers with a function of the module and the hidden units between them."""

    def __init__(self, function: Callable[[Any, Tensor], Tensor], **held: Any) -> None:
        super().__init__()
        self.first, self.last, self.function = nn.Linear(6, 8), nn.Linear(8, 3), function
        for name, value in held.items():
            self.register_buffer(name, value) if isinstance(value, Tensor) else setattr(self, name, value)

    def forward(self, rows: Tensor) -> Tensor:
        return self.last(self.function(self, self.first(rows)))


class Apply(nn.Module):
    """A function of the module and its inputs."""

    def __init__(self, function: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, rows: Tensor) -> Tensor:
        return self.function(self, rows)


class Sequence(nn.Module):
    """Scores of sequences of vectors or words: a layer on (examples, length, 8), and the mean over the length."""

    def __init__(self, layer: Callable[..., Any], table: nn.Module | None = None) -> None:
        super().__init__()
        self.table, self.layer, self.last = table or nn.Identity(), layer, nn.Linear(8, 3)

    def forward(self, rows: Tensor) -> Tensor:
        found = self.layer(self.table(rows))
        return self.last((found[0] if isinstance(found, tuple) else found).mean(1))


class Positions(nn.Module):
    """A constant buffer of position ids, and an embedding that is also the last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("ids", torch.arange(5))
        self.words, self.places = nn.Embedding(20, 8), nn.Embedding(5, 8)
        self.back, self.last = nn.Linear(8, 20, bias=False), nn.Linear(20, 3)
        self.back.weight = self.words.weight
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, words: Tensor) -> Tensor:
        return self.last(self.back(self.words(words) + self.places(self.ids)).mean(1)) * self.scale


class KeptNormalisation(nn.BatchNorm1d):
    """Batch normalisation whose statistics stay as they are."""

    def train(self, mode: bool = True) -> Self:
        return super().train(False)


class Counter:
    """Counts in an attribute of an object."""

    calls = 0

    def count(self, rows: Tensor) -> Tensor:
        self.calls += 1
        return rows


class Counted(nn.Linear):
    """Counts in an attribute of its class."""

    calls = 0

    def forward(self, rows: Tensor) -> Tensor:
        type(self).calls += 1
        return super().forward(rows)


class Subclass(nn.Dropout):
    """A dropout layer that does something else."""

    def forward(self, rows: Tensor) -> Tensor:
        return rows + torch.rand_like(rows) if self.training else rows


def attending(self: Any, rows: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(rows, rows, rows, dropout_p=0.3 * self.training)


def backwards(change: Callable[[Tensor], Tensor]) -> Make:
    """Changes the gradients in the backward pass."""

    def function(self: Any, rows: Tensor) -> Tensor:
        if rows.requires_grad:
            rows.register_hook(change)
        return rows

    return lambda: Between(function)


def skipping(draw: Callable[[], float]) -> Make:
    return lambda: Between(lambda self, rows: rows if self.training and draw() < 0.5 else rows.tanh())


def initialised(draw: Callable[[], Any]) -> Make:
    def make() -> nn.Module:
        layer = nn.Linear(6, 3)
        layer.weight.data = torch.as_tensor(draw(), dtype=torch.float32)
        return layer

    return make


def set_attribute(self: Any, value: Any) -> None:
    self.held = value


def frozen() -> nn.Module:
    module = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    module[0].requires_grad_(False)
    return module


def hooked(kind: str) -> Make:
    def make() -> nn.Module:
        module = Between(lambda self, rows: rows)
        getattr(module.first.weight, kind)(lambda slopes: None)
        return module

    return make


def counting(self: Any, rows: Tensor) -> Tensor:
    self.calls += 1
    return rows * (1 + self.calls / 1000)


def recomputing(self: Any, rows: Tensor) -> Tensor:
    return checkpoint(lambda some: self.drop(some).tanh(), rows, use_reentrant=False)  # type: ignore[no-any-return]


def logging(self: Any, rows: Tensor) -> Tensor:
    self.held.append(rows.mean().item())
    return rows


def averaging(self: Any, rows: Tensor) -> Tensor:
    self.mean.mul_(0.9).add_(0.1 * rows.detach().mean())
    return rows - self.mean


def linear(*layers: Callable[[], nn.Module], units: int = 6) -> Make:
    return lambda: nn.Sequential(*(layer() for layer in layers), nn.Flatten(), nn.Linear(units, 3))


def scores_of(dtype: torch.dtype) -> Make:
    """Scores of one type, whatever the trial's."""
    return lambda: nn.Sequential(nn.Linear(6, 3), Apply(lambda self, rows: rows.to(dtype)))


DRAWING: dict[str, tuple[Make, Any]] = {
    "functional_dropout": (lambda: Between(lambda self, rows: F.dropout(rows, 0.5, self.training)), ROWS),
    "rrelu": (linear(nn.RReLU), ROWS),
    "subclass_of_dropout": (linear(Subclass), ROWS),
    "noise": (lambda: Between(lambda self, rows: rows + torch.randn(8) if self.training else rows), ROWS),
    "lstm": (lambda: Sequence(nn.LSTM(8, 8, 2, dropout=0.5, batch_first=True)), SEQUENCES),
    "attention_function": (lambda: Sequence(nn.Sequential(nn.Linear(8, 8), Apply(attending))), SEQUENCES),
    "transformer": (
        lambda: Sequence(nn.TransformerEncoderLayer(8, 2, 8, 0.3, batch_first=True), nn.Embedding(20, 8)),
        WORDS,
    ),
    "python": (skipping(random.random), ROWS),
    "numpy": (skipping(np.random.rand), ROWS),
    "torch": (skipping(lambda: torch.rand(()).item()), ROWS),
}
STEADY: dict[str, tuple[Make, Any]] = {
    "positions_and_tied": (Positions, WORDS),
    "kept_batch_normalisation": (linear(lambda: KeptNormalisation(6)), ROWS),
    "weight_norm": (linear(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(6, 6))), ROWS),
    "instance_norm": (linear(lambda: nn.InstanceNorm2d(3), units=108), IMAGES),
    "lazy": (linear(lambda: nn.LazyConv2d(2, 3), lambda: nn.Flatten(), lambda: nn.LazyLinear(6)), IMAGES),
    "unused": (lambda: Between(lambda self, rows: rows, unused=nn.Linear(2, 2)), ROWS),
    "frozen": (frozen, ROWS),
    "cache": (lambda: Between(lambda self, rows: rows * self.__dict__.setdefault("mask", torch.ones(8))), ROWS),
    "last_activation": (lambda: Between(lambda self, rows: (set_attribute(self, rows), rows)[1]), ROWS),
    "numpy_start": (initialised(lambda: np.random.normal(size=(3, 6))), ROWS),  # noqa: NPY002
    "python_start": (initialised(lambda: [[random.random()] * 6] * 3), ROWS),
    "sparse_embedding": (lambda: Sequence(nn.Tanh(), nn.Embedding(20, 8, sparse=True)), WORDS),
    "single_precision_scores": (scores_of(torch.float32), ROWS),
    "double_precision_scores": (scores_of(torch.float64), ROWS),
}
REFUSED: dict[str, tuple[Any, ...]] = {
    "dropout": ("the module (Between) draws from torch's", lambda: Between(lambda self, rows: F.dropout(rows, 0.5))),
    "noise_in_a_layer": (
        "layer 1 (Between) draws from torch's random generator in evaluation mode",
        lambda: nn.Sequential(nn.Linear(6, 6), Between(lambda self, rows: rows + torch.rand(8))),
    ),
    "python": ("draws from Python's random", lambda: Between(lambda self, rows: rows * random.random())),
    "numpy": ("draws from numpy's", lambda: Between(lambda self, rows: rows * np.random.rand())),  # noqa: NPY002
    "own_generator": (
        "the module (Between) gives other numbers when it is called again with the same examples in evaluation mode",
        lambda: Between(lambda self, rows: rows * self.draw.random(), draw=np.random.default_rng(0)),
    ),
    "own_generator_in_training": (
        "the module (Between) gives other numbers when it is called again with the same examples in training mode",
        lambda: Between(lambda self, rows: rows * np.random.default_rng().random() if self.training else rows),
    ),
    "spectral_norm": (
        "layer 0 (ParametrizedLinear) changes its weight.0._u when it is called in training mode",
        linear(lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(6, 6))),
    ),
    "running_mean": ("(Between) changes its mean", lambda: Between(averaging, mean=torch.zeros(()))),
    "counter": ("(Between) gives other numbers when it is called again", lambda: Between(counting, calls=0)),
    "list": ("(Between) changes its attribute held at every call", lambda: Between(logging, held=[])),
    "object": ("changes its attribute held", lambda: Between(lambda self, rows: self.held.count(rows), held=Counter())),
    "counter_in_the_class": ("(Counted) changes its attribute calls at every call", lambda: Counted(6, 3)),
    "noise_in_gradients": (
        "the module (Between) draws from torch's random generator in the backward pass",
        backwards(lambda slopes: slopes + torch.randn_like(slopes)),
    ),
    "hook": ("layer first (Linear) must have no hook on its weight", hooked("register_hook")),
    "late_hook": ("layer first (Linear) must have no hook", hooked("register_post_accumulate_grad_hook")),
    "sorting": ("(Between) mixes examples", lambda: Between(lambda self, rows: rows[rows[:, 0].argsort()])),
    "sorting_downwards": ("mixes examples", lambda: Between(lambda self, rows: rows[(-rows[:, 0]).argsort()])),
    "batch_norm": ("layer 0 (BatchNorm1d) mixes", linear(lambda: nn.BatchNorm1d(6, track_running_stats=False))),
    "own_batch_norm": ("(Between) mixes examples", lambda: Between(lambda self, rows: rows - rows.mean(0))),
    "length_first": ("layer layer (LSTM) mixes examples", lambda: Sequence(nn.LSTM(8, 8)), SEQUENCES),
    "one_example_only": (
        "the module (Between) fails when the module gets inputs (2, 6) of float32: RuntimeError",
        lambda: Between(lambda self, rows: rows.view(1, 8)),
    ),
    "no_single_example": ("= (1, 3) for 1 example, got (3,)", lambda: Between(lambda self, rows: rows.squeeze(0))),
    "other_inputs": ("layer 0 (Linear) fails when the module gets inputs (2, 6)", linear(lambda: nn.Linear(7, 6))),
    "few_classes": ("(Linear) must return scores (examples, classes) = (2, 3)", lambda: nn.Linear(6, 2)),
    "no_tensor": ("the module (LSTM) must return a tensor of scores, got tuple", lambda: nn.LSTM(6, 3)),
    "in_place": ("layer 0 (ReLU) changes the module's inputs in place", linear(lambda: nn.ReLU(inplace=True))),
    "one_module": ("`make` must return a new module at every call", lambda: SHARED),
    "no_seed": ("starts with another weight", initialised(lambda: np.random.default_rng().normal(size=(3, 6)))),
    "nothing_to_train": ("has no parameter to train", lambda: nn.Linear(6, 3).requires_grad_(False)),
    "complex": (
        "must compute with real numbers, got turn of torch.complex64",
        lambda: Between(lambda self, rows: (rows * self.turn).real, turn=torch.ones(8, dtype=torch.cfloat)),
    ),
    "lazy": ("layer 0 (LazyConv2d) gets no shape from the first", lambda: nn.Sequential(nn.LazyConv2d(2, 3))),
    "largest_norm": (
        "layer table (Embedding) changes its weight when it is called",
        lambda: Sequence(nn.Linear(8, 8), table=nn.Embedding(20, 8, max_norm=1.0)),
        WORDS,
    ),
    "checkpoint": ("called again in the backward pass", lambda: Between(recomputing, drop=nn.Dropout(0.5))),
    "all_units": ("layer 0 (Dropout) must drop fewer than all units, got p=1", linear(lambda: nn.Dropout(1.0))),
}
"""What a module does -> (part of the error, the module, its inputs if they are not ROWS)."""


def network(make: Make, inputs: Any, targets: Any = CLASSES, dtype: torch.dtype = torch.float32) -> Network:
    offsets = np.array([0, 9, 12, 30])
    data = Examples(inputs, targets, offsets, np.diff([*offsets, 40]))
    return Network(Problem("own", data, test=data), make, dtype, CPU)


@pytest.fixture
def train(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Pack]:
    """Makes a pack of a module on data with four clients of different sizes."""

    def pack(make: Make, inputs: Any, targets: Any = CLASSES, oracle: str = "loop", **changes: Any) -> Pack:
        class Builder(ModelBuilder):
            DTYPES = ("float32", "float64", "bfloat16")
            TARGETS = "numbers" if targets.dtype.kind == "f" else "classes"  # type: ignore[assignment]

            def build(self, problem: Problem, dtype: torch.dtype, device: torch.device) -> Network:
                return Network(problem, make, dtype, device)

        monkeypatch.setitem(models()._loaded, "own", Builder())
        monkeypatch.setattr(models(), "_own", {*models()._own, "own"})
        np.savez(tmp_path / "data.npz", x=inputs, y=targets, client=np.repeat(np.arange(4), [9, 3, 18, 10]))
        document = {
            "task": {"name": "npz", "path": str(tmp_path / "data.npz"), "model": "own"},
            "method": {"name": "fedavg", "client_lr": 0.1, "tied": True, "local_steps": 3},
            "rounds": 4,
            "clients_per_round": 3,
            "batch_size": 5,
            "eval_every": 1,
            "report": ["params"],
            **changes,
        }
        spec = parse(document)
        plan = Plan(oracle, spec.members, torch.get_num_threads(), "cpu", spec.dtype, document["eval_every"])
        return Pack.from_spec(spec, device="cpu", plan=plan)

    yield pack  # type: ignore[misc]
    from trainers.engine.packs.build import _models

    _models.clear()  # of modules that the same document means no more


def curve(pack: Pack, member: int = 0) -> list[Any]:
    names = ("train_loss", "params", "update_norm")
    return [[line[name] for name in names] for line in pack.advance() if line["member"] == member]


@pytest.mark.parametrize("name", [*DRAWING, "positions_and_tied", "lazy", "numpy_start", "kept_batch_normalisation"])
def test_a_curve_depends_on_the_seed_only(name: str, train: Callable[..., Pack]) -> None:
    make, inputs = {**DRAWING, **STEADY}[name]
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tobytes()  # noqa: NPY002
    alone = curve(train(make, inputs))
    assert [*map(bytes, (states[0].numpy(), torch.get_rng_state().numpy()))].count(bytes(states[0].numpy())) == 2
    assert states[1:] == (random.getstate(), np.random.get_state()[1].tobytes())  # noqa: NPY002
    torch.manual_seed(7)
    assert curve(train(make, inputs)) == alone
    members = [{"client_lr": 0.3}, {}, {"local_steps": 1}]
    assert curve(train(make, inputs, members=members, eval_every=3, report=["params", "full_loss"]), 1) == alone
    pack = train(make, inputs)
    lines = pack.advance(2)
    restored = Pack.restore(pack.spec, pack.to_bytes(), device="cpu").advance()
    assert [line["params"] for line in (*lines, *restored)] == [values[1] for values in alone]
    assert curve(train(make, inputs, seed=1)) != alone


@pytest.mark.parametrize("name", [*DRAWING, *STEADY])
def test_evaluations_draw_nothing_and_are_those_of_the_written_module(name: str) -> None:
    make, inputs = {**DRAWING, **STEADY}[name]
    model = network(make, inputs)
    params = model.start(None, 3)
    module = model.torch_module(params)
    given = torch.as_tensor(inputs) if inputs.dtype.kind == "i" else torch.as_tensor(inputs, dtype=torch.float32)
    with torch.no_grad():
        loss = F.cross_entropy(module(given), torch.as_tensor(CLASSES)).item()
    assert model.evaluate(params.view(1, 1, -1))["test_loss"].item() == pytest.approx(loss, rel=1e-5)
    batches = model.source(0, 5, "shuffled").round(0, np.arange(4))
    for name, oracle in model.oracles.items():
        if name != "vmap":
            losses = oracle.value(params.view(1, 1, -1), batches.full())[0]
            assert float(losses.double() @ torch.tensor([18.0, 10, 9, 3]).double() / 40) == pytest.approx(
                loss, rel=1e-4
            )


@pytest.mark.parametrize("name", DRAWING)
def test_draws_differ_between_steps_clients_and_rounds(name: str) -> None:
    make, inputs = DRAWING[name]
    model = network(make, np.repeat(inputs[:1], 40, 0), np.zeros(40, np.int64))
    params = model.start(None, 0).view(1, 1, -1)
    losses = set()
    for number in range(3):
        batches = model.source(0, 8, "shuffled").round(number, np.arange(4))
        for step in range(4):
            losses |= set(model.oracles["loop"].value(params, batches.batch(step, 3))[0].tolist())
    assert len(losses) == 2 if name in ("python", "numpy", "torch") else len(losses) > 30  # of 36


def test_functions_that_draw_for_some_numbers_only_are_noticed_before_they_draw() -> None:
    model = network(linear(nn.RReLU), abs(ROWS))
    assert [source.name for source in model.draws] == ["torch"]
    assert list(model.oracles) == ["loop"]


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_reproduced_is_refused_by_the_layers_name(name: str) -> None:
    message, make, *inputs = REFUSED[name]
    with pytest.raises(SpecError, match=re.escape(message)) as error:
        network(make, *inputs or [ROWS])
    assert str(error.value).startswith("task.model: ")
    assert "\n" not in str(error.value)


def test_a_module_that_computes_in_single_precision_only_is_refused_in_bfloat16() -> None:
    def single(rows: Tensor) -> Tensor:
        return rows @ torch.eye(8)

    for one in (lambda: Between(lambda self, rows: single(rows)), backwards(single)):
        network(one, ROWS)
        with pytest.raises(SpecError, match=r"the module .* fails in bfloat16: RuntimeError: .*make tensors of the ty"):
            network(one, ROWS, dtype=torch.bfloat16)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("name", ["sparse_embedding", "single_precision_scores", "double_precision_scores"])
def test_the_types_of_scores_and_gradients_inside_a_module_do_not_matter(
    name: str, dtype: str, train: Callable[..., Pack]
) -> None:
    make, inputs = STEADY[name]
    oracles = ("loop", "vmap", "autograd")
    found = [train(make, inputs, dtype=dtype, rounds=2, oracle=one).advance()[-1]["params"] for one in oracles]
    for params in found[1:]:
        np.testing.assert_allclose(params, found[0], atol=1e-2 if dtype == "bfloat16" else 1e-6)


def test_attention_has_second_derivatives() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 8, 0.0, batch_first=True)
    model = network(lambda: Sequence(deepcopy(layer)), SEQUENCES, dtype=torch.float64)
    params = model.start(None, 0).view(1, 1, -1).expand(1, 3, -1)
    batch = model.source(0, 5, "shuffled").round(0, np.arange(3)).batch(0, 3)
    step = 1e-5 * params
    ahead, behind = (model.oracles["loop"].value_and_grad(point, batch)[1] for point in (params + step, params - step))
    for oracle in model.oracles.values():
        torch.testing.assert_close(oracle.hvp(params, batch, params), (ahead - behind) / 2e-5, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("large", [10**9, 1], ids=["dense", "by rows"])
def test_tied_weights_get_the_sum_of_both_gradients(large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainers.engine.oracles.one_by_one._LARGE", large)
    model = network(Positions, WORDS, dtype=torch.float64)
    assert [entry.name for entry in model.layout.entries].count("words.weight") == 1
    assert "back.weight" not in {entry.name for entry in model.layout.entries}
    module = model.torch_module(model.start(None, 0)).train()
    assert module.back.weight is module.words.weight
    batch = model.source(0, 6, "shuffled").round(0, np.array([2])).batch(0, 1)
    data = batch[0].data
    F.cross_entropy(module(data["inputs"][0]), data["targets"][0]).backward()
    for oracle in model.oracles.values():
        total = oracle.value_and_grad(model.start(None, 0).view(1, 1, -1), batch)[1][0, 0]
        torch.testing.assert_close(model.layout.views(total)["words.weight"], module.words.weight.grad)
        torch.testing.assert_close(model.layout.views(total)["scale"], module.scale.grad)


def test_a_regression_must_return_a_number_for_each_target(train: Callable[..., Pack]) -> None:
    with pytest.raises(
        SpecError, match=r"must return scores \(examples, targets\) = \(2, 1\) for 2 examples, got \(2, 3\)"
    ):
        train(lambda: nn.Linear(6, 3), ROWS, CLASSES / 2)


def test_a_layer_that_serves_several_places_drops_other_units_in_each() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop, self.last = nn.Dropout(0.5), nn.Linear(60, 3)

        def forward(self, rows: Tensor) -> Tensor:
            masks.append([(self.drop(torch.ones(len(rows), 60)) != 0).tolist() for _ in range(2)])
            out: Tensor = self.last(rows.repeat(1, 10))
            return out

    masks: list[Any] = []
    model = network(Twice, ROWS)
    masks.clear()
    batch = model.source(0, 4, "shuffled").round(0, np.array([0])).batch(0, 1)
    for _ in range(2):
        model.oracles["loop"].value(model.start(None, 0).view(1, 1, -1), batch)
    assert masks[0] == masks[1]
    assert masks[0][0] != masks[0][1]
