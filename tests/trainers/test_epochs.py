"""Batches drawn without replacement over an epoch, which goes on from round to round: `batching: epochs`."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers.engine import randomness
from trainers.engine.batches.examples import ExampleSource
from trainers.engine.batches.mini_batches import MiniBatches
from trainers.engine.packs.pack import Pack
from trainers.registry import methods
from trainers.trial.batching import round_batches
from trainers.trial.document import parse

from .documents import wrong
from .methods.trials import document
from .plain_loops import CLASSES, INPUTS, LOOPS, RATE, ROUNDS, SIZES, Plain, fedga, lines, trial
from .test_stragglers import HIGH, LOW, shares, taken

DIGITS = {"name": "digits", "clients": 8, "partition": {"dirichlet": 0.3}}


def rows_of(sizes, batch_size, steps, rounds, seed=0, skipped=()):
    """(round, client) -> (steps, batch) rows of the client's own examples, as the engine gathers them."""
    sizes = np.array(sizes)
    offsets = np.cumsum(sizes) - sizes
    like = torch.empty(0, dtype=torch.float64)
    of = ExampleSource(
        lambda rows: {"rows": rows}, offsets, sizes, seed, batch_size, "epochs", like, round_batches=steps
    )
    drawn = {}
    for number in range(rounds):
        batches = of.round(number, np.setdiff1d(np.arange(len(sizes)), skipped if number else ()))
        batches.prepare(steps)
        for place, client in enumerate(batches.clients.tolist()):
            own = []
            for step in range(steps):
                for group in batches.batch(step, len(batches.clients)):
                    if group.start <= place < group.stop:
                        rows = group.data["rows"][place - group.start]
                        inside = rows if group.weights is None else rows[group.weights[place - group.start] > 0]
                        own.append(inside.numpy() - offsets[client])
            drawn[number, client] = own
    return drawn


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    batch_size=st.integers(1, 45),
    steps=st.integers(1, 7),
    rounds=st.integers(1, 5),
    large=st.sampled_from([2, 9, 2**12]),
)
def test_every_example_is_seen_once_before_any_is_seen_twice(sizes, batch_size, steps, rounds, large):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(randomness, "_LARGE_CLIENT", large)
        drawn = rows_of(sizes, batch_size, steps, rounds)
    for client, n in enumerate(sizes):
        own = [batch for number in range(rounds) for batch in drawn[number, client]]
        assert len(own) == rounds * steps
        if n <= batch_size:
            assert all(batch.tolist() == list(range(n)) for batch in own)
            continue
        stream = np.concatenate(own)
        assert len(stream) == rounds * steps * batch_size
        for start in range(0, len(stream), n):
            epoch = stream[start : start + n]
            assert len(np.unique(epoch)) == len(epoch)
            assert epoch.min() >= 0
            assert epoch.max() < n


def test_a_client_that_skips_a_round_skips_its_part_of_the_epoch():
    whole, skipping = (rows_of([50, 30], 4, 3, 4, skipped=left_out) for left_out in ((), (1,)))
    for key, rows in skipping.items():
        np.testing.assert_array_equal(rows, whole[key])
    assert whole.keys() - skipping.keys() == {(number, 1) for number in (1, 2, 3)}


@pytest.mark.parametrize("size", [700, 2**12, 2**16 + 3])
def test_orders_are_random_and_of_their_own_for_each_epoch_client_and_seed(size):
    def order(epoch=0, client=0, seed=0):
        base = randomness.key(seed, 0, randomness.Purpose.EPOCHS)
        return randomness.in_epochs(base, np.array([client]), np.array([size]), size, 1, epoch * size).ravel()

    orders = [order(), order(epoch=1), order(epoch=10**6), order(client=1), order(seed=1)]
    for one in orders:
        assert (np.bincount(one, minlength=size) == 1).all()
    bound = 4.5 / np.sqrt(size)  # of a correlation, 4.5 standard deviations
    for first, one in enumerate([np.arange(size), *orders]):
        assert abs(np.corrcoef(one[1:], one[:-1])[0, 1]) < bound or first == 0
        for other in orders[first:]:
            assert abs(np.corrcoef(one, other)[0, 1]) < bound


def test_where_an_example_of_a_large_client_goes_is_uniform_and_so_is_the_distance_of_two():
    """Chi-square over 64 equal parts of 2^12 places: 63 degrees of freedom, standard deviation 11.2."""
    many = 20_000
    base = randomness.key(5, 0, randomness.Purpose.EPOCHS)
    drawn = randomness.in_epochs(base, np.arange(many), np.full(many, 2**12), 1, 2, 700)[:, 0]
    for values in (drawn[:, 0], drawn[:, 1], (drawn[:, 1] - drawn[:, 0]) % 2**12):
        for parts in (values // 64, values % 64):
            counts = np.bincount(parts, minlength=64)
            assert abs(((counts - many / 64) ** 2 / (many / 64)).sum() - 63) < 4.5 * 11.2


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("fedavg", {}),
        ("scaffold stored", {}),
        ("mime", {}),
        ("fedga", {}),
        ("fedavg", {"stragglers": {"share": 0.5, "work": [LOW, HIGH], "kept": True}}),
    ],
)
def test_clients_train_as_in_a_plain_loop(name, changes, unequal_clients):
    own_settings, loop = {**LOOPS, "fedga": ({"displacement": 0.2}, fedga)}[name]
    method = {"name": name.split()[0], **own_settings, "local_steps": 5}
    found = lines(trial(unequal_clients, method=method, batch_size=3, batching="epochs", **changes))
    plain, w, memory = Plain(unequal_clients, 3, 3, steps=5, over_rounds=True), np.zeros((CLASSES, INPUTS + 1)), {}
    for number in range(ROUNDS):
        batches = [plain.batches(number, client) for client in range(len(SIZES))]
        if changes:
            work = shares(3, number, list(range(len(SIZES))), 3)[0]
            batches = [taken(own, work[client], 1) for client, own in enumerate(batches)]
        w = w - RATE * loop(plain, w, memory, batches)
        np.testing.assert_allclose(found[number + 1]["params"], w.ravel(), rtol=0, atol=1e-10)


def test_passes_of_a_client_are_whole_epochs(unequal_clients):
    epochs, shuffled = (
        lines(trial(unequal_clients, batching=batching, drop_last=True)) for batching in ("epochs", "shuffled")
    )
    assert [line | {"wall_seconds": 0} for line in epochs] == [line | {"wall_seconds": 0} for line in shuffled]


@pytest.mark.parametrize(("method", "changes"), [*((name, {}) for name in methods()), ("maml", {"unbiased": True})])
def test_a_round_of_every_method_goes_on_where_the_last_one_ended(method, changes, monkeypatch):
    trial_document = document(method, task=DIGITS, batching="epochs", rounds=2)
    trial_document["method"] |= changes
    asked, batch = [], MiniBatches.batch

    def remember(self, step, clients):
        if self._source.round_batches is not None:
            asked.append((self._round_index, step))
        return batch(self, step, clients)

    monkeypatch.setattr(MiniBatches, "batch", remember)
    spec = parse(trial_document)
    Pack.from_spec(spec).advance()
    for number in range(2):
        assert {step for own, step in asked if own == number} == set(range(spec.round_batches))


def test_members_of_a_pack_have_equally_many_batches_in_a_round():
    members = [{"local_steps": 2}, {"local_steps": 3}]
    error = wrong(document("fedavg", task=DIGITS, batching="epochs", members=members))
    assert error.path == "members"
    assert "equally many batches in a round with batching epochs, got 2 and 3" in str(error)
    assert parse(document("fedavg", task=DIGITS, batching="epochs", members=[{}, {}])).round_batches == 3
    assert parse(document("fedavg", task=DIGITS, members=members)).round_batches is None


def test_tasks_without_examples_have_no_epochs():
    error = wrong(document("fedavg", batching="epochs"))
    assert error.path == "batching"
    assert str(error) == "batching must be left out for a task without countable examples, got epochs"


def test_methods_say_how_many_batches_a_round_has_before_their_defaults_are_filled_in():
    known = {
        "fedavg": ({"local_steps": 7}, 7),
        "minibatch_sgd": ({}, 1),
        "maml": ({"local_steps": 2}, 3),
        "local_update": ({"gradient_weights": (0.0, 1.0)}, 2),
    }
    assert {name: round_batches(name, values) for name, (values, _) in known.items()} == {
        name: count for name, (_, count) in known.items()
    }
