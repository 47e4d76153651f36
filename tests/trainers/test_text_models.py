"""Models of tokens: causal, of the stated size, equal to a plain loop of torch, and the same in packs."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from trainers import Pack, parse
from trainers.errors import SpecError
from trainers.models import lstm, transformer
from trainers.models._network import Network
from trainers.problem import Examples, Problem
from trainers.tasks import text

from .members import contract
from .token_rounds import SEED, follow

CPU = torch.device("cpu")
TOKENS, CONTEXT = 23, 12
MODELS: dict[str, tuple[Any, dict[str, int]]] = {
    "transformer": (transformer, {"width": 16, "depth": 2, "heads": 2}),
    "lstm": (lstm, {"embedding": 5, "width": 12, "depth": 2, "projection": 7}),
}
# torch has no batching rule for these on a CPU, and says so
pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")


def problem(**settings: Any) -> Problem:
    stream = np.random.default_rng(0).integers(0, TOKENS, (25, CONTEXT + 1)).astype(np.uint8)
    inputs, targets = stream[:, :-1].copy(), stream[:, 1:].copy()
    train = Examples(inputs[:19], targets[:19], np.array([0, 12]), np.array([12, 7]), "tokens")
    test = Examples(inputs[19:], targets[19:], np.array([0]), np.array([6]), "tokens")
    return Problem("", train, test=test, model_settings={"classes": TOKENS, **settings})


def network(name: str, dtype: torch.dtype = torch.float64, **settings: Any) -> Network:
    module, small = MODELS[name]
    model: Network = module.build(problem(**{**small, **settings}), dtype, CPU)
    return model


@pytest.mark.parametrize(("width", "depth", "heads"), [(16, 2, 2), (64, 1, 4), (48, 3, 1)])
def test_parameters_of_transformers(width: int, depth: int, heads: int) -> None:
    count = network("transformer", width=width, depth=depth, heads=heads).layout.count
    assert count == TOKENS * width + depth * (12 * width**2 + 2 * width) + width


@pytest.mark.parametrize(
    ("settings", "classes", "published", "second_biases"),
    [
        ({}, 90, 820_522, 2 * 4 * 256),  # Shakespeare, Reddi et al. 2021; TensorFlow has one bias a gate
        ({"embedding": 96, "width": 670, "depth": 1, "projection": 96}, 10_004, 4_050_748, 4 * 670),  # Stack Overflow
    ],
)
def test_lstms_of_papers_have_their_numbers_of_parameters(
    settings: dict[str, int], classes: int, published: int, second_biases: int
) -> None:
    given = replace(problem(), model_settings={"classes": classes, **settings})
    with torch.device("meta"):
        assert lstm.build(given, torch.float32, torch.device("meta")).layout.count == published + second_biases


@pytest.mark.parametrize("name", MODELS)
def test_scores_do_not_look_ahead(name: str) -> None:
    module = network(name).module.eval()
    tokens = torch.randint(TOKENS, (1, CONTEXT), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        scores = module(tokens)
        for place in range(CONTEXT):
            changed = tokens.clone()
            changed[0, place] = (changed[0, place] + 1) % TOKENS
            moved = (module(changed) - scores).abs().amax((0, 2)) > 1e-12
            assert not moved[:place].any()
            assert moved[place:].all()  # and every earlier token counts


def test_rotations_are_of_the_stated_angles() -> None:
    attention = network("transformer").module.blocks[0].attention
    held = torch.randn(3, 2, CONTEXT, 8, dtype=torch.float64)
    angles = torch.arange(CONTEXT)[:, None] * 10000.0 ** (-2 * torch.arange(4) / 8)
    turned = torch.complex(held[..., :4], held[..., 4:]) * torch.polar(torch.ones_like(angles), angles)
    wanted = torch.cat((turned.real, turned.imag), -1)
    assert attention._turned(held).allclose(wanted, atol=1e-6)


def test_a_transformer_starts_near_even_scores() -> None:
    model = network("transformer", width=64, depth=3)
    first, again, other = (model.start(None, seed) for seed in (0, 0, 1))
    assert first.equal(again)
    assert not first.equal(other)
    tensors = model.layout.views(first)
    assert float(tensors["embedding.weight"].std()) == pytest.approx(0.02, rel=0.05)
    for layer, largest in (("attention.out", 1 / 8 / 6**0.5), ("outer", 1 / 16 / 6**0.5), ("inner", 1 / 8)):
        assert float(tensors[f"blocks.2.{layer}.weight"].abs().max()) == pytest.approx(largest, rel=0.01)
    assert float(model.evaluate(first.view(1, 1, -1))["test_loss"]) == pytest.approx(np.log(TOKENS), rel=0.02)


@pytest.mark.parametrize("batching", ["shuffled", "epochs"])
@pytest.mark.parametrize("name", MODELS)
def test_a_trial_is_a_plain_loop_of_torch(name: str, batching: str, tmp_path: Any) -> None:
    for client, size in enumerate((900, 500)):
        letters = np.random.default_rng(client).choice(list("abcdefgh \n"), size, p=[0.3, 0.2, *[0.0625] * 8])
        (tmp_path / f"{client}.txt").write_text("".join(letters))
    rate, decay, steps, size = 3e-3, 0.1, 4, 5
    spec = parse(
        {
            "task": {"name": "text", "path": str(tmp_path), "context": 8, "model": {"name": name, **MODELS[name][1]}},
            "method": {
                "name": "fedavg",
                "client_lr": rate,
                "delta_lr": 1.0,
                "local_steps": steps,
                "weight_decay": decay,
            },
            "client": {"name": "adamw"},
            "batch_size": size,
            "batching": batching,
            "rounds": 3,
            "seed": SEED,
            "dtype": "float64",
            "eval_every": 1,
            "report": ["params"],
        }
    )
    lines = Pack.from_spec(spec).advance()
    model = MODELS[name][0].build(text.build(spec.task, "float64"), torch.float64, CPU)
    source = model.source(SEED, size, batching, round_batches=steps if batching == "epochs" else None)

    def local(module: Any, batches: Any, place: int) -> None:
        optimizer = torch.optim.AdamW(module.parameters(), lr=rate, weight_decay=decay)
        for step in range(steps):
            data = batches.batch(step, 2)[0].data
            optimizer.zero_grad()
            scores = module(data["inputs"][place])
            F.cross_entropy(scores.view(-1, scores.shape[-1]), data["targets"][place].flatten()).backward()
            optimizer.step()

    module = follow(lines, model, source, local)
    with torch.no_grad():
        test = model.test
        assert test is not None
        scores = module(torch.as_tensor(test.inputs).long()).flatten(0, 1)
        targets = torch.as_tensor(test.targets).long().flatten()
    assert lines[-1]["test_loss"] == pytest.approx(float(F.cross_entropy(scores, targets)), rel=1e-10)
    assert lines[-1]["test_accuracy"] == pytest.approx(float((scores.argmax(1) == targets).double().mean()), rel=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_oracles_agree_in_pieces_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = network(name)
    monkeypatch.setattr("trainers.models._network._LOOP_TOKENS", 2 * CONTEXT)
    monkeypatch.setattr("trainers.models._network._VMAP_TOKENS", 12 * CONTEXT)
    monkeypatch.setattr("trainers.models._network._EVALUATED_TOKENS", CONTEXT)
    monkeypatch.setattr("trainers.engine.oracles.one_by_one._LARGE", 1)
    cut = network(name)
    params = torch.stack([whole.start(None, seed) for seed in (0, 1)])[:, None]
    batch = whole.source(3, None, "shuffled").round(0, np.arange(2)).full()
    along = torch.randn(params.shape, dtype=torch.float64) * (params != 0)
    loss, slopes = whole.oracles["autograd"].value_and_grad(params, batch)
    bend = whole.oracles["autograd"].hvp(params, batch, along.expand(2, 2, -1))
    for oracle in (*whole.oracles.values(), *cut.oracles.values()):
        other, others = oracle.value_and_grad(params, batch)
        assert other.allclose(loss, rtol=1e-12)
        assert others.allclose(slopes, rtol=1e-10, atol=1e-13)
        assert oracle.hvp(params, batch, along.expand(2, 2, -1)).allclose(bend, rtol=1e-9, atol=1e-12)
    assert whole.evaluate(params)["test_loss"].allclose(cut.evaluate(params)["test_loss"], rtol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_in_bfloat16_are_apart_by_its_rounding(name: str) -> None:
    exact, rounded = (network(name, dtype) for dtype in (torch.float32, torch.bfloat16))
    params = torch.stack([exact.start(None, seed) for seed in (0, 1)])[:, None]
    batch = exact.source(3, None, "shuffled").round(0, np.arange(2)).full()
    slopes = exact.oracles["autograd"].value_and_grad(params, batch)[1]
    for oracle in rounded.oracles.values():
        found = oracle.value_and_grad(params, batch)[1]
        assert found.dtype == torch.float32
        assert 2.0**-13 < float((found - slopes).norm() / slopes.norm()) < 2.0**-4
    assert rounded.evaluate(params)["test_loss"].equal(exact.evaluate(params)["test_loss"])  # in single precision


@pytest.mark.parametrize("name", MODELS)
def test_a_pack_changes_nothing(name: str, tmp_path: Any) -> None:
    (tmp_path / "a.txt").write_text("a rose is a rose is a rose\n" * 20)
    document = {
        "task": {
            "name": "text",
            "path": str(tmp_path / "a.txt"),
            "context": 6,
            "partition": "iid",
            "clients": 3,
            "model": {"name": name, **MODELS[name][1]},
        },
        "method": {"name": "fedavg", "delta_lr": 1.0, "local_steps": 2},
        "batch_size": 4,
        "rounds": 2,
        "dtype": "float64",
    }
    contract(document, [{"client_lr": 0.1}, {"client_lr": 0.2}], cut=1)


NETS = """
from torch import nn


class Net(nn.Module):
    def __init__(self, vocabulary, both):
        super().__init__()
        self.words, self.layer = nn.Embedding(vocabulary, 4), nn.GRU(4, 5, batch_first=True, bidirectional=both)
        self.last = nn.Linear(5 + 5 * both, vocabulary)

    def forward(self, words):
        return self.last(self.layer(self.words(words))[0])
"""


def test_modules_of_ones_own_predict_tokens_and_do_not_look_ahead(tmp_path: Any, monkeypatch: Any) -> None:
    (tmp_path / "a.txt").write_text("a rose is a rose is a rose\n" * 20)
    (tmp_path / "net.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    task = {"name": "text", "path": "a.txt", "context": 6, "partition": "iid", "clients": 2}
    trial = {"method": {"name": "fedavg", "client_lr": 1.0, "delta_lr": 1.0, "local_steps": 5}, "rounds": 3}
    models = [{"module": "net.py:Net", "both": both} for both in (False, True)]
    lines = Pack.from_spec(parse({**trial, "task": {**task, "model": models[0]}})).advance()
    assert lines[-1]["test_loss"] < lines[0]["test_loss"]
    with pytest.raises(SpecError, match=r"task\.model: the module \(Net\) looks ahead"):
        Pack.from_spec(parse({**trial, "task": {**task, "model": models[1]}}))


def test_heads_must_divide_the_width() -> None:
    for width, heads in ((16, 3), (12, 4)):
        with pytest.raises(SpecError, match=f"task.model.heads must divide width into even parts, got heads={heads}"):
            network("transformer", width=width, heads=heads)
