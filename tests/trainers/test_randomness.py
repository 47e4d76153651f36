import numpy as np
import pytest

from trainers.engine import randomness
from trainers.engine.randomness import Purpose


def base(round_index=0, seed=0, purpose=Purpose.BATCH):
    return randomness.key(seed, round_index, purpose)


def test_keys_differ_in_every_coordinate():
    keys = {
        randomness.key(seed, number, purpose)
        for seed in (0, 1, 2**62)
        for number in (0, 1, 2)
        for purpose in randomness.Purpose
    }
    assert len(keys) == 3 * 3 * len(randomness.Purpose)


@pytest.mark.parametrize("clients", [100, 1_000_000])
def test_cohort_has_no_client_twice_and_depends_on_seed_and_round_only(clients):
    first = randomness.cohort(3, 7, clients, 10)
    assert len(set(first.tolist())) == 10
    assert first.tolist() == sorted(first.tolist())
    assert (first == randomness.cohort(3, 7, clients, 10)).all()
    assert (first != randomness.cohort(3, 8, clients, 10)).any()
    assert (first != randomness.cohort(4, 7, clients, 10)).any()


@pytest.mark.parametrize(("clients", "most"), [(50, 20), (6, 6), (70_000, 35_000), (70_000, 69_999)])
def test_a_smaller_cohort_is_part_of_a_larger_one(clients, most):
    larger = randomness.cohort(0, 0, clients, most)
    assert larger.tolist() == sorted(set(larger.tolist()))
    assert len(larger) == most
    assert set(randomness.cohort(0, 0, clients, 5)) <= set(larger)


def test_a_cohort_has_the_clients_with_the_smallest_words_also_if_words_are_equal(monkeypatch):
    words = np.array([5, 2, 2, 9, 2, 1, 5, 2], np.uint64)
    monkeypatch.setattr(randomness, "hashed", lambda base, clients: words)
    drawn = [randomness.cohort(0, 0, len(words), count).tolist() for count in range(1, len(words))]
    assert drawn == [np.sort(np.argsort(words, kind="stable")[:count]).tolist() for count in range(1, len(words))]


def test_clients_of_a_large_population_are_drawn_equally_often():
    """Chi-square over 100 blocks of clients: 99 degrees of freedom, standard deviation 14."""
    drawn = np.concatenate([randomness.cohort(0, number, 1_000_000, 1000) for number in range(100)])
    counts = np.bincount(drawn // 10_000, minlength=100)
    assert 99 - 4 * 14.1 < ((counts - 1000) ** 2 / 1000).sum() < 99 + 4 * 14.1


def test_clients_are_drawn_equally_often():
    counts = np.zeros(20)
    for number in range(2000):
        counts[randomness.cohort(0, number, 20, 5)] += 1
    assert abs(counts / 500 - 1).max() < 0.15  # 4 standard deviations are 0.155 for one client


@pytest.mark.parametrize("draw", [randomness.with_replacement, randomness.shuffled])
def test_a_batch_depends_on_its_client_and_step_only(draw):
    clients, sizes = np.array([4, 1, 9]), np.array([30, 3, 8])
    every = draw(base(), clients, sizes, 6, 5)
    assert every.shape == (3, 6, 5)
    assert (every >= 0).all()
    assert (every < sizes[:, None, None]).all()
    for place in range(3):
        alone = draw(base(), clients[place : place + 1], sizes[place : place + 1], 4, 5)
        assert (alone[0] == every[place, :4]).all()


def test_shuffled_batches_pass_over_all_examples_before_any_comes_again():
    sizes = np.array([7, 12])
    picked = randomness.shuffled(base(), np.array([0, 1]), sizes, 9, 4)
    for place, size in enumerate(sizes):
        stream = picked[place].ravel()
        for start in range(0, 36 - size + 1, size):
            assert sorted(stream[start : start + size]) == list(range(size))
        assert (stream[:size] != stream[size : 2 * size]).any()


def test_a_client_with_fewer_examples_than_a_batch_has_all_of_them_in_each():
    picked = randomness.shuffled(base(), np.array([0, 1]), np.array([3, 10]), 4, 5)
    assert (picked[0] == [0, 1, 2, 2, 2]).all()


def test_permutations_are_those_of_shuffled_batches(monkeypatch):
    clients, sizes, passes = np.array([4, 1, 9, 2]), np.array([30, 12, 12, 5]), np.array([1, 3, 2, 4])
    held = np.split(randomness.permutations(base(), clients, sizes, passes), np.cumsum(sizes * passes)[:-1])
    for place, own in enumerate(held):
        assert (own == randomness.shuffled(base(), clients, sizes, len(own), 1)[place, :, 0]).all()
    monkeypatch.setattr(randomness, "_INDEX_BITS", 4)  # 30 examples are many
    monkeypatch.setattr(randomness, "_LARGE_INDEX_BITS", 20)
    monkeypatch.setattr(randomness, "_LARGE_HASH_BITS", 24)
    assert (randomness.permutations(base(), clients, sizes, passes) == np.concatenate(held)).all()


def test_very_many_passes_are_split_without_a_change(monkeypatch):
    clients, sizes = np.arange(5), np.array([2, 3, 4, 5, 6])
    whole = randomness.shuffled(base(), clients, sizes, 10, 2)
    monkeypatch.setattr(randomness, "_INDEX_BITS", 36)  # leaves 4 bits: 16 passes at once
    assert (randomness.shuffled(base(), clients, sizes, 10, 2) == whole).all()


def test_clients_beyond_20_bits_shuffle_all_their_examples(monkeypatch):
    clients, sizes = np.array([3, 0, 7]), np.array([2**20 + 3, 50, 2**20])
    picked = randomness.shuffled(base(), clients, sizes, 3, 350_000)
    first = picked[0].ravel()
    assert (np.bincount(first[: sizes[0]], minlength=sizes[0]) == 1).all()
    assert abs(np.corrcoef(first[: sizes[0]], np.arange(sizes[0]))[0, 1]) < 4 / 2**10
    assert (picked[:1, :1, :400] == randomness.shuffled(base(), clients[:1], sizes[:1], 1, 400)).all()
    assert (picked[2:] == randomness.shuffled(base(), clients[2:], sizes[2:], 3, 350_000)).all()
    monkeypatch.setattr(randomness, "_INDEX_BITS", 6)  # 100 examples are many: larger keys, the same order
    wide = randomness.shuffled(base(), clients, np.array([100, 101, 30]), 9, 20)
    monkeypatch.undo()
    assert (wide == randomness.shuffled(base(), clients, np.array([100, 101, 30]), 9, 20)).all()


@pytest.mark.parametrize("size", [5000, 2**21])
def test_the_first_examples_of_a_pass_are_those_of_the_whole_pass(size):
    clients = np.array([5, 6])
    whole = randomness.shuffled(base(), clients, np.full(2, size), 5, size // 10)
    assert (randomness.shuffled(base(), clients, np.full(2, size), 1, 300)[:, 0] == whole[:, 0, :300]).all()


def test_normal_numbers_are_standard_and_their_own():
    clients = np.arange(40)
    noise = randomness.normals(base(purpose=Purpose.NOISE), clients, 500, 3)
    assert noise.shape == (40, 500, 3)
    assert noise.mean((0, 1)) == pytest.approx(np.zeros(3), abs=4 / np.sqrt(20000))
    assert noise.var((0, 1)) == pytest.approx(np.ones(3), abs=4 * np.sqrt(2 / 20000))
    assert np.corrcoef(noise.reshape(-1, 3).T)[np.triu_indices(3, 1)] == pytest.approx(np.zeros(3), abs=0.03)
    alone = randomness.normals(base(purpose=Purpose.NOISE), clients[7:8], 20, 3)
    assert (alone[0] == noise[7, :20]).all()
