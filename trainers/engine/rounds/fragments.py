"""Fragments: every round exchanges one part of the model, in turn, and the rest stays with each client until later.

Round r (from 0) of a trial with N fragments exchanges fragment p = r mod N, so that each is exchanged every N rounds. A
client holds u, the pseudo-gradients that it has not sent, initially 0. It starts where its last round ended:

    y_1 = x - client_lr u;   u <- u + the pseudo-gradient of the round
    the server receives u_p and steps: x_p and its optimizer's memory of p change, all else stays;   u_p <- 0

So a client keeps what it has learnt of the other fragments, and takes over what the server has made of the one that was
exchanged. The fragments are consecutive tensors of the model, cut so that they have about equal numbers. A client
receives the whole model before its first round, and before every other round the fragment of the one before.

Source: "Streaming DiLoCo with overlapping communication: Towards a Distributed Free Lunch" (Douillard et al. 2025),
algorithm 2 without overlap: there each fragment is exchanged every H steps, here H = N local_steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from trainers.engine.layout import Entry, Layout
from trainers.engine.rounds.server_state import Memory, State


@dataclass(frozen=True)
class Exchange:
    """What a round exchanges.

    Args:
        part: place of the fragment in the row of parameters.
        up: numbers that every client sends.
        down: numbers that every client receives before its local steps.
    """

    part: slice
    up: int
    down: int

    def spliced(self, values: Tensor, part: Tensor) -> Tensor:
        """Values (..., P) with `part` in place of the fragment."""
        spliced = values.clone()
        spliced[..., self.part] = part
        return spliced

    def alone(self, part: Tensor, like: Tensor) -> Tensor:
        """The fragment's values, and 0 elsewhere, shaped as `like`."""
        return self.spliced(torch.zeros_like(like), part)

    def only(self, old: State, new: State) -> State:
        """The state after a server step, from `old` to `new`, applied to the fragment alone."""
        server = {**new.optimizer_memory, "server": self._memory(old, new)}
        return replace(new, params=self.spliced(old.params, new.params[..., self.part]), optimizer_memory=server)

    def _memory(self, old: State, new: State) -> Memory:
        before, after = old.optimizer_memory["server"], new.optimizer_memory["server"]
        size = new.params.shape[-1]
        return {
            name: self.spliced(before[name], tensor[..., self.part]) if tensor.shape[-1] == size else tensor
            for name, tensor in after.items()
        }


@dataclass(frozen=True)
class Fragments:
    """The fragments of a model.

    Args:
        parts: place of each in the row of parameters.
        numbers: true numbers of each.
    """

    parts: tuple[slice, ...]
    numbers: tuple[int, ...]

    @staticmethod
    def of(layout: Layout, count: int) -> Fragments:
        """Cuts a model into `count` fragments, at most as many as it has tensors.

        Examples:
            >>> layout = Layout.of({"first": (20,), "bias": (4,), "second": (4, 4), "end": (1,)})
            >>> Fragments.of(layout, 2).numbers, Fragments.of(layout, 4).numbers
            ((20, 21), (20, 4, 16, 1))
        """
        left = list(layout.entries)
        groups = [_first_of(left, count - number) for number in range(count)]
        starts = [group[0].offset for group in groups]
        parts = tuple(slice(start, end) for start, end in zip(starts, [*starts[1:], layout.size], strict=True))
        return Fragments(parts, tuple(sum(entry.count for entry in group) for group in groups))

    def exchange(self, round_index: int) -> Exchange:
        """What a round (from 0) exchanges."""
        now, before = round_index % len(self.parts), (round_index - 1) % len(self.parts)
        return Exchange(self.parts[now], self.numbers[now], self.numbers[before] if round_index else sum(self.numbers))


def _first_of(left: list[Entry], groups: int) -> list[Entry]:
    """Takes the first of `groups` groups, as near as possible to an equal share; each later group is left a tensor."""
    share = sum(entry.count for entry in left) / groups
    taken = [left.pop(0)]
    total = taken[0].count
    while left and (groups == 1 or (len(left) >= groups and 2 * (share - total) >= left[0].count)):
        total += left[0].count
        taken.append(left.pop(0))
    return taken
