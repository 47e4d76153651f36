"""Evaluation on a sample of held-out clients: the metrics of the drawn clients, and nothing else changes."""

import numpy as np
import pytest

from trainers import evaluation_work
from trainers.engine import randomness
from trainers.engine.packs.pack import Pack
from trainers.errors import SpecError
from trainers.trial.document import parse, structure_of

from .datasets import npz_task
from .documents import wrong
from .members import contract, timeless

CLIENTS = 12
FEDAVG = {"name": "fedavg", "client_lr": 0.3, "server_lr": 0.3, "local_steps": 3}
MODELS = ["softmax", {"name": "mlp", "hidden": [5]}]


@pytest.fixture(scope="module")
def letters(tmp_path_factory):
    """A task of 6 training clients, and of 12 held-out clients with 1 to 12 examples."""
    draw = np.random.default_rng(5)
    sizes = np.arange(1, CLIENTS + 1)
    inputs, test_inputs = draw.normal(size=(60, 7)), draw.normal(size=(sizes.sum(), 7))
    weight = draw.normal(size=(7, 4))
    train = inputs, (inputs @ weight).argmax(1), np.repeat(np.arange(6), 10)
    noisy = test_inputs @ weight + 2 * draw.normal(size=(len(test_inputs), 4))
    test = test_inputs, noisy.argmax(1), np.repeat(np.arange(CLIENTS), sizes)
    return npz_task(tmp_path_factory.mktemp("letters") / "letters.npz", train, test)


def document(task, clients, **changes):
    known = {"task": task, "method": FEDAVG, "rounds": 6, "batch_size": 4, "clients_per_round": 3, "eval_every": 1}
    sample = {} if clients is None else {"evaluation": {"clients": clients}}
    return {**known, "dtype": "float64", **sample, **changes}


def trained(task, clients, **changes):
    return timeless(Pack.from_spec(parse(document(task, clients, **changes))).advance())


@pytest.mark.parametrize("model", MODELS, ids=["affine", "network"])
def test_metrics_are_those_of_the_drawn_clients(letters, model):
    """Against a task whose only held-out clients are the drawn ones."""
    task = {**letters, "model": model}
    report = {"report": ["client_accuracy"], "rounds": 2}
    with np.load(letters["path"]) as arrays:
        held = dict(arrays)
    for line in trained(task, 3, **report):
        drawn = randomness.cohort(0, line["round"], CLIENTS, 3, randomness.Purpose.HELD_OUT)
        few = np.isin(held["client_test"], drawn)
        file = f"{letters['path']}.{line['round']}.npz"
        np.savez(file, **{name: array[few] if name.endswith("_test") else array for name, array in held.items()})
        alone = trained({**task, "path": file}, None, **report)[line["round"]]
        for name in ("test_loss", "test_accuracy", "client_accuracy_mean", "client_accuracy_std"):
            assert line[name] == pytest.approx(alone[name], rel=1e-12), name


@pytest.mark.parametrize("model", MODELS, ids=["affine", "network"])
def test_training_is_the_same_to_the_bit(letters, model):
    task = {**letters, "model": model}
    plain, noisy = (trained(task, clients, report=["params"]) for clients in (None, 2))
    test = {"test_loss", "test_accuracy"}
    assert [{name: line[name] for name in line.keys() - test} for line in plain] == [
        {name: line[name] for name in line.keys() - test} for line in noisy
    ]
    assert all(line["test_loss"] != other["test_loss"] for line, other in zip(plain[1:], noisy[1:], strict=True))
    assert trained(task, CLIENTS, report=["params"]) == plain  # a sample of all clients is no sample


def test_a_sample_depends_on_seed_and_round_only(letters):
    def drawn(seed, number):
        return randomness.cohort(seed, number, CLIENTS, 4, randomness.Purpose.HELD_OUT).tolist()

    samples = [drawn(seed, number) for seed in range(3) for number in range(3)]
    assert len({tuple(sample) for sample in samples}) > 6
    assert all(len(set(sample)) == 4 for sample in samples)
    assert samples[0] != randomness.cohort(0, 0, CLIENTS, 4).tolist()  # not the clients that train
    often, seldom = trained(letters, 4), trained(letters, 4, eval_every=3)
    assert [line["test_loss"] for line in often[::3]] == [line["test_loss"] for line in seldom if "test_loss" in line]


@pytest.mark.parametrize("model", MODELS, ids=["affine", "network"])
def test_a_member_is_the_same_alone_packed_and_restored(letters, model):
    contract(document({**letters, "model": model}, 2), [{}, {"client_lr": 0.02, "local_steps": 5}])


def test_a_checkpoint_continues_with_all_held_out_clients(letters):
    """As rounds, reports and adaptation: what is measured may change, what is trained may not."""
    pack = Pack.from_spec(parse(document(letters, 2)))
    pack.advance(3)
    rest = timeless(Pack.restore(parse(document(letters, None)), pack.to_bytes()).advance())
    assert rest == trained(letters, None)[4:]


def test_documents_without_a_sample_are_as_before(letters):
    plain, null = parse(document(letters, None)), parse(document(letters, None, evaluation=None))
    assert "evaluation" not in plain.canonical
    assert plain.canonical == null.canonical
    noisy = parse(document(letters, 2))
    assert noisy.canonical == {**plain.canonical, "evaluation": {"clients": 2}}
    assert parse(noisy.canonical).canonical == noisy.canonical
    assert structure_of(parse(document(letters, 2))) != structure_of(parse(document(letters, None)))
    assert evaluation_work(noisy)[0] == pytest.approx(evaluation_work(plain)[0] * 2 / CLIENTS)


@pytest.mark.parametrize(
    ("evaluation", "message"),
    [
        ({"clients": 0}, "evaluation.clients must be at least 1, got clients=0"),
        ({"clients": 13}, "evaluation.clients must be at most 12, the held-out clients of the task, got clients=13"),
        ({}, "evaluation.clients must be given"),
        ({"client": 3}, 'unknown key "client" in evaluation: did you mean clients?'),
        (3, 'evaluation must be like {"clients": 10}, got evaluation=3'),
    ],
)
def test_wrong_samples_are_refused(letters, evaluation, message):
    assert str(wrong(document(letters, None, evaluation=evaluation))).startswith(message)


@pytest.mark.parametrize(
    "task", [{"name": "digits", "clients": 4}, {"name": "quadratic", "problem": "two_clients"}], ids=["pooled", "exact"]
)
def test_a_task_without_held_out_clients_is_refused(task):
    with pytest.raises(SpecError, match=r"^evaluation must be left out for a task without at least 2 held-out"):
        parse({"task": task, "method": FEDAVG, "rounds": 1, "evaluation": {"clients": 1}})


def test_adaptation_beside_a_sample_is_refused(letters):
    with pytest.raises(SpecError, match=r"^evaluation must be left out beside adaptation"):
        parse(document(letters, 2, adaptation={"steps": [1]}))
