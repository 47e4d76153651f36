"""Passes over a client's data: steps, incomplete batches, full batches and counters, against plain loops in float64."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from driftline.study.spec import Study
from trainers.engine.batches.examples import ExampleSource
from trainers.engine.packs.pack import Pack
from trainers.trial.document import parse
from trainers.trial.passes import Passes

from .plain_loops import CLASSES, INPUTS, LOOPS, RATE, ROUNDS, SIZES, Plain, lines, trial

WORK = {
    "passes": ({"local_epochs": 2}, {}, {"epochs": 2}),
    "whole batches of passes": ({"local_epochs": 2}, {"drop_last": True}, {"epochs": 2, "drop_last": True}),
    "steps": ({"local_steps": 3}, {}, {"steps": 3}),
}


@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("name", LOOPS)
def test_clients_of_unequal_sizes_train_as_in_a_plain_loop(name, work, unequal_clients):
    settings, loop = LOOPS[name]
    steps, keys, plainly = WORK[work]
    found = lines(trial(unequal_clients, method={"name": name.split()[0], **settings, **steps}, **keys))
    plain, w, memory = Plain(unequal_clients, 3, 8, **plainly), np.zeros((CLASSES, INPUTS + 1)), {}
    for number in range(ROUNDS):
        batches = [plain.batches(number, client) for client in range(len(SIZES))]
        w = w - RATE * loop(plain, w, memory, batches)
        np.testing.assert_allclose(found[number + 1]["params"], w.ravel(), rtol=1e-11, atol=1e-13)
    batches = [[plain.batches(number, client) for client in range(len(SIZES))] for number in range(ROUNDS)]
    once = {"fedavg": 1, "fedprox": 1, "fednova": 1, "scaffold": 1, "mime": 2}[name.split()[0]]
    full = name in ("scaffold", "mime")  # and a gradient on all data, which counts as the batches of a pass
    own = [once * len(b) + full * -(-n // 8) for of in batches for b, n in zip(of, SIZES, strict=True)]
    used = [once * sum(map(len, b)) + full * n for of in batches for b, n in zip(of, SIZES, strict=True)]
    assert found[-1]["client_gradients"] == sum(own)
    assert found[-1]["examples"] == sum(used)
    exchanges = [[once * sum(map(len, b)) for b in of] for of in batches] + [SIZES] * (ROUNDS * full)
    assert found[-1]["slowest_examples"] == sum(map(max, exchanges))


@pytest.mark.parametrize("work", [{"local_epochs": 3}, {"local_steps": 3}])
@pytest.mark.parametrize("model", ["softmax", {"name": "mlp", "hidden": [5]}])
def test_a_batch_of_all_examples_or_more_is_a_full_batch(work, model, unequal_clients):
    full = lines(trial(unequal_clients, method=work, batch_size=None, task={"model": model}))
    for batch_size in (33, 34, 500):
        for seed in (3, 4) if model == "softmax" else (3,):
            found = lines(trial(unequal_clients, method=work, batch_size=batch_size, seed=seed, task={"model": model}))
            for line, wanted in zip(found, full, strict=True):
                assert line["full_loss"] == pytest.approx(wanted["full_loss"], rel=1e-12)
                for name in ("client_gradients", "examples", "slowest_examples"):
                    assert line[name] == wanted[name]


@pytest.mark.parametrize(
    ("model", "drop_last"),
    [
        ("softmax", False),
        ("softmax", True),
        ({"name": "mlp", "hidden": [5]}, False),
        ({"name": "mlp", "hidden": [5], "dropout": 0.3}, False),
    ],
)
def test_every_oracle_takes_the_same_incomplete_batches_alone_and_in_a_pack(
    model, drop_last, unequal_clients, small_examples
):
    rates = [{"client_lr": 0.3}, {"client_lr": 0.1}, {"client_lr": 0.2}]
    given = trial(unequal_clients, task={"model": model}, drop_last=drop_last, rounds=1)
    first = Pack.from_spec(parse({**given, "members": rates}))
    wanted = None
    for oracle in first._setting.model.oracles:
        plan = replace(first.plan, oracle=oracle)
        apart = lines({**given, "members": rates}, plan=replace(plan, separate=True))
        for number, settings in enumerate(rates):
            alone = lines({**given, "method": {**given["method"], **settings}}, plan=replace(plan, width=1))
            own = [line["params"] for line in apart if line["member"] == number]
            assert own == [line["params"] for line in alone]
        together = lines({**given, "members": rates}, plan=plan)
        wanted = apart if wanted is None else wanted
        for line, other, reference in zip(together, apart, wanted, strict=True):
            np.testing.assert_allclose(line["params"], reference["params"], rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(other["params"], reference["params"], rtol=1e-10, atol=1e-12)
            assert line["examples"] == other["examples"] == reference["examples"]


@pytest.mark.parametrize("end", ["joined", "kept", "dropped"])
@pytest.mark.parametrize("repeats", [False, True])
def test_examples_are_those_of_the_batches(end, repeats):
    passes = Passes(np.array([33, 20, 8, 7, 1]), 8, end, repeats)
    for taken in range(12):
        steps = np.arange(taken)
        counts = np.array([passes.counts(np.int64(client), steps).sum() for client in range(5)])
        assert (passes.examples(np.full(5, taken)) == counts).all()
    in_a_pass = passes.examples(passes.steps)
    wanted = {
        "joined": [40, 24, 8, 8, 8] if repeats else [40, 24, 8, 7, 1],
        "kept": [33, 20, 8, 7, 1],
        "dropped": [32, 16, 8, 7, 1],
    }
    assert in_a_pass.tolist() == wanted[end]


def test_leaving_out_the_last_batch_of_a_pass_without_passes_is_a_note(unequal_clients):
    assert parse(trial(unequal_clients, batch_size=4, drop_last=True)).warnings == ()
    assert parse(trial(unequal_clients, batch_size=4, method={"local_steps": 2})).warnings == ()
    (note,) = parse(trial(unequal_clients, batch_size=4, method={"local_steps": 2}, drop_last=True)).warnings
    assert note.startswith("drop_last changes nothing without local_epochs")
    task = parse(trial(unequal_clients)).canonical["task"]
    objective, budget = {"quality": "train_loss"}, {"trials_per_method": 4, "rounds": 10, "seeds": 0}
    passing = {"name": "fednova", "space": {"client_lr": 0.1, "server_lr": 0.1, "local_epochs": 2}}
    for entries, found in ((["fedavg", passing], False), (["fedavg", "fedprox"], True)):
        study = Study(name="mine", task=task, methods=entries, objective=objective, budget=budget, drop_last=True)
        assert any(remark.startswith("drop_last: no entry has local_epochs") for remark in study.check()) == found


def test_passes_with_replacement_draw_as_many_as_the_client_has(unequal_clients):
    line = lines(trial(unequal_clients, batching="with_replacement"))[-1]
    assert (line["examples"], line["client_gradients"]) == (2 * ROUNDS * sum(SIZES), 2 * ROUNDS * 12)
    seeds = [lines(trial(unequal_clients, batching="with_replacement", seed=seed))[-1]["full_loss"] for seed in (1, 2)]
    assert seeds[0] != seeds[1]


def test_tasks_that_draw_with_replacement_pass_over_shuffled_data():
    task = {"name": "linear_regression", "clients": 3, "examples": [5, 9, 20], "dimension": 2}
    method = {"name": "fedavg", "client_lr": 0.01, "server_lr": 0.01}
    given = {"task": task, "method": {**method, "local_epochs": 1}, "batch_size": 20, "rounds": 2}
    assert parse(given).batching == "shuffled"
    assert parse({**given, "method": {**method, "local_steps": 1}}).batching == "with_replacement"
    full = lines({**given, "batch_size": None})[-1]
    assert lines(given)[-1]["loss"] == pytest.approx(full["loss"], rel=1e-13)


def test_memory_follows_the_examples_of_a_round_and_not_its_largest_client():
    sizes = np.array([20_000] + [3] * 400)
    offsets = np.cumsum(sizes) - sizes
    source = ExampleSource(lambda rows: {"rows": rows}, offsets, sizes, 0, 4, "shuffled", torch.zeros(0), end="kept")
    batches = source.round(0, np.arange(len(sizes)))
    limits = batches.epoch_steps(3)
    batches.prepare(int(limits.max()), limits)
    assert batches._drawn._rows.numel() == 3 * (20_000 + 400 * 4)
    seen = []
    for step in range(int(limits[0])):
        (group,) = batches.batch(step, int((limits > step).sum()))
        kept = group.data["rows"] if group.weights is None else group.data["rows"][group.weights > 0]
        seen += kept.flatten().tolist()
    assert np.bincount(seen).tolist() == [3] * sizes.sum()
    for step, client in itertools.product((0, 2), (0, 7, 400)):  # steps beyond a client's passes can be requested
        again = source.round(0, np.arange(len(sizes))).batch(step, client + 1)[0]
        assert torch.equal(again.data["rows"][0], batches.batch(step, 1)[0].data["rows"][0])
