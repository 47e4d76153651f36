"""Partitions of labelled examples among clients: every example goes to exactly one client, and no client is empty.

Every partition depends only on (labels, clients, ..., seed) and returns one array of row numbers per client.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from trainers.data.client_shares import Shares, apportioned, cut, drawn_mixture

Rows = NDArray[np.int64]

_PIECE = 2**20  # rows looked at together
_EVERY_ROW: WeakValueDictionary[int, Rows] = WeakValueDictionary()


class ClientRows(Sequence[Rows]):
    """The rows of each client, in one array: a million small arrays would take more memory than their rows.

    Args:
        rows: (examples,) rows of the clients, one client after another.
        sizes: (clients,) number of rows of each.
    """

    def __init__(self, rows: Rows, sizes: Rows) -> None:
        self.rows, self.sizes = rows, sizes
        self.offsets = np.cumsum(sizes) - sizes

    @classmethod
    def of(cls, parts: Sequence[Rows]) -> ClientRows:
        """Joins one array of rows per client."""
        if isinstance(parts, cls):
            return parts
        sizes = np.array([len(part) for part in parts], dtype=np.int64)
        return cls(np.concatenate([np.empty(0, np.int64), *parts]), sizes)

    def within(self, rows: Rows) -> ClientRows:
        """The same parts, with positions in `rows` replaced by the rows there."""
        return ClientRows(taken(rows, self.rows), self.sizes)

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, client: Any) -> Any:
        if isinstance(client, slice):
            return [self[index] for index in range(len(self))[client]]
        index = range(len(self))[client]
        return self.rows[self.offsets[index] : self.offsets[index] + self.sizes[index]]


def iid(labels: Rows, clients: int, seed: int, shares: Shares | None = None) -> list[Rows]:
    """Shares of a random permutation.

    Args:
        labels: (examples,) class numbers; only their count is used.
        clients: 1 .. examples.
        seed: at least 0.
        shares: (clients,) of the examples; None for equal ones, up to one example.
    """
    _enough(labels, clients)
    return cut(_generator(seed, 1).permutation(len(labels)), clients, shares)


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


def shards(labels: Rows, clients: int, count: int, seed: int) -> list[Rows]:
    """Examples sorted by label are cut into equal shards (up to one example), of which each client gets `count`.

    Args:
        labels: (examples,) class numbers.
        clients: at least 1.
        count: at least 1; clients * count is at most the number of examples.
        seed: at least 0.

    Source: "Communication-Efficient Learning of Deep Networks from Decentralized Data" (McMahan et al. 2017), whose
    MNIST has two shards for each of 100 clients.
    """
    _enough(labels, clients)
    if not 1 <= count <= len(labels) // clients:
        raise ValueError(f"shards must be in [1, {len(labels) // clients}], one example for each, got shards={count}")
    generator = _generator(seed, 8)
    shuffled = generator.permutation(len(labels))
    pieces = np.array_split(shuffled[np.argsort(labels[shuffled], kind="stable")], clients * count)
    order = generator.permutation(clients * count).reshape(clients, count)
    return [np.concatenate([pieces[piece] for piece in client_pieces]) for client_pieces in order]


def classes_per_client(labels: Rows, clients: int, classes: int, seed: int, shares: Shares | None = None) -> list[Rows]:
    """Each client holds exactly this many labels; the clients that hold a label share its examples.

    Clients get their labels one after another, always the labels with the fewest holders first, ties at random.

    Args:
        labels: (examples,) class numbers.
        clients: at least 1.
        classes: 1 .. number of labels; clients * classes must cover every label.
        seed: at least 0.
        shares: (clients,) in whose proportion clients share a label; None for equal ones, up to one example.

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
        # In random order, so that it is not always the same clients that get one example more.
        order = generator.permutation(holding)
        pieces = cut(rows, len(holding), None if shares is None else shares[order])
        for client, piece in zip(order, pieces, strict=True):
            parts[client].append(piece)
    return [np.concatenate(pieces) for pieces in parts]


def dirichlet(
    labels: Rows,
    clients: int,
    concentration: float,
    seed: int,
    shares: Shares | None = None,
    within: tuple[float, Sequence[Rows]] | None = None,
) -> list[Rows]:
    """Clients whose label mixtures are drawn from a symmetric Dirichlet distribution.

    Clients take their examples one after another, in random order; a label that has run out is dropped from the
    mixtures of later clients. A large concentration is iid; near 0 a client has one label.

    Args:
        labels: (examples,) class numbers.
        clients: 1 .. examples.
        concentration: above 0; of labels, or of groups of labels.
        seed: at least 0.
        shares: (clients,) of the examples; None for equal ones, up to one example.
        within: (concentration of the labels within a group, labels of each group), for mixtures of two levels; None
            for one level.

    Source: "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification" (Hsu, Qi,
    Brown 2019), with shares that use every example; two levels: Pachinko allocation in "Adaptive Federated
    Optimization" (Reddi et al. 2021).
    """
    _enough(labels, clients)
    _positive(concentration)
    generator = _generator(seed, 4)
    present = np.unique(labels)
    piles = [generator.permutation(np.flatnonzero(labels == label)) for label in present]
    left = np.array([len(pile) for pile in piles])
    if shares is None:
        sizes = np.full(clients, len(labels) // clients)
        sizes[generator.permutation(clients)[: len(labels) % clients]] += 1
    else:
        sizes = apportioned(len(labels), shares)
    parts: list[Rows] = [np.empty(0, dtype=np.int64)] * clients
    for client in generator.permutation(clients):
        if within is None:
            mixture = _one_level(drawn_mixture(generator, concentration, len(present)))
        else:
            mixture = _two_levels(generator, concentration, *within, present)
        counts = _draw(generator, mixture, left, int(sizes[client]))
        parts[client] = np.concatenate(
            [pile[n - count : n] for pile, n, count in zip(piles, left, counts, strict=True)]
        )
        left -= counts
    return parts


def dirichlet_of_labels(labels: Rows, clients: int, concentration: float, seed: int) -> list[Rows]:
    """Each label is spread over the clients by a draw from a symmetric Dirichlet distribution: sizes differ, too.

    A client without an example takes one from the largest client.

    Args:
        labels: (examples,) class numbers.
        clients: 1 .. examples.
        concentration: above 0.
        seed: at least 0.

    Source: "Federated Learning on Non-IID Data Silos: An Experimental Study" (Li et al. 2022), label skew by
    distribution, which draws again until every client has ten examples.
    """
    _enough(labels, clients)
    _positive(concentration)
    generator = _generator(seed, 9)
    parts: list[list[Rows]] = [[] for _ in range(clients)]
    for label in np.unique(labels):
        rows = generator.permutation(np.flatnonzero(labels == label))
        ends = np.rint(np.cumsum(drawn_mixture(generator, concentration, clients)) * len(rows)).astype(np.int64)
        ends[-1] = len(rows)
        for client in np.flatnonzero(np.diff(ends, prepend=0)):
            parts[client].append(rows[ends[client - 1] if client else 0 : ends[client]])
    whole = [np.concatenate([np.empty(0, np.int64), *pieces]) for pieces in parts]
    largest = [(-len(part), client) for client, part in enumerate(whole) if len(part) > 1]
    heapq.heapify(largest)
    for client in np.flatnonzero([not len(part) for part in whole]):
        size, giver = heapq.heappop(largest)
        whole[client], whole[giver] = whole[giver][size:][:1], whole[giver][1:]
        if size + 1 < -1:
            heapq.heappush(largest, (size + 1, giver))
    return whole


Mixture = Callable[[NDArray[np.bool_]], Shares]
"""Maps (labels,) True for labels with examples left, to weights of the labels, 0 for the others."""


def _one_level(mixture: Shares) -> Mixture:
    return lambda remaining: np.where(remaining, mixture, 0.0)


def _two_levels(
    generator: np.random.Generator, concentration: float, inner: float, groups: Sequence[Rows], present: Rows
) -> Mixture:
    """Replaces labels that have run out by others of their group, and a group by other groups only if it is empty."""
    places = [np.searchsorted(present, np.intersect1d(group, present)) for group in groups]
    places = [group for group in places if len(group)]
    outer = drawn_mixture(generator, concentration, len(places))
    mixtures = [drawn_mixture(generator, inner, len(group)) for group in places]

    def weights(remaining: NDArray[np.bool_]) -> Shares:
        result = np.zeros(len(remaining))
        for share, group, mixture in zip(outer, places, mixtures, strict=True):
            left = np.where(remaining[group], mixture, 0.0)
            if left.sum() <= 0:
                left = remaining[group].astype(np.float64)
            if left.sum() > 0:
                result[group] = share * left / left.sum()
        return result

    return weights


def _draw(generator: np.random.Generator, mixture: Mixture, left: Rows, size: int) -> Rows:
    """How many examples to take of each label: `size` draws from the mixture; once it runs out, one other label."""
    counts = np.zeros_like(left)
    while (missing := size - int(counts.sum())) > 0:
        room = left - counts
        weights = mixture(room > 0)
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
    drawn = np.concatenate(
        [
            generator.permutation(rows)[: round(fraction * len(rows))]
            for rows in (np.flatnonzero(labels == label) for label in np.unique(labels))
        ]
    )
    return _apart(drawn, len(labels))


def natural(clients: Rows) -> ClientRows:
    """One part for each client that has examples, in ascending order of clients and rows.

    Args:
        clients: (examples,) client id of each example, in any order.

    Examples:
        >>> [part.tolist() for part in natural(np.array([7, 3, 7, 3, 9]))]
        [[1, 3], [0, 2], [4]]
    """
    ends = _ends(clients)
    if ends is None:
        return ClientRows(np.argsort(clients, kind="stable"), np.unique(clients, return_counts=True)[1])
    return ClientRows(every_row(len(clients)), np.diff(ends, prepend=0))


def every_row(count: int) -> Rows:
    """The rows 0 .. count - 1, in one shared, read-only array."""
    rows = _EVERY_ROW.get(count)
    if rows is None:
        rows = _EVERY_ROW[count] = np.arange(count)
        rows.flags.writeable = False
    return rows


def all_in_order(rows: Rows) -> bool:
    """Whether rows are 0, 1, 2 ..."""
    if rows is _EVERY_ROW.get(len(rows)):
        return True
    ends = len(rows) == 0 or (rows[0] == 0 and rows[-1] == len(rows) - 1)
    pieces = (rows[start : start + _PIECE] for start in range(0, len(rows), _PIECE))
    return bool(ends) and all(
        np.array_equal(piece, np.arange(number * _PIECE, number * _PIECE + len(piece)))
        for number, piece in enumerate(pieces)
    )


def taken(values: NDArray[Any], rows: Rows) -> NDArray[Any]:
    """values[rows]; the values themselves, without a copy, if these are all rows in order."""
    return values if len(values) == len(rows) and all_in_order(rows) else np.asarray(values[rows])


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
    chosen = [
        generator.permutation(part)[: min(count, len(part) - 1)] for part, count in zip(parts, counts, strict=True)
    ]
    return _apart(np.concatenate([np.empty(0, dtype=np.int64), *chosen]), len(clients))


def choose(clients: Rows, count: int, seed: int) -> Rows:
    """Draws `count` of the clients, in ascending order; with the same seed, a smaller draw is a subset of a larger one.

    Args:
        clients: (clients,) distinct client ids.
        count: 0 .. clients.
        seed: at least 0.
    """
    return np.sort(_generator(seed, 7).permutation(clients)[:count])


def _apart(rows: Rows, count: int) -> tuple[Rows, Rows]:
    """(rows set aside, rows kept), both ascending."""
    marks = np.zeros(count, np.bool_)
    marks[rows] = True
    return np.flatnonzero(marks), np.flatnonzero(~marks)


def _ends(clients: NDArray[Any]) -> Rows | None:
    """Where the rows of each client end, looked at in pieces; None if the ids do not ascend."""
    ends = [np.empty(0, np.int64)]
    for start in range(0, len(clients), _PIECE):
        piece = clients[start : start + _PIECE + 1]
        if (piece[1:] < piece[:-1]).any():
            return None
        ends.append(np.flatnonzero(piece[1:] != piece[:-1]) + start + 1)
    return np.concatenate([*ends, [len(clients)] if len(clients) else []]).astype(np.int64)


def _enough(labels: Rows, clients: int) -> None:
    if not 1 <= clients <= len(labels):
        raise ValueError(
            f"clients must be in [1, {len(labels)}], one training example for each at least, got clients={clients}"
        )


def _positive(concentration: float) -> None:
    if not concentration > 0:
        raise ValueError(f"the concentration of dirichlet must be above 0, got dirichlet={concentration:g}")


def _generator(seed: int, purpose: int) -> np.random.Generator:
    return np.random.default_rng([seed, purpose])
