"""Trials in bfloat16: gradients are computed in it, everything else in float32."""

import pytest
import torch

from tests.trainers.test_models import CNN, MLP, document, forced, of
from tests.trainers.test_oracles import NETWORKS, batch_of, build, models_and_vectors
from trainers.engine.oracles.oracle import replicas
from trainers.engine.packs.pack import Pack
from trainers.errors import SpecError
from trainers.trial.document import parse

BITS = 2.0**-8  # of a factor
TYPES = {"float32", "bfloat16"}
ORACLES = [(MLP, "stacked"), (MLP, "loop"), (MLP, "vmap"), (CNN, "by_hand"), (CNN, "loop"), (CNN, "vmap")]


def apart(one, other):
    """The relative distance."""
    return float((one - other).norm() / other.norm())


@pytest.mark.parametrize("batch_size", [None, 7])
@pytest.mark.parametrize("name", NETWORKS)
def test_all_oracles_compute_in_it_and_agree_up_to_its_rounding(name, batch_size):
    model, exact = build(name, torch.bfloat16), build(name, torch.float32)
    params, _, vectors = (0.3 * given.float() for given in models_and_vectors(model))
    batch, same = batch_of(model, batch_size), batch_of(exact, batch_size)
    reference = exact.oracles["autograd"]
    loss, gradient = reference.value_and_grad(params, same)
    bend = reference.hvp(params, same, vectors)
    rate = torch.tensor([0.1, 0.0, 0.7]).view(-1, 1, 1)
    assert len(model.oracles) == 4
    for oracle in model.oracles.values():
        found_loss, found = oracle.value_and_grad(params, batch)
        assert found.dtype == found_loss.dtype == torch.float32
        torch.testing.assert_close(found_loss, loss, rtol=0, atol=0.03)
        torch.testing.assert_close(oracle.value(params, batch), found_loss)
        assert BITS / 10 < apart(found, gradient) < 20 * BITS
        assert BITS / 10 < apart(oracle.hvp(params, batch, vectors), bend) < 20 * BITS
        moved = replicas(params, *params.shape).copy_(params)
        oracle.descend_(moved, batch, rate)
        assert torch.equal(moved[1], params[1])  # models are not rounded
        assert apart(params - moved, rate * gradient) < 20 * BITS
        turned = replicas(params, *params.shape).copy_(vectors)
        oracle.bend_(params, batch, turned, rate)
        assert torch.equal(turned[1], vectors[1])
        assert apart(vectors - turned, rate * bend) < 20 * BITS


@pytest.mark.parametrize(("model", "oracle"), ORACLES)
def test_a_trial_learns_as_in_single_precision(model, oracle):
    lines = {dtype: forced(parse(document(model, dtype=dtype, rounds=8)), oracle).advance() for dtype in TYPES}
    rounded, exact = lines["bfloat16"], lines["float32"]
    assert len(rounded) == len(exact) == 9
    assert rounded[0]["test_loss"] == exact[0]["test_loss"]  # evaluated in single precision
    for one, other in zip(rounded[1:], exact[1:], strict=True):
        for name in ("train_loss", "test_loss", "update_norm"):
            assert one[name] == pytest.approx(other[name], rel=0.05)
            assert one[name] != other[name]
    assert rounded[-1]["test_loss"] < rounded[0]["test_loss"]


@pytest.mark.parametrize(("model", "oracle"), [(MLP, "stacked"), (CNN, "by_hand")])
def test_a_restored_trial_goes_on_to_the_bit(model, oracle):
    spec = parse(document(model, dtype="bfloat16", members=[{}, {"local_steps": 5}]))
    pack = forced(spec, oracle)
    lines = pack.advance(2)
    restored = Pack.restore(spec, pack.to_bytes())
    assert restored.plan.dtype == "bfloat16"
    lines += restored.advance()
    whole = forced(spec, oracle).advance()
    for member in (0, 1):
        assert len(of(lines, member)) == 5
        assert of(lines, member) == of(whole, member)


def test_oracles_are_timed_for_each_type(monkeypatch):
    from trainers.engine.packs import plan

    monkeypatch.setattr(plan, "_chosen", {})
    monkeypatch.setattr(plan, "_measure", lambda oracle, *_: timed.add(oracle) or 0.1)
    counts = []
    for dtype in ("float32", "bfloat16", "float32"):
        timed = set()
        Pack.from_spec(parse(document(CNN, dtype=dtype)), device="cpu")
        counts.append(len(timed))
    assert counts == [2, 2, 0]  # by_hand and loop


@pytest.mark.parametrize(
    ("task", "wanted"),
    [
        ({"name": "digits", "clients": 5}, "for the model softmax, got"),
        ({"name": "digits", "clients": 5, "model": {"name": "softmax"}}, "for the model softmax, got"),
        ({"name": "linear_regression", "clients": 6, "dimension": 3}, "for a task without a choice of models, got"),
        ({"name": "quadratic", "problem": "random", "clients": 5, "dimension": 3}, "without a choice of models, got"),
    ],
)
def test_models_that_do_not_take_it_are_refused_before_training(task, wanted):
    with pytest.raises(SpecError, match=wanted) as caught:
        parse({**document("mlp", dtype="bfloat16"), "task": task, "batch_size": None})
    assert str(caught.value).startswith("dtype must be float32 or float64 ")
