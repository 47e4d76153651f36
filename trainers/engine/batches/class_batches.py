"""Batches drawn by class: as many examples of each of a client's classes as the batch size allows.

Each class of a client is passed over by itself, in a new order each time, and a batch takes the classes in turn. With a
batch size of k times the client's classes, a batch has exactly k examples of each (k shots), and consecutive batches of
a round share no example while a class has enough.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trainers.engine import randomness

Integers = NDArray[np.int64]


class ClassBatches:
    """The classes of all clients, from which batches are drawn.

    Args:
        offsets: (clients,) first row of each client.
        sizes: (clients,) rows of each client.
        labels: (rows,) class of each row.
    """

    def __init__(self, offsets: Integers, sizes: Integers, labels: NDArray[np.integer]) -> None:
        owner = np.repeat(np.arange(len(sizes)), sizes)
        positions = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        example_labels = labels[np.repeat(offsets, sizes) + positions]
        order = np.lexsort((example_labels, owner))
        self._places = positions[order]  # positions of each client's examples, class by class
        begins = np.flatnonzero(np.diff(owner, prepend=-1) | np.diff(example_labels[order], prepend=0))
        self._first = begins  # start of each class of each client among these positions
        self._counts = np.diff(begins, append=len(owner))
        self._classes = np.bincount(owner[begins], minlength=len(sizes))
        self._start = np.cumsum(self._classes) - self._classes  # each client's first class

    def draw(self, base: int, clients: Integers, sizes: Integers, steps: int, batch_size: int) -> Integers:
        """The batches of the first `steps` steps; a client with at most `batch_size` examples uses all of them.

        Args:
            base: key of the round.
            clients: (M,) client ids.
            sizes: (M,) number of examples of each client.
            steps: number of local steps.
            batch_size: examples per step.

        Returns:
            (M, steps, batch_size) positions within the client's examples.
        """
        picked = np.empty((len(clients), steps, batch_size), np.int64)
        small = sizes <= batch_size
        picked[small] = np.minimum(np.arange(batch_size), sizes[small, None, None] - 1)
        for count in np.unique(self._classes[clients[~small]]).tolist():
            rows = np.flatnonzero(~small & (self._classes[clients] == count))
            drawn = self._drawn(base, clients[rows], count, steps * batch_size)
            picked[rows] = drawn.reshape(-1, steps, batch_size)
        return picked

    def _drawn(self, base: int, clients: Integers, count: int, length: int) -> Integers:
        """(M, length) positions of clients that have `count` classes each."""
        turn = np.arange(length)
        begun = randomness.positions(base, np.full(len(clients), count), clients)
        which = self._start[clients][:, None] + (turn + begun[:, None]) % count
        classes = (self._start[clients][:, None] + np.arange(count)).reshape(-1)
        passed = randomness.repeated_passes(base, classes, self._counts[classes], -(-length // count))
        passed = passed.reshape(len(clients), count, -1)
        positions = passed[np.arange(len(clients))[:, None], which - self._start[clients][:, None], turn // count]
        return np.asarray(self._places[self._first[which] + positions])
