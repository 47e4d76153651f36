"""Clients in parts that fit into memory."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

_BYTES = 1 << 26  # of models or gradients held at once
_EXAMPLES = 1 << 15  # computed at once, over all trials


def client_chunks(
    clients: Iterable[int], examples: NDArray[np.int64] | None, trials: int, client_bytes: int
) -> list[NDArray[np.int64]]:
    """Cuts clients, in order, into parts that fit into memory, of at least one client each.

    Args:
        clients: Client ids.
        examples: Each client's number of examples, (M,); None counts as one each.
        trials: Number of trials.
        client_bytes: Memory for the models or gradients of a client, over all trials.
    """
    most = max(1, _BYTES // client_bytes)
    chunks: list[list[int]] = [[]]
    total = 0
    for client in clients:
        count = trials * (1 if examples is None else int(examples[client]))
        if chunks[-1] and (len(chunks[-1]) >= most or total + count > _EXAMPLES):
            chunks.append([])
            total = 0
        chunks[-1].append(client)
        total += count
    return [np.array(chunk, np.int64) for chunk in chunks]
