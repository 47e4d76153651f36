"""Partitions of labelled examples among clients: every example goes to exactly one client, and no client is empty.

Every partition depends only on (labels, clients, ..., seed) and returns one array of row numbers per client.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


class ClientRows(Sequence[Rows]):
    """The rows of each client: one array for all, because a million small ones take more room than their numbers.

    Args:
        rows: (examples,) rows of the clients, one client after another.
        sizes: (clients,) number of rows of each.
    """

    def __init__(self, rows: Rows, sizes: Rows) -> None:
        self.rows, self.sizes = rows, sizes
        self.offsets = np.cumsum(sizes) - sizes

    @classmethod
    def of(cls, parts: Sequence[Rows]) -> ClientRows:
        """The same rows, from an array for each client."""
        if isinstance(parts, cls):
            return parts
        sizes = np.array([len(part) for part in parts], dtype=np.int64)
        return cls(np.concatenate([np.empty(0, np.int64), *parts]), sizes)

    def within(self, rows: Rows) -> ClientRows:
        """These parts of a choice of rows, instead of all rows."""
        return ClientRows(rows[self.rows], self.sizes)

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, client: Any) -> Any:
        if isinstance(client, slice):
            return [self[one] for one in range(len(self))[client]]
        one = range(len(self))[client]
        return self.rows[self.offsets[one] : self.offsets[one] + self.sizes[one]]


def iid(labels: Rows, clients: int, seed: int) -> list[Rows]:
    """Equal shares (up to one example) of a random permutation.

    Args:
        labels: (examples,) class numbers; only their count is used.
        clients: 1 .. examples.
        seed: at least 0.
    """
    _enough(labels, clients)
    return np.array_split(_generator(seed, 1).permutation(len(labels)), clients)


def by_label(labels: Rows, clients: int, seed: int) -> list[Rows]:
    """One label per client; several clients may share a label, each with an equal share of it.

    With fewer clients than labels, examples are sorted by label and cut into equal contiguous blocks, so that clients
    hold neighbouring labels.

    Args:
        labels: (examples,) class numbers.
        clients: at least 1, and few enough that each label has an example for each client that shares it.
        seed: at least 0.
    """
    _enough(labels, clients)
    if clients >= len(np.unique(labels)):
        return classes_per_client(labels, clients, 1, seed)
    shuffled = _generator(seed, 2).permutation(len(labels))
    return np.array_split(shuffled[np.argsort(labels[shuffled], kind="stable")], clients)


def classes_per_client(labels: Rows, clients: int, classes: int, seed: int) -> list[Rows]:
    """Each client holds exactly this many labels; a label's examples are shared equally by the clients that hold it.

    Clients get their labels one after another, always the labels with the fewest holders first, ties at random.

    Args:
        labels: (examples,) class numbers.
        clients: at least 1.
        classes: 1 .. number of labels; clients * classes must cover every label.
        seed: at least 0.

    Raises:
        ValueError: there are too few clients to cover every label, or too many for a label's examples.
    """
    _enough(labels, clients)
    generator = _generator(seed, 3)
    present = np.unique(labels)
    if not 1 <= classes <= len(present):
        raise ValueError(f"classes_per_client must be in [1, {len(present)}], got classes_per_client={classes}")
    if clients * classes < len(present):
        raise ValueError(
            f"clients times classes_per_client must be at least {len(present)}, the number of labels, "
            f"got clients={clients} and classes_per_client={classes}"
        )
    dealt = np.zeros(len(present), dtype=np.int64)
    holders: list[list[int]] = [[] for _ in present]
    for client in range(clients):
        order = np.lexsort((generator.random(len(present)), dealt))[:classes]
        dealt[order] += 1
        for position in order:
            holders[position].append(client)
    parts: list[list[Rows]] = [[] for _ in range(clients)]
    for label, holding in zip(present, holders, strict=True):
        rows = generator.permutation(np.flatnonzero(labels == label))
        if len(rows) < len(holding):
            raise ValueError(
                f"clients must be few enough that every label has an example for each of its holders, "
                f"got clients={clients} with {len(rows)} examples of label {label} for {len(holding)} clients"
            )
        # The clients that get one example more are drawn, so that no client gets all of them.
        for client, share in zip(generator.permutation(holding), np.array_split(rows, len(holding)), strict=True):
            parts[client].append(share)
    return [np.concatenate(shares) for shares in parts]


def dirichlet(labels: Rows, clients: int, concentration: float, seed: int) -> list[Rows]:
    """Equal shares (up to one example) with label mixtures drawn from a symmetric Dirichlet distribution.

    Clients take their examples one after another, in random order; a label that has run out is dropped from the
    mixtures of later clients. A large concentration is iid; near 0 a client has one label.

    Args:
        labels: (examples,) class numbers.
        clients: 1 .. examples.
        concentration: above 0.
        seed: at least 0.

    Source: "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification" (Hsu, Qi,
    Brown 2019), with shares that use every example.
    """
    _enough(labels, clients)
    if not concentration > 0:
        raise ValueError(f"the concentration of dirichlet must be above 0, got dirichlet={concentration:g}")
    generator = _generator(seed, 4)
    present = np.unique(labels)
    piles = [generator.permutation(np.flatnonzero(labels == label)) for label in present]
    left = np.array([len(pile) for pile in piles])
    sizes = np.full(clients, len(labels) // clients)
    sizes[generator.permutation(clients)[: len(labels) % clients]] += 1
    parts: list[Rows] = [np.empty(0, dtype=np.int64)] * clients
    for client in generator.permutation(clients):
        mixture = generator.dirichlet(np.full(len(present), concentration))
        if not np.isfinite(mixture).all():  # underflow at tiny concentrations: the limit is one label
            mixture = np.eye(len(present))[generator.integers(len(present))]
        counts = _draw(generator, mixture, left, int(sizes[client]))
        parts[client] = np.concatenate(
            [pile[n - count : n] for pile, n, count in zip(piles, left, counts, strict=True)]
        )
        left -= counts
    return parts


def _draw(generator: np.random.Generator, mixture: NDArray[np.float64], left: Rows, size: int) -> Rows:
    """Examples to take of each label: `size` draws from the mixture, at most what is left; the rest from one label."""
    counts = np.zeros_like(left)
    while (missing := size - int(counts.sum())) > 0:
        room = left - counts
        weights = np.where(room > 0, mixture, 0.0)
        if weights.sum() <= 0:
            weights[generator.choice(np.flatnonzero(room > 0))] = 1.0
        counts += np.minimum(generator.multinomial(missing, weights / weights.sum()), room)
    return counts


def stratified(labels: Rows, fraction: float, seed: int) -> tuple[Rows, Rows]:
    """(rows set aside, rows kept), both ascending: the same fraction of each label, up to rounding, is set aside.

    Args:
        labels: (examples,) class numbers.
        fraction: in [0, 1].
        seed: at least 0.
    """
    generator = _generator(seed, 5)
    aside = np.concatenate(
        [
            generator.permutation(rows)[: round(fraction * len(rows))]
            for rows in (np.flatnonzero(labels == label) for label in np.unique(labels))
        ]
    )
    aside.sort()
    return aside, np.setdiff1d(np.arange(len(labels)), aside, assume_unique=True)


def natural(clients: Rows) -> ClientRows:
    """One part for each client that has examples, in ascending order of clients and rows.

    Args:
        clients: (examples,) client id of each example, in any order.

    Examples:
        >>> [part.tolist() for part in natural(np.array([7, 3, 7, 3, 9]))]
        [[1, 3], [0, 2], [4]]
    """
    return ClientRows(np.argsort(clients, kind="stable"), np.unique(clients, return_counts=True)[1])


def of_each(clients: Rows, fraction: float, seed: int) -> tuple[Rows, Rows]:
    """(rows set aside, rows kept), both ascending: the same fraction of each client's examples is set aside.

    Fractions of an example are carried over to the next client, so that the fraction also holds for all clients
    together. Every client keeps at least one example.

    Args:
        clients: (examples,) client id of each example.
        fraction: in [0, 1].
        seed: at least 0.

    Examples:
        >>> aside, kept = of_each(np.repeat(np.arange(10), 2), 0.25, 0)
        >>> len(aside), len(np.unique(kept // 2))
        (5, 10)
    """
    generator = _generator(seed, 6)
    parts = natural(clients)
    edges = np.floor(fraction * np.concatenate([[0], np.cumsum(parts.sizes)]) + generator.random())
    counts = np.diff(edges).astype(np.int64)
    taken = [
        generator.permutation(part)[: min(count, len(part) - 1)] for part, count in zip(parts, counts, strict=True)
    ]
    aside = np.sort(np.concatenate([np.empty(0, dtype=np.int64), *taken]))
    return aside, np.setdiff1d(np.arange(len(clients)), aside, assume_unique=True)


def choose(clients: Rows, count: int, seed: int) -> Rows:
    """Draws `count` of the clients, in ascending order; with the same seed, a smaller draw is a subset of a larger one.

    Args:
        clients: (clients,) distinct client ids.
        count: 0 .. clients.
        seed: at least 0.
    """
    return np.sort(_generator(seed, 7).permutation(clients)[:count])


def _enough(labels: Rows, clients: int) -> None:
    if not 1 <= clients <= len(labels):
        raise ValueError(
            f"clients must be in [1, {len(labels)}], one training example for each at least, got clients={clients}"
        )


def _generator(seed: int, purpose: int) -> np.random.Generator:
    return np.random.default_rng([seed, purpose])
