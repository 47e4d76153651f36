"""Members with seeds of their own: each has the curve that it has alone, whether they are joined or not."""

import numpy as np
import pytest

from trainers.engine.packs.pack import Pack
from trainers.engine.packs.plan import Plan
from trainers.errors import SpecError
from trainers.registry import methods
from trainers.trial.document import parse, structure_of
from trainers.trial.members import own_document

from . import documents
from .members import curves
from .methods.trials import document, member_settings, same
from .test_checkpoint import DIGITS, NETWORKS

LINEAR = {"name": "linear_regression", "clients": 9, "dimension": 4, "examples": [9, 3, 12, 5, 7, 3, 8, 4, 6]}
SERVED = {**DIGITS, "central": {"fraction": 0.1}}
SEEDS = [3, 7, 3, 11]


def of_seeds(given, members=None):
    members = members or [{}, {"client_lr": 0.02}, {"server_lr": 0.03}, {}]
    return {**given, "members": [{**member, "seed": seed} for member, seed in zip(members, SEEDS, strict=True)]}


def alone(given, number):
    """The document of one member."""
    return own_document(parse(given).canonical, number)


def agree(given, *, joined):
    """Trains a pack and returns its lines by member, which must be those of each member alone."""
    pack = Pack.from_spec(parse(given))
    assert pack._setting.joined is joined is ("joins_seeds" in pack.work)
    found = curves(pack.advance(), range(len(SEEDS)))
    for number, lines in found.items():
        single = Pack.from_spec(parse({**alone(given, number), "members": [{}]}))
        same(lines, curves(single.advance(), [0])[0], 1e-9)
    return found


@pytest.mark.parametrize("method", methods())
@pytest.mark.parametrize("weighting", ["uniform", "examples"])
def test_every_method_gives_each_seed_its_own_curve(method, weighting):
    task = SERVED if methods()[method].CENTRAL else LINEAR
    given = document(method, task=task, weighting=weighting)
    members = [{}, *(member_settings(given, number) for number in (1, 2)), {}]
    found = agree(of_seeds(given, members), joined=not methods()[method].CENTRAL)
    assert found[0] != found[3]  # the settings are the same, the seeds are not


def fedavg(task=DIGITS, **changes):
    few = {"clients_per_round": 4, "batch_size": 6, "rounds": 4, "eval_every": 2, "dtype": "float64"}
    return documents.fedavg(**{"task": task, **few, **changes})


JOINED = {
    "softmax": fedavg(),
    "network": fedavg({**DIGITS, "model": {"name": "mlp", "hidden": [6]}}),
    "batches of all examples": fedavg(batch_size=40, batching="shuffled"),
    "loss on all data": fedavg(loss_data="full"),
    "epochs over the rounds": fedavg(batching="epochs"),
    "by class": fedavg(batching="by_class"),
    "a client optimizer": fedavg(client={"name": "adam"}),
    "one that clients keep": fedavg(client={"name": "adam", "state": "keep"}),
    "quantised with residual": fedavg(upload="int4"),
    "clipped": fedavg(
        method={"name": "fedavg", "clip_norm": 0.1, "client_lr": 0.1, "server_lr": 1.0, "local_steps": 3}
    ),
    "decay of the rates": fedavg(schedule={"name": "plateau", "window": 1, "patience": 1}),
    "a report of the model": fedavg(report=["params"]),
}
BY_SEED = {
    "quadratic": fedavg({"name": "quadratic", "problem": "random", "clients": 6, "dimension": 3}, batch_size=None),
    "network of layers that are not stacked": fedavg({**DIGITS, "model": NETWORKS["cnn"]}),
    "large network": fedavg({**DIGITS, "model": {"name": "mlp", "hidden": [512]}}),
    "dropout": fedavg({**DIGITS, "model": NETWORKS["mlp"]}),
    "full batches": fedavg(batch_size=None),
    "passes that end": fedavg(method={"name": "fedavg", "client_lr": 0.1, "server_lr": 1.0, "local_epochs": 2}),
    "stragglers": fedavg(stragglers={"share": 0.5, "kept": True}),
    "accuracy monitored": fedavg(schedule={"name": "plateau", "window": 1, "patience": 1, "monitor": "accuracy"}),
    "a report of the round": fedavg(report=["drift"]),
    "held-out clients adapt": fedavg({**LINEAR, "examples": 9}, adaptation={"steps": [1]}),
}


@pytest.mark.parametrize("kind", JOINED)
def test_joined_seeds_have_the_curves_that_they_have_alone(kind):
    members = [{}, {"client_lr": 0.02}, {"server_lr": 0.03}, {}]
    if "local_steps" in JOINED[kind]["method"] and JOINED[kind].get("batching") != "epochs":
        members[1]["local_steps"] = 5  # the others wait
    agree(of_seeds(JOINED[kind], members), joined=True)


@pytest.mark.parametrize("kind", BY_SEED)
def test_other_seeds_are_trained_beside_each_other(kind):
    agree(of_seeds(BY_SEED[kind]), joined=False)


@pytest.mark.parametrize("given", [fedavg(client={"name": "adam", "state": "keep"}), BY_SEED["stragglers"]])
def test_a_pack_of_seeds_continues_from_its_checkpoint(given):
    given = of_seeds(given)
    whole, part = (Pack.from_spec(parse(given)) for _ in range(2))
    expected = curves(whole.advance(), range(len(SEEDS)))
    before = part.advance(2)
    after = Pack.restore(parse(given), part.to_bytes()).advance()
    assert curves(before + after, range(len(SEEDS))) == expected


def test_a_seed_that_diverges_leaves_the_others_alone():
    wild = [{}, {"client_lr": 1e9, "server_lr": 1e9}, {}, {}]
    found = agree(of_seeds(fedavg(method={**fedavg()["method"], "name": "scaffold"}), wild), joined=True)
    assert found[1][-1]["diverged"]
    assert not found[0][-1]["diverged"]


def test_members_of_a_separate_plan_share_rounds_only_with_their_own_seed():
    given = of_seeds(fedavg(), [{}] * len(SEEDS))
    spec = parse(given)
    pack = Pack.from_spec(spec, plan=Plan("stacked", len(SEEDS), 1, "cpu", spec.dtype, 1, separate=True))
    lines = pack.advance()
    found = curves(lines, range(len(SEEDS)))
    assert found[2] == found[0] != found[1]
    shared = [line["shared_gradients"] > 0 for line in lines if line["round"] == spec.rounds]
    assert shared == [False, False, True, False]


def test_a_document_with_seeds_is_canonical():
    given = of_seeds(fedavg())
    spec = parse(given)
    assert spec.seeds == tuple(SEEDS)
    assert parse(spec.canonical).canonical == spec.canonical
    assert [alone(given, number)["seed"] for number in range(len(SEEDS))] == SEEDS
    assert parse(alone(given, 1)).seeds == (7,)
    assert "seed" not in structure_of(spec)
    same = parse({**given, "members": [{"seed": 4}, {"seed": 4}]})
    assert same.canonical["seed"] == 4
    assert same.canonical["members"] == [{}, {}]
    assert parse({**given, "seed": 9, "members": [{"seed": 4}, {}]}).seeds == (4, 9)


@pytest.mark.parametrize("seed", [-1, 0.5, "x", None, True, 2**63])
def test_a_wrong_seed_of_a_member_is_named(seed):
    with pytest.raises(SpecError, match=r"^members\.1\.seed must be"):
        parse({**fedavg(), "members": [{}, {"seed": seed}]})


def test_large_rounds_are_not_joined():
    """Their batches would need memory for every seed."""
    given = of_seeds(fedavg(batch_size=4096, batching="with_replacement"))
    method = {**given["method"], "local_steps": 800}
    assert Pack.from_spec(parse(given))._setting.joined
    assert not Pack.from_spec(parse({**given, "method": method}))._setting.joined


def test_weights_of_cohorts_are_those_of_their_own_clients():
    """Weighted by examples, where every seed has another cohort of clients of other sizes."""
    pack = Pack.from_spec(parse(of_seeds(fedavg(LINEAR, weighting="examples", batch_size=2))))
    draw, sizes = pack._setting.draw(0), np.array(LINEAR["examples"])
    own = sizes[draw.batches.clients.T]
    np.testing.assert_allclose(draw.weights.numpy(), own / own.sum(1, keepdims=True), rtol=0, atol=1e-15)
    np.testing.assert_allclose(draw.share.flatten().numpy(), own.sum(1) / sizes.sum(), rtol=0, atol=1e-15)
