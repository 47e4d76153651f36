"""Local work of a single trial, which moves the models: the same as the sums of gradients it stands for."""

import math

import numpy as np
import pytest
import torch

from trainers.engine.local import descent, loop
from trainers.engine.local.descent import Descent
from trainers.engine.local.loop import run_local_steps
from trainers.engine.local.mass_sequences import ThreeSequences, TwoSequences
from trainers.engine.local.optimizer_steps import Stepped
from trainers.engine.local.step_plan import StepPlan
from trainers.engine.local.work import LocalWork
from trainers.models import cnn, linear, mlp, softmax
from trainers.problem import Examples, Problem
from trainers.registry import optimizers

from .test_client_optimizers import optimizer_of

SIZES = np.array([14, 9, 11])
MODULES = {"softmax": softmax, "linear": linear, "mlp": mlp}
CNN = {"classes": 3, "filters": (2, 3), "kernel": 3, "dense": 4}


def model_of(name, dtype=torch.float64):
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(SIZES.sum(), *((1, 6, 6) if name == "cnn" else (5,))))
    targets = generator.normal(size=SIZES.sum()) if name == "linear" else generator.integers(0, 3, SIZES.sum())
    data = Examples(inputs, targets, np.cumsum(SIZES) - SIZES, SIZES)
    own = {"mlp": {"hidden": [6, 4], "classes": 3}, "softmax": {"classes": 3}, "linear": {}, "cnn": CNN}[name]
    return {**MODULES, "cnn": cnn}[name].build(Problem(name, data, model_settings=own), dtype, torch.device("cpu"))


def column(value, dtype=torch.float64):
    return torch.full((1, 1, 1), value, dtype=dtype)


def terms(model, dtype=torch.float64):
    """What local work may have, one change each."""
    draw = torch.randn(3, 1, 3, model.layout.count, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    displacement, correction, offset = (model.layout.row(0.3 * one).to(dtype) for one in draw)
    client = {
        f"client.{name}": {"optimizer": optimizer_of(name, dtype=dtype)} for name in optimizers() if name != "sgd"
    }
    sums = model.layout.row(torch.ones(1, 3, model.layout.count, dtype=torch.float64)).to(dtype)
    own = torch.tensor([0.4, 1.0, 0.7], dtype=dtype).view(1, 3, 1)
    mass = {
        "three sequences": ThreeSequences(column(0.4, dtype), column(1.5, dtype)),
        "three sequences, kept": ThreeSequences(column(0.4, dtype), column(1.5, dtype), sums),
        "two sequences": TwoSequences(column(0.6, dtype), column(0.2, dtype), sums),
        "three sequences, by client": ThreeSequences(own, 2 * own, sums, own),
        "two sequences, by client": TwoSequences(own, own / 2, sums, own),
    }
    return {
        "plain": {},
        "prox and displacement": {"prox": column(0.4, dtype), "displacement": displacement},
        "decay and correction": {"weight_decay": column(0.2, dtype), "correction": correction},
        "anchor": {"anchor": model.layout.row(torch.ones(1, 1, model.layout.count, dtype=torch.float64)).to(dtype)},
        "offset and decay": {"evaluation_offset": offset, "weight_decay": column(0.2, dtype)},
        "clipping": {"clip_norm": column(0.5, dtype), "prox": column(0.3, dtype)},
        "scale": {"gradient_scale": column(0.7, dtype), "correction": correction, "prox": column(0.4, dtype)},
        "adamw with decay": {"optimizer": optimizer_of("adamw", dtype=dtype), "weight_decay": column(0.2, dtype)},
        "momentum with pulls": {
            "optimizer": optimizer_of("momentum", dtype=dtype),
            "prox": column(0.4, dtype),
            "displacement": displacement,
            "correction": correction,
        },
        "sums of gradients": {"optimizer": optimizer_of("momentum", dtype=dtype), "sum_gradients": True},
        **client,
        **{name: {"optimizer": optimizer, "displacement": displacement} for name, optimizer in mass.items()},
    }


NAMES = list(terms(model_of("softmax")))
FALLING = torch.tensor([[0.0, 1.5, 1.0, 0.5, 0.25]], dtype=torch.float64)


def done(model, work, batch_size=4, oracle="stacked"):
    dtype = work.plan.client_lr.dtype
    row = torch.randn(model.layout.count, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    params = model.layout.row(0.5 * row).view(1, 1, -1).to(dtype)
    batches = model.source(0, batch_size, "shuffled").round(0, np.arange(len(SIZES)))
    return run_local_steps(model.oracles[oracle], batches, params, work, np.ones(1, bool))


@pytest.mark.parametrize("term", NAMES)
@pytest.mark.parametrize("name", MODULES)
def test_models_that_move_give_the_sums(name, term, monkeypatch):
    model = model_of(name)
    given, five = terms(model)[term], {"local_steps": torch.tensor([[[5]]])}
    for batch_size, many in ((4, five), (None, {"local_epochs": 3}), (4, {**five, "relative_rates": FALLING})):
        work = LocalWork(StepPlan(column(0.05), **many), **given)
        moved = done(model, work, batch_size)
        with monkeypatch.context() as patch:
            patch.setattr(loop, "_LEAST_RATE", math.inf)
            summed = done(model, work, batch_size)
        torch.testing.assert_close(moved.pseudo_gradient, summed.pseudo_gradient, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(moved.first_loss, summed.first_loss, rtol=1e-12, atol=1e-12)
        assert set(moved.kept) == set(summed.kept)
        for key, held in summed.kept.items():
            torch.testing.assert_close(moved.kept[key], held, rtol=1e-10, atol=1e-10)
        shown = model.layout.row(torch.ones(model.layout.count, dtype=torch.float64)) != 0
        assert (moved.pseudo_gradient[..., ~shown] == 0).all()


def test_only_single_trials_with_a_rate_move_their_models(monkeypatch):
    made = []
    for cls in (Descent, Stepped):

        def add_(self, *given, own=cls.add_, **named):
            made.append(self)
            return own(self, *given, **named)

        monkeypatch.setattr(cls, "add_", add_)
    model = model_of("softmax")
    count = torch.tensor([[[3]]])
    done(model, LocalWork(StepPlan(column(0.1), count)))
    done(model, LocalWork(StepPlan(column(0.1), count), optimizer=optimizer_of("adam")))
    assert [type(frame) for frame in made] == [Descent] * 3 + [Stepped] * 3
    assert made[-1].rate == 0.1
    made.clear()
    weights = torch.tensor([[1.0, 2.0, 1.0]])
    done(model, LocalWork(StepPlan(column(1e-4), count), optimizer=optimizer_of("adam")))
    done(model, LocalWork(StepPlan(column(0.1), gradient_weights=weights), optimizer=optimizer_of("adam")))
    assert [frame.rate for frame in made] == [None] * 6


@pytest.mark.parametrize("term", ["plain", "prox and displacement", "decay and correction", "scale", "anchor"])
@pytest.mark.parametrize("name", ["by_hand", "loop"])
def test_clients_one_after_another_give_the_same_bits(name, term, monkeypatch):
    model, oracle = model_of("cnn"), {"oracle": name}
    for batch_size, many in (
        (4, {"local_steps": torch.tensor([[[5]]])}),
        (4, {"local_epochs": 3, "relative_rates": torch.linspace(1.2, 0, 20, dtype=torch.float64).view(1, -1)}),
        (None, {"local_epochs": 3}),
    ):
        work = LocalWork(StepPlan(column(0.05), **many), **terms(model)[term])
        with monkeypatch.context() as patch:
            patch.setattr(model.oracles[name], "client_by_client", False)
            together = done(model, work, batch_size, **oracle)
            patch.setattr(loop, "_LEAST_RATE", math.inf)
            summed = done(model, work, batch_size, **oracle)
        for room in (descent._BATCH_BYTES, 1000, 1):
            with monkeypatch.context() as patch:
                patch.setattr(descent, "_BATCH_BYTES", room)
                apart = done(model, work, batch_size, **oracle)
            assert torch.equal(apart.pseudo_gradient, together.pseudo_gradient)
            assert torch.equal(apart.first_loss, together.first_loss)
            assert (apart.steps == together.steps).all()
        torch.testing.assert_close(apart.pseudo_gradient, summed.pseudo_gradient, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("room", "clients"), [(10**6, [0] * 4 + [1] * 4 + [2] * 4), (1, [0, 1, 2] * 4)])
@pytest.mark.parametrize("name", ["by_hand", "loop"])
def test_a_client_takes_the_steps_whose_batches_fit(name, room, clients, monkeypatch):
    monkeypatch.setattr(descent, "_BATCH_BYTES", room)
    model, rows = model_of("cnn"), []
    oracle = model.oracles[name]
    own = oracle.descend_

    def descend_(models, *given):
        rows.append(models.data_ptr())
        return own(models, *given)

    monkeypatch.setattr(oracle, "descend_", descend_)
    done(model, LocalWork(StepPlan(column(0.1), torch.tensor([[[4]]]))), oracle=name)
    assert [sorted(set(rows)).index(row) for row in rows] == clients
