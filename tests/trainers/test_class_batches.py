"""Few-shot tasks: batches and supports hold the same number of examples of each class."""

import numpy as np
import pytest

from driftline.study.spec import Study
from trainers.engine import randomness
from trainers.engine.batches.class_batches import ClassBatches
from trainers.engine.evaluation.after_adaptation import split
from trainers.engine.packs.pack import Pack
from trainers.problem import Examples, Problem
from trainers.trial.document import parse

from .datasets import npz_task
from .documents import wrong

WAYS = 5
MAML = {"name": "maml", "client_lr": 0.1, "server_lr": 0.1, "local_steps": 2}


@pytest.fixture(scope="module")
def drawings(tmp_path_factory):
    """Tasks of 5 ways: 8 of 12 drawings of each class to train on, 4 held-out ones of 8 (one of 2 of a class)."""
    generator = np.random.default_rng(0)

    def some(*counts):
        y = np.concatenate([np.repeat(np.arange(WAYS), own) for own in counts])
        order = generator.permutation(len(y))
        client = np.repeat(np.arange(len(counts)), [np.sum(own) for own in counts])[order]
        return generator.normal(size=(len(y), 3)) + y[order, None], y[order], client

    train, test = some(*[[12] * WAYS] * 8), some(*[[8] * WAYS] * 3, [8, 8, 2, 8, 8])
    return npz_task(tmp_path_factory.mktemp("drawings") / "drawings.npz", train, test)


def trial(task, **changes):
    keys = {"batch_size": WAYS, "batching": "by_class", "rounds": 2, "clients_per_round": 4, "dtype": "float64"}
    return {"task": task, "method": MAML, **keys, **changes}


@pytest.mark.parametrize("model", ["softmax", {"name": "mlp", "hidden": [4]}])
@pytest.mark.parametrize("shots", [1, 3])
def test_each_batch_of_a_training_task_has_as_many_of_each_class(shots, model, drawings):
    pack = Pack.from_spec(parse(trial({**drawings, "model": model}, batch_size=shots * WAYS)))
    setting = pack._setting
    for number in range(3):
        batches = setting.draw(number).batches
        batches.prepare(4)
        seen = batches._drawn._rows.view(4, 4, -1)
        labels = setting.model.labels[seen.numpy()]
        for client, own in enumerate(batches.clients.tolist()):
            for step in range(4):
                assert np.bincount(labels[step, client]).tolist() == [shots] * WAYS
            rows = seen[:, client].flatten().tolist()
            assert len(set(rows)) == len(rows)  # 4 batches of 3 of the 12 drawings of a class: query apart from support
            assert all(60 * own <= row < 60 * own + 60 for row in rows)
    line = pack.advance()[-1]
    assert line["examples"] == 2 * 4 * 7 * shots * WAYS  # three gradients and two products, which count twice


def draw(sizes, labels, clients, steps, batch_size, base=7):
    sizes = np.array(sizes)
    offsets = np.cumsum(sizes) - sizes
    chosen = np.array(clients)
    return ClassBatches(offsets, sizes, labels).draw(base, chosen, sizes[chosen], steps, batch_size)


def test_classes_take_turns_whatever_their_numbers_are():
    labels = np.concatenate([np.repeat([0, 3, 9], [20, 2, 5]), np.repeat([1, 2], [8, 8]), [4, 4, 4]])
    sizes = [27, 16, 3]
    found = draw(sizes, labels, [0, 1, 2], 6, 4)
    for client, first in ((0, 0), (1, 27)):
        for step in range(6):
            counts = np.unique(labels[first + found[client, step]], return_counts=True)[1]
            assert counts.max() - counts.min() <= 1
            assert len(counts) == (3, 2)[client]
    stream = found[0].ravel()
    for own in (0, 3, 9):  # each class is passed over by itself
        rows = stream[labels[stream] == own]
        size = int((labels[:27] == own).sum())
        assert len(rows) == 8
        for start in range(0, len(rows) - size + 1, size):
            assert len(set(rows[start : start + size])) == size
    assert found[2].tolist() == [[0, 1, 2, 2]] * 6  # all of a client with fewer examples than a batch
    starts = {labels[draw(sizes, labels, [0], 1, 4, base)[0, 0, 0]] for base in range(30)}
    assert starts == {0, 3, 9}  # no class is the one with more


def test_a_clients_batches_depend_on_the_client_and_the_step_only():
    labels = np.tile(np.arange(5), 30)
    every = draw([50, 40, 60], labels, [0, 1, 2], 6, 10)
    for client in range(3):
        assert (draw([50, 40, 60], labels, [client], 3, 10)[0] == every[client, :3]).all()
    assert (draw([50, 40, 60], labels, [0], 6, 10, randomness.key(1, 2, randomness.Purpose.CLASSES)) != every[:1]).any()


@pytest.mark.parametrize("shots", [1, 5, 15])
def test_supports_have_exactly_as_many_shots_of_each_class(shots):
    tasks = 40
    y = np.tile(np.repeat(np.arange(WAYS), 16), tasks)
    held = Examples(np.arange(80.0 * tasks)[:, None], y, np.arange(tasks) * 80, np.full(tasks, 80))
    support, query = (part.train for part in split(Problem(model="softmax", train=held, test=held), 0.5, shots))
    for part, count in ((support, shots), (query, 16 - shots)):
        assert part.sizes.tolist() == [WAYS * count] * tasks
        assert (part.targets.reshape(tasks, -1) == np.repeat(np.arange(WAYS), count)).all()
    assert sorted([*support.inputs[:, 0], *query.inputs[:, 0]]) == list(range(80 * tasks))


def test_held_out_tasks_adapt_on_their_shots(drawings):
    spec = parse(trial(drawings, adaptation={"steps": [0, 1], "shots": 2}))
    note = "adaptation.shots leaves out 1 of 4 held-out clients, which have at most 2 examples of a class"
    assert spec.warnings == (note,)
    study = {key: spec.canonical[key] for key in ("task", "adaptation", "batch_size", "batching")}
    budget = {"trials_per_method": 4, "rounds": 10, "seeds": 0}
    assert note in Study(name="few", methods=["maml"], **study, budget=budget).check()
    assert spec.canonical["adaptation"] == {"steps": [0, 1], "client_lr": None, "shots": 2}
    assert parse(spec.canonical).canonical == spec.canonical
    pack = Pack.from_spec(spec)
    assert pack._setting.adapted._support.examples.tolist() == [2 * WAYS] * 3
    assert pack._setting.adapted._query.examples.tolist() == [6 * WAYS] * 3
    line = pack.advance()[-1]
    assert line["adapted_loss_1"] < line["adapted_loss_0"]
    one = parse(trial(drawings, adaptation={"steps": [1], "shots": 1}))
    assert one.warnings == ()
    assert Pack.from_spec(one)._setting.adapted._support.examples.tolist() == [WAYS] * 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"adaptation": {"steps": [1], "shots": 1, "support": 0.5}},
            "adaptation.support must not be given beside shots, got both: leave one out",
        ),
        ({"adaptation": {"steps": [1], "shots": 0}}, "adaptation.shots must be at least 1, got shots=0"),
        (
            {"adaptation": {"steps": [1], "shots": 8}},
            ("adaptation.shots must be at most 7 for this task, got shots=8: a held-out client needs more than `shots` "
            "examples of each of its classes, and none has more than 8 of its rarest class"),
        ),
        ({"batch_size": None}, ("batch_size must be given with batching by_class, got none: k times the classes of a "
         "client for k examples of each")),
        (
            {"method": {"name": "fedavg", "client_lr": 0.1, "server_lr": 0.1, "local_epochs": 1}},
            ("batching must be shuffled with local_epochs, got by_class: classes of unequal size have no common pass: "
            "give local_steps"),
        ),
        (
            {"task": {"name": "linear_regression"}, "clients_per_round": 2},
            "batching must be shuffled, epochs or with_replacement for a task without classes, got by_class",
        ),
        (
            {"task": {"name": "quadratic", "problem": "two_clients"}, "clients_per_round": 2, "batching": None,
             "adaptation": {"steps": [1], "shots": 1}},
            "adaptation.shots must be left out for a task without classes: give support",
        ),
    ],
)  # fmt: skip
def test_bad_input_is_refused(changes, message, drawings):
    assert str(wrong(trial(**{"task": drawings, **changes}))) == message
