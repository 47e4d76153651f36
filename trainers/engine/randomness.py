"""Randomness as a function of (seed, round, client, step), never of history.

Every number is the hash of its own coordinates (splitmix64 finalizer, applied once per coordinate), so cohorts, batches
and noise do not depend on other clients or trials, nor on earlier draws. All trials of a study share them (common
random numbers), and a restarted trial draws the same numbers as an uninterrupted one.
"""

from __future__ import annotations

from enum import IntEnum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

_WORD = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_INDEX_BITS = 20  # for the position of an example within its client
_HASH_BITS = 24
_LARGE_INDEX_BITS = 32  # for a client with more examples than 20 bits can count
_LARGE_HASH_BITS = 32
_PART = 4  # a client with at least this many times the examples of a round sorts only the examples of the round
_LARGE_CLIENT = 1 << 12  # examples, from which drawing batches takes time by the batches' size, not the client's
_TURNS = 8  # rounds of the Feistel network, whose permutations are then as good as random from _LARGE_CLIENT on
_LARGE_POPULATION = 1 << 16  # clients, above which drawing a cohort takes time by its size, not the population's


class Purpose(IntEnum):
    """What random numbers are drawn for. Different purposes never share random numbers."""

    COHORT = 1
    BATCH = 2
    SHUFFLE = 3
    NOISE = 4
    VARIATION = 5
    START = 6
    CENTRAL = 7
    HELD_OUT = 8
    CLASSES = 9
    STRAGGLERS = 10
    EPOCHS = 11


def key(seed: int, round_index: int, purpose: Purpose) -> int:
    """The 64-bit key of one purpose in one round.

    Args:
        seed: seed of the trial, any integer.
        round_index: from 0.
        purpose: what the numbers are drawn for.
    """
    word = 0
    for coordinate in (seed, round_index, int(purpose)):
        word = _mix_word((word + (coordinate + 1) * _GOLDEN) & _WORD)
    return word


def hashed(base: int, *coordinates: NDArray[np.int64]) -> NDArray[np.uint64]:
    """64 random bits for every combination of coordinates. The coordinates broadcast against one another.

    Args:
        base: from `key`.
        coordinates: integer arrays, at least one.
    """
    words = np.full(1, base, np.uint64)
    for coordinate in coordinates:
        words = _mix_(words + (coordinate.astype(np.uint64) + 1) * _GOLDEN)
    return words


def cohort(
    seed: int, round_index: int, clients: int, clients_per_round: int, purpose: Purpose = Purpose.COHORT
) -> NDArray[np.int64]:
    """The clients of a round, drawn without replacement, in ascending order.

    These are the clients with the smallest random bits or, for at most half of over 65,536 clients, the first distinct
    ones of a random sequence. Of a round's cohorts up to half of all clients, a smaller one is part of a larger one.

    Args:
        seed: seed of the trial.
        round_index: from 0.
        clients: size of the population.
        clients_per_round: 1 .. clients; if it equals `clients`, nothing is drawn.
        purpose: COHORT for the clients that train, HELD_OUT for those that an evaluation measures.

    Returns:
        (clients_per_round,) client ids.
    """
    if clients_per_round == clients:
        return np.arange(clients, dtype=np.int64)
    base = key(seed, round_index, purpose)
    if clients > _LARGE_POPULATION and clients_per_round <= clients // 2:
        return np.sort(_first_different(base, clients, clients_per_round))
    words = hashed(base, np.arange(clients, dtype=np.int64))
    largest = np.partition(words, clients_per_round - 1)[clients_per_round - 1]
    chosen = np.flatnonzero(words <= largest)
    if len(chosen) > clients_per_round:  # of equal words, the first ones count
        chosen = np.sort(chosen[np.argsort(words[chosen], kind="stable")[:clients_per_round]])
    return chosen


def stragglers(
    seed: int, round_index: int, clients: NDArray[np.int64], count: int
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """The clients of a cohort that take a part of their work, and how much.

    Args:
        seed: seed of the trial.
        round_index: from 0.
        clients: (M,) client ids.
        count: number of stragglers, those of the clients with the smallest random bits.

    Returns:
        ((M,) whether a client straggles, (M,) uniform number in [0, 1) of each client).
    """
    base = key(seed, round_index, Purpose.STRAGGLERS)
    words = hashed(base, clients[:, None], np.arange(2, dtype=np.int64))
    straggles = np.zeros(len(clients), bool)
    straggles[np.lexsort((clients, words[:, 0]))[:count]] = True
    return straggles, _uniform(words[:, 1])


def with_replacement(
    base: int, clients: NDArray[np.int64], sizes: NDArray[np.int64], steps: int, batch_size: int
) -> NDArray[np.int64]:
    """Examples drawn independently and uniformly, for the first `steps` steps of each client.

    Args:
        base: key of the round.
        clients: (M,) client ids.
        sizes: (M,) number of examples of each client.
        steps: number of local steps.
        batch_size: examples per step.

    Returns:
        (M, steps, batch_size) positions within the client's examples.
    """
    step = np.arange(steps, dtype=np.int64)[:, None]
    slot = np.arange(batch_size, dtype=np.int64)
    return positions(base, sizes[:, None, None], clients[:, None, None], step, slot)


def positions(base: int, sizes: NDArray[np.int64], *coordinates: NDArray[np.int64]) -> NDArray[np.int64]:
    """Independent uniform integers from 0 to `sizes` - 1, one for every combination of coordinates.

    Args:
        base: from `key`.
        sizes: at most 2^32; broadcasts against the coordinates.
        coordinates: integer arrays, at least one.
    """
    return (((hashed(base, *coordinates) >> 32) * sizes.astype(np.uint64)) >> 32).astype(np.int64)


def shuffled(
    base: int, clients: NDArray[np.int64], sizes: NDArray[np.int64], steps: int, batch_size: int
) -> NDArray[np.int64]:
    """Consecutive batches of each client's examples. Every pass is shuffled anew; a batch may span two passes.

    A round begins a new pass, so that draws are without replacement within a round, but not over the rounds.

    A batch of a client with at most `batch_size` examples holds all of them; the last one fills it up.

    Args:
        base: key of the round.
        clients: (M,) client ids.
        sizes: (M,) number of examples of each client, at most 2^32.
        steps: number of local steps.
        batch_size: examples per step.

    Returns:
        (M, steps, batch_size) positions within the client's examples.
    """
    small, large = sizes <= batch_size, sizes > 1 << _INDEX_BITS
    if not (small | large).any():
        return repeated_passes(base, clients, sizes, steps * batch_size).reshape(-1, steps, batch_size)
    picked = np.empty((len(clients), steps, batch_size), np.int64)
    picked[small] = np.minimum(np.arange(batch_size), sizes[small, None, None] - 1)
    for index in np.flatnonzero(large & ~small).tolist():
        passes = _equal_passes(base, clients[[index]], int(sizes[index]), steps * batch_size)
        picked[index] = passes.reshape(steps, batch_size)
    rest = ~(small | large)
    if rest.any():
        picked[rest] = shuffled(base, clients[rest], sizes[rest], steps, batch_size)
    return picked


def in_epochs(
    base: int, clients: NDArray[np.int64], sizes: NDArray[np.int64], steps: int, batch_size: int, first: int
) -> NDArray[np.int64]:
    """Consecutive batches of each client's epochs, which are permutations of its examples, one after the other.

    A batch of a client with at most `batch_size` examples holds all of them, as in `shuffled`.

    Args:
        base: key of the trial.
        clients: (M,) client ids.
        sizes: (M,) number of examples of each client, at most 2^32.
        steps: number of local steps.
        batch_size: examples per step.
        first: position of the first example, from 0; position p of a client with n examples is place p % n of epoch
            p // n.

    Returns:
        (M, steps, batch_size) positions within the client's examples.
    """
    length = steps * batch_size
    picked = np.empty((len(clients), length), np.int64)
    large = sizes >= max(_LARGE_CLIENT, batch_size + 1)
    if large.any():
        large_sizes = sizes[large, None]
        epoch, position = np.divmod(first + np.arange(length), large_sizes)
        picked[large] = _permuted(hashed(base, clients[large, None], epoch), position, large_sizes)
    for size in np.unique(sizes[~large]).tolist():
        equal = sizes == size
        if size > batch_size:
            picked[equal] = _equal_passes(base, clients[equal], size, length, first)
        else:
            picked[equal] = np.tile(np.minimum(np.arange(batch_size), size - 1), steps)
    return picked.reshape(len(clients), steps, batch_size)


def repeated_passes(base: int, clients: NDArray[np.int64], sizes: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Permutations of each client's examples, one after the other.

    Args:
        base: key of the round.
        clients: (M,) client ids.
        sizes: (M,) number of examples of each client, at most 2^32.
        length: positions of each client.

    Returns:
        (M, length) positions within the client's examples.
    """
    if (sizes == sizes[0]).all():
        return _equal_passes(base, clients, int(sizes[0]), length)
    counts = -(-length // sizes)
    taken = sizes * counts
    starts = np.cumsum(taken) - taken
    return np.asarray(permutations(base, clients, sizes, counts)[starts[:, None] + np.arange(length)])


def permutations(
    base: int, clients: NDArray[np.int64], sizes: NDArray[np.int64], passes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Permutations of each client's examples, as `shuffled` passes over them.

    Args:
        base: key of the round.
        clients: (M,) client ids.
        sizes: (M,) number of examples of each client, at most 2^32.
        passes: (M,) number of permutations of each client.

    Returns:
        Positions within the client's examples, one permutation after the other and one client after the other. One sort
        makes all of them: the sort key of an example is (client and pass, random bits, example).
    """
    if (sizes == sizes[0]).all() and (passes == passes[0]).all():
        return _equal_passes(base, clients, int(sizes[0]), int(passes[0] * sizes[0])).reshape(-1)
    large = sizes > 1 << _INDEX_BITS
    if large.any() or passes.sum() > 1 << (64 - _HASH_BITS - _INDEX_BITS):
        alone = np.flatnonzero(large[1:] | large[:-1]) + 1
        edges = [0, *(alone.tolist() or [len(clients) // 2]), len(clients)]
        parts = [slice(start, stop) for start, stop in pairwise(edges)]
        return np.concatenate([permutations(base, clients[part], sizes[part], passes[part]) for part in parts])
    segment_sizes = np.repeat(sizes, passes)
    segment = np.repeat(np.arange(len(segment_sizes)), segment_sizes)
    example = np.arange(len(segment)) - np.repeat(np.cumsum(segment_sizes) - segment_sizes, segment_sizes)
    owner = np.repeat(np.arange(len(clients)), passes)
    number = np.arange(len(owner)) - np.repeat(np.cumsum(passes) - passes, passes)
    segment_key = hashed(base, clients[owner], number)
    words = _mix_(segment_key[segment] + (example.astype(np.uint64) + 1) * _GOLDEN)
    order = segment.astype(np.uint64)
    order <<= _HASH_BITS + _INDEX_BITS
    order |= _keys_(words, example, _HASH_BITS, _INDEX_BITS)
    order.sort()
    return _examples(order, _INDEX_BITS)


def normals(base: int, clients: NDArray[np.int64], steps: int, dimension: int) -> NDArray[np.float64]:
    """Standard normal numbers (Box-Muller), for the first `steps` steps of each client.

    Args:
        base: key of the round.
        clients: (M,) client ids.
        steps: number of local steps.
        dimension: numbers per step.

    Returns:
        (M, steps, dimension).
    """
    step = np.arange(steps, dtype=np.int64)[:, None]
    pair = np.arange((dimension + 1) // 2, dtype=np.int64)
    radius = np.sqrt(-2.0 * np.log1p(-_uniform(hashed(base, clients[:, None, None], step, 2 * pair))))
    angle = 2.0 * np.pi * _uniform(hashed(base, clients[:, None, None], step, 2 * pair + 1))
    draws = np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1)
    return draws.reshape(len(clients), steps, -1)[..., :dimension]


def _first_different(base: int, below: int, count: int) -> NDArray[np.int64]:
    """The first `count` different numbers of a random sequence in [0, below); count is at most below / 2."""
    drawn = np.empty(0, np.int64)
    while True:
        more = np.arange(len(drawn), len(drawn) + count + count // 2 + 8, dtype=np.int64)
        drawn = np.concatenate([drawn, (hashed(base, more) % below).astype(np.int64)])
        numbers, first = np.unique(drawn, return_index=True)
        if len(numbers) >= count:
            return np.asarray(drawn[np.sort(first)[:count]])


def _equal_passes(base: int, clients: NDArray[np.int64], size: int, length: int, first: int = 0) -> NDArray[np.int64]:
    """`repeated_passes` from position `first` on, for clients of equal size, with one sort for each permutation."""
    large = size > 1 << _INDEX_BITS
    hash_bits, index_bits = (_LARGE_HASH_BITS, _LARGE_INDEX_BITS) if large else (_HASH_BITS, _INDEX_BITS)
    begun, position = divmod(first, size)
    number, example = np.arange(begun, -(-(first + length) // size))[:, None], np.arange(size)
    order = _keys_(hashed(base, clients[:, None, None], number, example), example, hash_bits, index_bits)
    if size >= _PART * length and position == 0:
        order.partition(length - 1)
        order = order[..., :length]
    order.sort()
    return _examples(order, index_bits).reshape(len(clients), -1)[:, position : position + length]


def _permuted(words: NDArray[np.uint64], places: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Random permutations, computed at some places only: a Feistel network on rows and columns, with cycle walking.

    Args:
        words: random bits of each place's permutation.
        places: from 0 to the size - 1.
        sizes: sizes of the permuted sets; broadcast against the places.

    Returns:
        Where each place goes.
    """
    side = np.ceil(np.sqrt(sizes)).astype(np.int64)
    table = side, -(-sizes // side), sizes
    rows, columns, ends = (np.broadcast_to(array, places.shape).astype(np.uint64) for array in table)
    permuted, outside = places.astype(np.uint64), np.ones(places.shape, bool)
    while outside.any():
        word, count, width = words[outside], rows[outside], columns[outside]
        row, column = np.divmod(permuted[outside], width)
        for turn in range(_TURNS):
            coordinate = (column if turn % 2 else row) * _TURNS + turn
            drawn = _mix_(word + (coordinate + 1) * _GOLDEN) >> 32
            if turn % 2:
                row = (row + drawn) % count
            else:
                column = (column + drawn) % width
        permuted[outside] = row * width + column
        outside = permuted >= ends
    return permuted.astype(np.int64)


def _keys_(
    words: NDArray[np.uint64], example: NDArray[np.int64], hash_bits: int, index_bits: int
) -> NDArray[np.uint64]:
    """Sort keys (random bits, example), in place of the words."""
    words >>= 64 - hash_bits
    words <<= index_bits
    words |= example.astype(np.uint64)
    return words


def _examples(keys: NDArray[np.uint64], index_bits: int) -> NDArray[np.int64]:
    """The examples of sort keys."""
    return (keys & ((1 << index_bits) - 1)).astype(np.int64)


def _uniform(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Numbers in [0, 1) with 53 random bits."""
    return (words >> 11).astype(np.float64) * 2.0**-53


def _mix_(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    words ^= words >> 30
    words *= _FIRST
    words ^= words >> 27
    words *= _SECOND
    words ^= words >> 31
    return words


def _mix_word(word: int) -> int:
    word = ((word ^ (word >> 30)) * _FIRST) & _WORD
    word = ((word ^ (word >> 27)) * _SECOND) & _WORD
    return word ^ (word >> 31)
