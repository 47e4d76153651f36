"""Local loops in example space against the same work on replicas of the models."""

import gc
import itertools
import weakref

import numpy as np
import pytest
import torch

from trainers.engine.local.loop import run_local_steps
from trainers.engine.local.step_plan import StepPlan
from trainers.engine.local.work import LocalWork
from trainers.engine.oracles.frame import Motion
from trainers.models import linear, mlp, softmax
from trainers.models._example_space import InnerProducts
from trainers.problem import Examples, Problem

SIZES = np.array([5, 1, 8, 3, 8, 2])
OFFSETS = np.cumsum(SIZES) - SIZES
MEANS = torch.tensor([0.1, 0.3, 0.05, 0.25, 0.2, 0.1], dtype=torch.float64)
FALLING = torch.tensor([[1, 0.5, 0, 2, 0.1], [0.3, 1, 1, 0, 2], [0] * 5, [1] * 5, [2, 1, 0.5, 0.2, 0.1]])
MODELS = {
    "softmax": (softmax, {"classes": 3}),
    "many classes": (softmax, {"classes": 20}),
    "linear": (linear, {}),
    "mlp": (mlp, {"classes": 3, "hidden": (7,)}),
    "deep mlp": (mlp, {"classes": 4, "hidden": (16, 5)}),
}


def column(values):
    return torch.tensor(values, dtype=torch.float64).view(-1, 1, 1)


def steps(values):
    return torch.tensor(values).view(-1, 1, 1)


def model_of(name, dtype=torch.float64):
    """A model of 27 examples of 9 numbers, owned by six clients."""
    generator = np.random.default_rng(4)
    module, settings = MODELS[name]
    targets = generator.integers(0, settings["classes"], 27) if settings else generator.normal(size=(27, 2))
    data = Examples(generator.normal(size=(27, 9)), targets, OFFSETS, SIZES)
    return module.build(Problem(name, data, model_settings=settings), dtype, torch.device("cpu"))


BATCHES = [
    (None, "shuffled", True, "joined"),
    (3, "shuffled", True, "joined"),
    (3, "shuffled", False, "joined"),
    (4, "with_replacement", True, "joined"),
    (3, "shuffled", True, "kept"),
    (3, "with_replacement", False, "dropped"),
]
PULLS = itertools.cycle([{}, {"prox": [0.5, 0.0, 2.0, 0.1, 0.0]}, {"weight_decay": [0.5] * 5}])
# Each model meets each way to draw batches and each pull, and these each other.
CASES = [(name, next(PULLS), *batches) for batches in BATCHES for name in MODELS]


@pytest.mark.parametrize(("name", "pulls", "batch_size", "batching", "kept", "end"), CASES)
def test_example_space_is_the_same_local_work(
    name, pulls, batch_size, batching, kept, end, small_examples, monkeypatch
):
    if not kept:
        monkeypatch.setattr("trainers.models._example_space._KEPT_BYTES", 0)
    model = model_of(name)
    network = name.endswith("mlp")
    assert model.oracles["example_space"].products.keeps == kept
    random = torch.Generator().manual_seed(1)

    def vectors(clients):
        rows = torch.randn(5, clients, model.layout.count, generator=random, dtype=torch.float64)
        return model.layout.row(0.3 * rows if network else rows)

    params, shared, own, away = (vectors(clients) for clients in (1, 1, 6, 6))
    weights = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 0, 0, 1], [1, 0, 0, 0, 0], [2, 0, 1, 0, 0], [1, 1, 1, 0, 0.0]])
    rates = column([0.1, 0.2, 0.0, 0.05, 0.3])
    held = {key: column(values) for key, values in pulls.items()}
    batches = model.source(0, batch_size, batching, end).round(0, np.arange(6))
    for start, shift in ((params, None), (params + away, shared), (params, own)):
        first = None if shift is None else shift[:1]
        motion = Motion(start[:1], rates[:1], None, first, moving=True, steps=9)
        used = model.oracles["example_space"].frame(batches, motion) is not None
        assert used == (batch_size is not None or (shift is None and not network))
    for work in (
        LocalWork(StepPlan(rates, steps([1, 5, 2, 5, 3])), correction=shared, **held),
        LocalWork(StepPlan(rates, gradient_weights=weights), correction=own, displacement=away, **held),
        LocalWork(StepPlan(rates, local_epochs=3), correction=own, **held),
        LocalWork(StepPlan(rates, gradient_weights=weights), **held),
        LocalWork(StepPlan(rates, steps([1, 5, 2, 5, 3])), **held),
        LocalWork(StepPlan(0 * rates, steps([1, 5, 2, 5, 3])), **held),
        LocalWork(StepPlan(rates, local_epochs=3), **held),
        LocalWork(StepPlan(rates, steps([1, 5, 2, 5, 3]), relative_rates=FALLING), correction=shared, **held),
        LocalWork(StepPlan(rates, gradient_weights=weights, relative_rates=FALLING), **held),
    ):
        done = {
            oracle: run_local_steps(model.oracles[oracle], batches, params, work, np.ones(5, dtype=bool))
            for oracle in ("stacked", "example_space")
        }
        one, other = done["stacked"], done["example_space"]
        torch.testing.assert_close(other.mean(MEANS), one.mean(MEANS), rtol=1e-11, atol=1e-11)
        torch.testing.assert_close(other.pseudo_gradient, one.pseudo_gradient, rtol=1e-11, atol=1e-11)
        torch.testing.assert_close(other.first_loss, one.first_loss, rtol=1e-11, atol=1e-11)
        assert (other.steps == one.steps).all()


@pytest.mark.parametrize("name", MODELS)
def test_asking_for_each_client_changes_no_bit_of_the_mean(name, small_examples):
    model = model_of(name, torch.float32)
    params = model.start(None, 0).expand(3, 1, -1).contiguous()
    work = LocalWork(StepPlan(column([0.1, 0.2, 0.05]).float(), steps([4, 2, 3])))
    means = []
    for first in (False, True):
        batches = model.source(0, 3, "shuffled").round(0, np.arange(6))
        done = run_local_steps(model.oracles["example_space"], batches, params, work, np.ones(3, dtype=bool))
        if first:
            assert done.pseudo_gradient.isfinite().all()
        means.append(done.mean(MEANS.float()))
    assert torch.equal(*means)
    assert means[0].abs().amax((1, 2)).gt(0).all()


@pytest.mark.parametrize("name", MODELS)
def test_a_round_leaves_no_memory_to_the_collector_of_garbage(name, small_examples):
    model = model_of(name)
    batches = model.source(0, 3, "shuffled").round(0, np.arange(6))
    motion = Motion(model.start(None, 0).view(1, 1, -1), column([0.1]), None, None, moving=True, steps=4, rate=0.1)
    gc.disable()  # workers look for garbage seldom
    try:
        frame = model.oracles["example_space"].frame(batches, motion)
        parts = [weakref.ref(part) for part in (frame.parts if name.endswith("mlp") else frame.chosen)]
        del frame
        assert len(parts) == 1
        assert parts[0]() is None
    finally:
        gc.enable()


def test_inner_products_are_kept_only_where_those_of_all_clients_take_little_memory():
    inputs = torch.randn(27, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    kept = InnerProducts(inputs, OFFSETS, SIZES)
    rows = np.array([[6, 7, 13], [17, 19, 19]])
    chosen = inputs[torch.as_tensor(rows)]
    found = kept.among(np.array([2, 4]), rows, chosen)
    torch.testing.assert_close(found, chosen @ chosen.mT, rtol=1e-14, atol=1e-14)
    assert kept.keeps
    assert not InnerProducts(inputs[:1].expand(3000, 9), np.array([0]), np.array([3000])).keeps


def test_example_space_is_left_where_it_does_not_apply_or_pay(monkeypatch):
    def frame(size, batch_size, columns=10, steps=9, outputs=1, **motion):
        inputs, targets = np.ones((2 * size, columns - 1)), np.zeros((2 * size, outputs))
        data = Examples(inputs, targets, np.array([0, size]), np.array([size, size]))
        model = linear.build(Problem("linear", data), torch.float64, torch.device("cpu"))
        params = model.layout.row(torch.zeros(1, 1, outputs * columns, dtype=torch.float64))
        given = {"start": params, "client_lr": column([0.1]), "pull": None, "shift": None, "moving": True, **motion}
        batches = model.source(0, batch_size, "shuffled").round(0, np.arange(2))
        return model.oracles["example_space"].frame(batches, Motion(**given, steps=steps))

    assert frame(10, None) is not None
    assert frame(11, None) is None  # products of examples cost more than a pass over 10 columns
    assert frame(5, None) is not None
    assert frame(5, None, shift=torch.zeros(1, 1, 16)) is None
    assert frame(5, None, start=torch.zeros(1, 2, 16)) is None
    assert frame(6, 5) is None  # not much to compute
    assert frame(21, 20, 5000, 500, 150) is not None
    assert frame(21, 20, 5000, 500, 150, moving=False) is None
    assert frame(21, 20, 5000, 500, 10) is None  # calls take longer than a step
    assert frame(400, 20, 5000, 20, 60) is not None
    assert frame(51, 50, 50_000, 500) is None  # 51 inputs take more memory than two models
    monkeypatch.setattr("trainers.models._example_space._KEPT_BYTES", 0)
    assert frame(400, 20, 5000, 20, 60) is None  # the products of 400 inputs cost more than the steps


@pytest.mark.parametrize(
    ("batching", "end", "sizes"),
    [
        ("shuffled", "joined", [5, 300, 1, 7]),
        ("with_replacement", "joined", [5, 300, 1, 7]),
        ("shuffled", "kept", [5, 300, 1, 7]),
        ("epochs", "joined", [60, 180, 36, 90]),  # 6 steps take as many as whole epochs, from the middle of one
    ],
)
def test_distinct_examples_are_those_that_the_steps_draw(batching, end, sizes):
    sizes = np.array(sizes)
    offsets = np.cumsum(sizes) - sizes
    data = Examples(np.arange(float(sizes.sum()))[:, None], np.zeros(sizes.sum()), offsets, sizes)
    model = linear.build(Problem("linear", data), torch.float64, torch.device("cpu"))
    source = model.source(0, 30, batching, end, 9 if batching == "epochs" else None)
    batches = source.round(1, np.array([3, 0, 1, 2]))
    batches.prepare(9)
    distinct = batches.distinct(6)
    assert len(distinct.batch) > 1
    seen = 0
    for group, places in zip(distinct.batch, distinct.places, strict=True):
        for step in range(6):
            (drawn,) = batches.batch(step, 4)
            for client in range(group.stop - group.start):
                chosen = group.data["inputs"][client, places[step, client]]
                assert torch.equal(chosen, drawn.data["inputs"][group.start + client])
                used = set(places[:, client].flatten().tolist())
                assert used == set(range(len(used)))
                assert len({row[0] for row in group.data["inputs"][client].tolist()}) == len(used)
                seen += 1
    assert seen == 6 * 4
    assert batches.distinct(7).places[0].shape[0] == 7
    assert model.source(0, None, batching).round(0, np.arange(4)).distinct(6) is None
