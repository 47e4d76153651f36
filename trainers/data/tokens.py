"""Texts as tokens: bytes, characters, or byte pairs; and the windows of tokens that are the examples of a task."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.data import byte_pairs
from trainers.data.partitions import Rows
from trainers.data.text_sources import TextPlace

VOCABULARIES = ("bytes", "characters", "bpe")
_PIECE = 1 << 20  # characters numbered at once


@dataclass(frozen=True, eq=False)
class EncodedTexts:
    """Encoded texts, one after another.

    Args:
        numbers: (tokens,) of the shortest type that holds the vocabulary.
        offsets: (sources + 1,) first token of each source, then the number of tokens.
        lengths: (vocabulary,) bytes of each token.
        names: names of the sources.
        sha256: hash of the vocabulary and the tokens.
        server: index of the first of the server's own sources, which come last; the number of sources without any.
    """

    numbers: NDArray[Any]
    offsets: Rows
    lengths: NDArray[np.int64]
    names: Sequence[str]
    sha256: str
    server: int


@dataclass(frozen=True, eq=False)
class Windows:
    """Adjacent windows of `context` tokens within each source; the target of a token is the token after it.

    Args:
        starts: (windows,) index of the first token.
        owners: (windows,) index of the source.
        held_out: (windows,) True for the last windows of each source, which are for testing.
        context: number of targets in a window.
    """

    starts: Rows
    owners: Rows
    held_out: NDArray[np.bool_]
    context: int

    @staticmethod
    def of(offsets: Rows, context: int, test_fraction: float) -> Windows:
        """The windows of all sources. A source too short for a window has none; any other trains on at least one.

        Args:
            offsets: (sources + 1,) as in `EncodedTexts`.
            context: number of targets in a window.
            test_fraction: share of each source's windows for testing, rounded down.
        """
        counts = np.maximum(np.diff(offsets) - 1, 0) // context
        owners = np.repeat(np.arange(len(counts)), counts)
        places = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        tested = (counts * test_fraction).astype(np.int64)
        return Windows(offsets[owners] + places * context, owners, places >= (counts - tested)[owners], context)

    def inputs(self, tokens: EncodedTexts, rows: Rows) -> NDArray[Any]:
        """(rows, context) tokens."""
        return np.asarray(tokens.numbers[self.starts[rows, None] + np.arange(self.context)])

    def targets(self, tokens: EncodedTexts, rows: Rows) -> NDArray[Any]:
        """(rows, context) the token after each of the inputs."""
        return np.asarray(tokens.numbers[self.starts[rows, None] + np.arange(1, self.context + 1)])


def load(
    texts: TextPlace, server: TextPlace | None, vocabulary: str, size: int | None, trained_on: float, path: str
) -> EncodedTexts:
    """Encodes texts. The two latest results are kept in memory until the texts change.

    Args:
        texts: where the texts are.
        server: where the server's own texts are; None if it has none.
        vocabulary: one of `VOCABULARIES`.
        size: number of tokens of a byte-pair vocabulary; None for other vocabularies.
        trained_on: share of each text, from its beginning, that a byte-pair vocabulary is trained on.
        path: dotted path of the task.

    Raises:
        SpecError: a text cannot be used.
    """
    stamps = texts.stamp(), None if server is None else server.stamp()
    return _load(texts, server, stamps, vocabulary, size, trained_on, path)


@lru_cache(maxsize=2)
def _load(
    texts: TextPlace,
    server: TextPlace | None,
    stamps: object,
    vocabulary: str,
    size: int | None,
    trained_on: float,
    path: str,
) -> EncodedTexts:
    sources = texts.read()
    first = len(sources)
    sources += [] if server is None else server.read()
    if vocabulary == "bytes":
        encoded: list[NDArray[Any]] = [np.frombuffer(source.text, np.uint8) for source in sources]
        lengths = np.ones(256, np.int64)
    elif vocabulary == "characters":
        encoded, lengths = _characters([source.text.decode() for source in sources])
    else:
        assert size is not None
        decoded = [source.text.decode() for source in sources]
        tokenizer = byte_pairs.train((text[: _share(text, trained_on)] for text in decoded), size, path)
        kind = _shortest(size)
        encoded = [byte_pairs.encode(tokenizer, text).astype(kind) for text in decoded]
        lengths = byte_pairs.lengths(tokenizer)
    offsets = np.cumsum([0, *map(len, encoded)])
    numbers = np.concatenate(encoded)
    digest = hashlib.sha256(lengths.tobytes())
    digest.update(offsets.tobytes())
    digest.update(numbers.tobytes())
    return EncodedTexts(numbers, offsets, lengths, [source.name for source in sources], digest.hexdigest(), first)


def _characters(texts: Sequence[str]) -> tuple[list[NDArray[Any]], NDArray[np.int64]]:
    """(numbers of the characters of each text, by their code points; bytes of each in UTF-8)."""
    characters = sorted(set[str]().union(*texts))
    kind = _shortest(len(characters))
    table = np.zeros(max(map(ord, characters)) + 1, kind)
    table[[ord(character) for character in characters]] = np.arange(len(characters))

    def numbered(text: str) -> NDArray[Any]:
        pieces = (text[start : start + _PIECE] for start in range(0, len(text), _PIECE))
        return np.concatenate([table[np.frombuffer(piece.encode("utf-32-le"), np.uint32)] for piece in pieces])

    return [numbered(text) for text in texts], np.array([len(character.encode()) for character in characters])


def _shortest(tokens: int) -> np.dtype[Any]:
    """The shortest type that torch indexes with, for numbers below `tokens`."""
    return np.dtype(np.uint8 if tokens <= 2**8 else np.int16 if tokens <= 2**15 else np.int32)


def _share(text: str, share: float) -> int:
    return max(1, int(len(text) * share))
