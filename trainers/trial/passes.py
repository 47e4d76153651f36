"""How the examples of clients are cut into mini-batches: how many each batch holds, and how many a client has used.

A trial with local_epochs takes E ceil(n / B) steps on a client of n examples, with B = batch_size: a pass ends with a
batch of the examples that are left, n - B floor(n / B), unless these are dropped. With local_steps all batches of a
client are equal, and a batch may span two passes. In both, a client with at most B examples has full batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

_ROUNDING = 1e-12  # relative; above the rounding error of a share times a number

PassEnd = Literal["joined", "kept", "dropped"]
"""What becomes of the examples that are left at the end of a pass: they begin the first batch of the next pass, are a
batch of their own, or are dropped (but not if they are the whole pass)."""


def part_of(work: NDArray[np.float64], steps: NDArray[np.int64] | int) -> NDArray[np.int64]:
    """The number of steps that clients take: the share `work` of the planned `steps`, rounded up, and at least 1.

    Examples:
        >>> part_of(np.array([1.0, 0.5, 0.0]), 5).tolist()
        [5, 3, 1]
        >>> part_of(np.array([0.07, 0.14]), 100).tolist()  # whose products in floating point are above 7 and 14
        [7, 14]
    """
    return np.maximum(np.ceil(work * steps * (1 - _ROUNDING)), 1).astype(np.int64)


@dataclass(frozen=True)
class Passes:
    """The mini-batches of some clients.

    Args:
        sizes: (M,) examples of each client.
        batch_size: B.
        end: what becomes of the examples that are left at the end of a pass.
        repeats: whether a batch holds `batch_size` examples of smaller clients too, drawn with replacement; not if
            passes end.
    """

    sizes: NDArray[np.int64]
    batch_size: int
    end: PassEnd = "joined"
    repeats: bool = False

    @property
    def ends(self) -> bool:
        """Whether a pass ends with a batch."""
        return self.end != "joined"

    @cached_property
    def steps(self) -> NDArray[np.int64]:
        """(M,) batches of one pass over all examples of a client."""
        whole = self.sizes // self.batch_size if self.end == "dropped" else -(-self.sizes // self.batch_size)
        return np.maximum(whole, 1)

    @property
    def in_pass(self) -> NDArray[np.int64]:
        """(M,) mini-batches that hold all examples of a client."""
        return -(-self.sizes // self.batch_size)

    @cached_property
    def largest(self) -> NDArray[np.int64]:
        """(M,) examples of each client's largest batch."""
        if self.repeats and not self.ends:
            return np.full_like(self.sizes, self.batch_size)
        return np.minimum(self.sizes, self.batch_size)

    def counts(self, client: NDArray[np.int64], step: NDArray[np.int64]) -> NDArray[np.int64]:
        """The examples of some batches.

        Args:
            client: indices of the clients among all M, broadcast against `step`.
            step: steps of the round, from 0.
        """
        largest = self.largest[client]
        if not self.ends:
            return np.broadcast_to(largest, np.broadcast_shapes(np.shape(client), np.shape(step)))
        left = self.sizes[client] - step % self.steps[client] * self.batch_size
        return np.asarray(np.minimum(left, largest))

    def examples(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """The examples in each client's first batches, counted as often as a batch holds them.

        Args:
            steps: (..., M) numbers of batches; the result has the same shape.
        """
        if not self.ends:
            return steps * self.largest
        passed, further = np.divmod(steps, self.steps)
        used = np.minimum(self.sizes, self.steps * self.batch_size)
        return np.asarray(passed * used + np.minimum(further * self.batch_size, used))
