"""How many packs fit on the nodes of a Ray cluster."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from driftline.errors import InvalidSpec


@dataclass(frozen=True)
class Node:
    """CPU cores and GPUs that a node has or a pack needs."""

    cpus: float
    gpus: float = 0.0

    @classmethod
    def of(cls, resources: Mapping[str, float]) -> Node:
        """A node from Ray's description of its resources."""
        return cls(float(resources.get("CPU", 0.0)), float(resources.get("GPU", 0.0)))

    def __str__(self) -> str:
        return f"{self.cpus:g} CPU" + (f" and {self.gpus:g} GPU" if self.gpus else "")

    def room(self, cpus: float, gpus: float) -> int:
        """How many packs that need these CPU cores and GPUs fit.

        A share comes from a single GPU, so two shares of 0.6 need two GPUs.

        Examples:
            >>> Node(8, 2).room(1, 0.5), Node(8, 2).room(1, 0.6), Node(8, 2).room(3, 0)
            (4, 2, 2)
        """
        fits = [_times(self.cpus, cpus)]
        if gpus >= 1:
            fits.append(_times(self.gpus, gpus))
        elif gpus > 0:
            fits.append(math.floor(self.gpus) * _times(1.0, gpus))
        return min(fits)


def slots(nodes: Sequence[Node], cpus: float, gpus: float, span: int = 1) -> int:
    """How many packs fit at once.

    Args:
        nodes: The nodes.
        cpus: CPU cores that a pack needs on each of its nodes.
        gpus: GPUs that it needs there.
        span: How many different nodes each pack needs.

    Examples:
        >>> slots([Node(4), Node(1), Node(1)], 1, 0), slots([Node(4), Node(1), Node(1)], 1, 0, span=2)
        (6, 2)
    """
    rooms = [node.room(cpus, gpus) for node in nodes]
    packs = sum(rooms)
    while (fit := sum(min(room, packs) for room in rooms) // span) < packs:  # a pack takes each node once
        packs = fit
    return packs


def require(nodes: Sequence[Node], cpus: float, gpus: float, span: int = 1) -> None:
    """Checks that a pack fits; the arguments are those of `slots`.

    Raises:
        InvalidSpec: It does not; the message says what the nodes have.
    """
    if slots(nodes, cpus, gpus, span):
        return
    kinds = Counter(str(node) for node in nodes)
    have = "; ".join(f"{count} x {kind}" if count > 1 else kind for kind, count in kinds.items()) or "nothing"
    if slots(nodes, cpus, gpus):
        key = "resources.nodes"
    else:
        key = "resources.cpus" if slots(nodes, 0.001, gpus) else "resources.gpu"
    where = "one node" if span == 1 else f"each of {span} nodes"
    raise InvalidSpec(key, f"a pack needs {Node(cpus, gpus)} on {where}, the nodes have {have}: ask for less")


def _times(have: float, need: float) -> int:
    return math.floor(have / need + 1e-9)
