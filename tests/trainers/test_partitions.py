"""Partitions: every example goes to exactly one client, no client is empty, the same seed gives the same split."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trainers.data import client_shares, partitions
from trainers.data.partitions import ClientRows

LABELS = np.repeat(np.arange(10), [140, 150, 130, 145, 141, 139, 160, 120, 135, 137])
Spread = Callable[[np.ndarray, int, int], list[np.ndarray]]
SPREADS: dict[str, Spread] = {
    "iid": partitions.iid,
    "by_label": partitions.by_label,
    "one_class": lambda labels, clients, seed: partitions.classes_per_client(labels, clients, 1, seed),
    "three_classes": lambda labels, clients, seed: partitions.classes_per_client(labels, clients, 3, seed),
    "dirichlet_tiny": lambda labels, clients, seed: partitions.dirichlet(labels, clients, 1e-9, seed),
    "dirichlet_small": lambda labels, clients, seed: partitions.dirichlet(labels, clients, 0.3, seed),
    "dirichlet_large": lambda labels, clients, seed: partitions.dirichlet(labels, clients, 1e6, seed),
    "two_levels": lambda labels, clients, seed: partitions.dirichlet(
        labels, clients, 0.1, seed, within=(10.0, [np.array([0, 1]), np.arange(2, 10)])
    ),
    "unequal_tiny": lambda labels, clients, seed: partitions.dirichlet_of_labels(labels, clients, 1e-9, seed),
    "unequal": lambda labels, clients, seed: partitions.dirichlet_of_labels(labels, clients, 0.5, seed),
    "shards": lambda labels, clients, seed: partitions.shards(labels, clients, 2, seed),
    "power_law": lambda labels, clients, seed: partitions.iid(
        labels, clients, seed, client_shares.power_law(clients, 1.5, seed)
    ),
    "sized_dirichlet": lambda labels, clients, seed: partitions.dirichlet(
        labels, clients, 0.3, seed, client_shares.dirichlet(clients, 0.3, seed)
    ),
    "sized_classes": lambda labels, clients, seed: partitions.classes_per_client(
        labels, clients, 1, seed, client_shares.power_law(clients, 2.0, seed)
    ),
}


def covers(parts: list[np.ndarray], examples: int) -> None:
    together = np.concatenate(parts)
    assert len(together) == examples
    assert np.array_equal(np.sort(together), np.arange(examples))
    assert min(len(part) for part in parts) >= 1


def possible(name: str, labels: np.ndarray, clients: int) -> bool | None:
    """Whether there are enough examples and labels; None where it depends on which labels are held once more."""
    if clients > len(labels) or (name == "shards" and 2 * clients > len(labels)):
        return False
    counts = np.unique(labels, return_counts=True)[1]
    classes = {"by_label": 1, "one_class": 1, "sized_classes": 1, "three_classes": 3}.get(name)
    if classes is None or (name == "by_label" and clients < len(counts)):
        return True
    if classes > len(counts) or clients * classes < len(counts):
        return False
    holders = clients * classes // len(counts)
    odd = clients * classes % len(counts)
    if (counts >= holders + (odd > 0)).all():
        return True
    return None if odd and (counts >= holders).all() and (counts > holders).sum() >= odd else False


@pytest.mark.parametrize("name", SPREADS)
@given(data=st.data(), seed=st.integers(0, 2**60))
def test_every_example_is_used_exactly_once(name: str, data: Any, seed: int) -> None:
    labels = np.array(data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=60)))
    clients = data.draw(st.integers(1, 20))
    can = possible(name, labels, clients)
    assume(can is not None)
    if not can:
        with pytest.raises(ValueError, match="got "):
            SPREADS[name](labels, clients, seed)
        return
    parts = SPREADS[name](labels, clients, seed)
    assert len(parts) == clients
    covers(parts, len(labels))
    again = SPREADS[name](labels, clients, seed)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


@pytest.mark.parametrize("name", SPREADS)
def test_another_seed_gives_another_split(name: str) -> None:
    one, two = (SPREADS[name](LABELS, 20, seed) for seed in (0, 1))
    assert any(not np.array_equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("clients", [1, 7, 50, len(LABELS)])
def test_iid_and_dirichlet_give_equal_shares(clients: int) -> None:
    for name in ("iid", "dirichlet_tiny", "dirichlet_small", "dirichlet_large"):
        sizes = [len(part) for part in SPREADS[name](LABELS, clients, 3)]
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("clients", [10, 13, 50, 200])
def test_by_label_gives_each_client_one_label(clients: int) -> None:
    parts = partitions.by_label(LABELS, clients, 0)
    held = [np.unique(LABELS[part]) for part in parts]
    assert all(len(labels) == 1 for labels in held)
    times = np.bincount([labels[0] for labels in held], minlength=10)
    assert times.max() - times.min() <= 1


def test_by_label_with_fewer_clients_gives_contiguous_blocks() -> None:
    parts = partitions.by_label(LABELS, 4, 0)
    held = [np.unique(LABELS[part]) for part in parts]
    assert all(np.array_equal(labels, np.arange(labels[0], labels[-1] + 1)) for labels in held)
    assert all(held[i][-1] <= held[i + 1][0] for i in range(3))


@pytest.mark.parametrize("classes", [1, 2, 5, 10])
def test_classes_per_client_is_exact_and_balanced(classes: int) -> None:
    parts = partitions.classes_per_client(LABELS, 30, classes, 0)
    held = [np.unique(LABELS[part]) for part in parts]
    assert {len(labels) for labels in held} == {classes}
    assert set(np.bincount(np.concatenate(held))) == {3 * classes}


def test_dirichlet_goes_from_one_label_to_iid() -> None:
    shares = {}
    for name in ("dirichlet_tiny", "dirichlet_small", "dirichlet_large"):
        parts = SPREADS[name](LABELS, 20, 0)
        shares[name] = np.mean([np.bincount(LABELS[part]).max() / len(part) for part in parts])
    assert shares["dirichlet_tiny"] > 0.8
    assert shares["dirichlet_large"] < 0.25
    assert shares["dirichlet_tiny"] > shares["dirichlet_small"] + 0.1 > shares["dirichlet_large"] + 0.2


def test_stratified_sets_the_same_share_of_every_label_aside() -> None:
    aside, kept = partitions.stratified(LABELS, 0.2, 0)
    covers([aside, kept], len(LABELS))
    counts = np.bincount(LABELS)
    assert np.abs(np.bincount(LABELS[aside]) - 0.2 * counts).max() <= 0.5
    assert not np.array_equal(aside, partitions.stratified(LABELS, 0.2, 1)[0])


@given(owners=st.lists(st.integers(-3, 9), min_size=1, max_size=80), ordered=st.booleans(), piece=st.integers(1, 9))
def test_natural_gives_each_client_its_own(owners: list[int], ordered: bool, piece: int) -> None:
    """In any order, and in ascending order, which is looked at in pieces."""
    owners = sorted(owners) if ordered else owners
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitions, "_PIECE", piece)
        parts = partitions.natural(np.array(owners))
        assert partitions.all_in_order(parts.rows) == (owners == sorted(owners))
    covers(parts, len(owners))
    held = [np.unique(np.array(owners)[part]).tolist() for part in parts]
    assert held == [[owner] for owner in sorted(set(owners))]
    assert all(np.array_equal(part, np.sort(part)) for part in parts)


@given(
    owners=st.lists(st.integers(0, 9), min_size=1, max_size=80), fraction=st.floats(0, 1), seed=st.integers(0, 2**60)
)
def test_of_each_takes_the_same_share_and_empties_nobody(owners: list[int], fraction: float, seed: int) -> None:
    column = np.array(owners)
    aside, kept = partitions.of_each(column, fraction, seed)
    assert np.array_equal(np.sort(np.concatenate([aside, kept])), np.arange(len(owners)))
    assert set(column[kept].tolist()) == set(owners)
    counts, taken = np.bincount(column, minlength=10), np.bincount(column[aside], minlength=10)
    assert (taken <= np.ceil(fraction * counts + 1e-9)).all()
    assert (taken >= np.minimum(np.floor(fraction * counts - 1e-9), counts - 1)).all()
    again = partitions.of_each(column, fraction, seed)
    assert np.array_equal(aside, again[0])


def test_of_each_holds_for_all_clients_together() -> None:
    aside, _ = partitions.of_each(np.repeat(np.arange(100), 3), 0.1, 0)
    assert len(aside) == 30


def test_choose_is_nested() -> None:
    people = np.arange(100, 200)
    chosen = [set(partitions.choose(people, count, 5).tolist()) for count in (0, 1, 20, 100)]
    assert [len(some) for some in chosen] == [0, 1, 20, 100]
    assert chosen[0] < chosen[1] < chosen[2] < chosen[3]
    assert chosen[2] != set(partitions.choose(people, 20, 6).tolist())


@pytest.mark.parametrize(
    ("spread", "message"),
    [
        (lambda: partitions.iid(LABELS[:5], 6, 0), r"clients must be in \[1, 5\].*got clients=6"),
        (lambda: partitions.iid(LABELS, 0, 0), "got clients=0"),
        (lambda: partitions.dirichlet(LABELS, 3, 0.0, 0), "must be above 0, got dirichlet=0"),
        (lambda: partitions.dirichlet(LABELS, 3, float("nan"), 0), "must be above 0, got dirichlet=nan"),
        (lambda: partitions.classes_per_client(LABELS, 3, 11, 0), r"must be in \[1, 10\], got classes_per_client=11"),
        (lambda: partitions.classes_per_client(LABELS, 3, 2, 0), "got clients=3 and classes_per_client=2"),
        (lambda: partitions.shards(LABELS, 700, 2, 0), r"shards must be in \[1, 1\].*got shards=2"),
        (lambda: partitions.dirichlet_of_labels(LABELS, 3, 0.0, 0), "must be above 0, got dirichlet=0"),
        (lambda: partitions.by_label(LABELS, 1300, 0), "130 examples of label 2 for|120 examples of label 7 for"),
    ],
)
def test_impossible_splits(spread: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        spread()


def test_parts_are_one_array_that_reads_like_a_list() -> None:
    owners = np.repeat(np.arange(100_000), 2)[::-1]
    parts = partitions.natural(owners)
    assert len(parts) == 100_000
    assert parts[-1].tolist() == [0, 1]
    assert [part.tolist() for part in parts[:2]] == [[199_998, 199_999], [199_996, 199_997]]
    assert sum(len(part) for part in parts) == parts.rows.size == 200_000
    assert ClientRows.of(parts) is parts
    assert ClientRows.of(parts[:3]).within(owners).rows.tolist() == [0, 0, 1, 1, 2, 2]
    with pytest.raises(IndexError):
        parts[100_000]


def skew(parts: list[np.ndarray], groups: np.ndarray) -> float:
    """Mean share of the largest group of a client."""
    return float(np.mean([np.bincount(groups[part]).max() / len(part) for part in parts]))


def test_shares_follow_their_law() -> None:
    sizes = np.sort([len(part) for part in SPREADS["power_law"](LABELS, 50, 0)])[::-1]
    weights = np.arange(1, 51) ** -1.5
    np.testing.assert_allclose(sizes - 1, weights / weights.sum() * (len(LABELS) - 50), atol=1)
    assert not np.array_equal(client_shares.power_law(50, 1.5, 0), client_shares.power_law(50, 1.5, 1))
    few, many = (np.std(client_shares.dirichlet(50, concentration, 0)) for concentration in (0.1, 100.0))
    assert few > 10 * many
    assert client_shares.apportioned(7, np.zeros(3)).tolist() == [3, 2, 2]
    assert client_shares.dirichlet(5, 1e-12, 0).tolist().count(1.0) == 1


def test_two_classes_with_sizes_by_a_power_law() -> None:
    """The split of FedProx's MNIST: what a client holds of its labels follows its size."""
    shares = client_shares.power_law(100, 1.0, 0)
    parts = partitions.classes_per_client(LABELS, 100, 2, 0, shares)
    assert {len(np.unique(LABELS[part])) for part in parts} == {2}
    assert np.corrcoef(shares, [len(part) for part in parts])[0, 1] > 0.8


@pytest.mark.parametrize("count", [1, 2, 5])
def test_shards_hold_adjacent_labels(count: int) -> None:
    parts = partitions.shards(LABELS, 100, count, 0)
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= count
    held = [len(np.unique(LABELS[part])) for part in parts]
    assert max(held) <= 2 * count
    assert np.mean(held) > 0.8 * min(count, 3)


def test_labels_drawn_over_clients_have_unequal_sizes() -> None:
    shares, sizes = {}, {}
    for concentration in (0.1, 100.0):
        parts = partitions.dirichlet_of_labels(LABELS, 20, concentration, 0)
        shares[concentration], sizes[concentration] = skew(parts, LABELS), np.std([len(part) for part in parts])
    assert shares[0.1] > shares[100.0] + 0.3
    assert sizes[0.1] > 3 * sizes[100.0]


def test_two_levels_are_skewed_in_groups_and_even_within() -> None:
    """As CIFAR-100 in Reddi et al. 2021: few coarse labels a client, and all fine labels of each."""
    labels = np.repeat(np.arange(20), 100)
    coarse = labels // 5
    groups = [np.arange(first, first + 5) for first in range(0, 20, 5)]
    parts = partitions.dirichlet(labels, 40, 0.05, 0, within=(1e3, groups))
    assert skew(parts, coarse) > 0.75
    assert skew(parts, labels) < 0.35
    assert skew(partitions.dirichlet(labels, 40, 1e3, 0, within=(0.05, groups)), coarse) < 0.4


def test_a_group_that_has_run_out_is_replaced_within_itself_first() -> None:
    labels = np.repeat(np.arange(4), [1, 39, 20, 20])
    groups = [np.array([0, 1]), np.array([2, 3])]
    parts = partitions.dirichlet(labels, 2, 1e-9, 3, within=(1e-9, groups))
    assert sorted(tuple(np.unique(labels[part] // 2)) for part in parts) == [(0,), (1,)]
