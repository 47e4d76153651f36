"""Texts of any length as inputs: the words of sentences, to predict one after the other, or bags of words."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainers.data.partitions import Rows
from trainers.errors import SpecError
from trainers.hyperparameters import join
from trainers.problem import PADDING

OTHERS = 4
"""Tokens before the words: padding 0, the beginning 1, the end 2 of a sentence, and 3 for unknown words."""

_BEGIN, _END, _UNKNOWN = 1, 2, 3
_MOST = 2**32  # bytes of bags, or of sentences


@dataclass(frozen=True)
class Words:
    """What a document says about its texts.

    Args:
        count: size of the vocabulary, the most frequent words.
        context: words of a sentence to predict; None makes bags of words.
    """

    count: int
    context: int | None = None


@dataclass(frozen=True, eq=False)
class Sentences:
    """Texts as numbers of words, one text after the other.

    Args:
        numbers: (words of all texts,) places in `known`.
        counts: (texts,) words of each.
        known: the distinct words, in the order in which they first occur.
    """

    numbers: NDArray[np.int32]
    counts: Rows
    known: Sequence[str]

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def shape(self) -> tuple[int, ...]:
        """(texts,)."""
        return (len(self),)

    @property
    def dtype(self) -> np.dtype[np.str_]:
        """Strings."""
        return np.dtype(np.str_)

    @classmethod
    def of(cls, texts: Iterable[str | Sequence[str]]) -> Sentences:
        """The words of texts, split at white space and otherwise as written; or of lists, without empty words."""
        places: dict[str, int] = {}
        numbers, counts = array("i"), array("q")
        for text in texts:
            words = text.split() if isinstance(text, str) else [word for word in text if word]
            numbers.extend([places.setdefault(word, len(places)) for word in words])
            counts.append(len(words))
        return cls(np.frombuffer(numbers, np.int32), np.frombuffer(counts, np.int64), tuple(places))


@dataclass(frozen=True, eq=False)
class Numbered:
    """Sentences as the examples of a task.

    Args:
        inputs: (examples, context) tokens, or (examples, words) shares of each text's words.
        targets: (examples, context) the next tokens, `PADDING` after the end; None for bags.
    """

    inputs: NDArray[np.int16 | np.int32 | np.float32]
    targets: NDArray[np.int16 | np.int32] | None


def numbered(parts: Sequence[Sentences], settings: Words, path: str) -> list[Numbered]:
    """The examples of each part.

    The vocabulary is the most frequent words of the first part, ties in the order in which they first occur. A
    sentence begins with a begin token, and ends with an end token if it has fewer than `context` words; words beyond
    `context` are left out. The shares in a bag are of all words of the text, known or unknown.

    Args:
        parts: training, then test examples.
        settings: what the document says.
        path: dotted path of the task.

    Raises:
        SpecError: there are no words, or the examples need too much memory.

    Examples:
        >>> [examples] = numbered([Sentences.of(["to be or not to be", "to do"])], Words(2, 4), "task")
        >>> examples.inputs
        array([[1, 4, 5, 3],
               [1, 4, 3, 0]], dtype=int16)
        >>> examples.targets
        array([[ 4,  5,  3,  3],
               [ 4,  3,  2, -1]], dtype=int16)
        >>> numbered([Sentences.of(["to be or not to be", "to do"])], Words(2), "task")[0].inputs
        array([[0.33333334, 0.33333334],
               [0.5       , 0.        ]], dtype=float32)
    """
    if not len(parts[0].numbers):
        key_path = join(path, "inputs")
        raise SpecError(f"{key_path} must hold words, got none in all {len(parts[0])} texts", key_path)
    _require_memory(sum(map(len, parts)), settings, path)
    chosen = _most_frequent(parts[0], settings.count)
    tokens = [_tokens(part, chosen) for part in parts]
    if settings.context is None:
        return [
            Numbered(_bags(part, part_tokens, len(chosen)), None)
            for part, part_tokens in zip(parts, tokens, strict=True)
        ]
    return [_sentences(part, part_tokens, settings.context) for part, part_tokens in zip(parts, tokens, strict=True)]


def _require_memory(examples: int, settings: Words, path: str) -> None:
    width, size, key = (settings.count, 4, "words") if settings.context is None else (settings.context, 8, "context")
    if examples * width * size > _MOST:
        key_path = join(path, key)
        most = _MOST // (examples * size)
        raise SpecError(
            f"{key_path} must be at most {most} for {examples} texts, {_MOST // 2**30} GiB of numbers, "
            f"got {key}={width}",
            key_path,
        )


def _most_frequent(part: Sentences, count: int) -> dict[str, int]:
    """Word -> token."""
    often = np.bincount(part.numbers, minlength=len(part.known))
    places = np.argsort(-often, kind="stable")[:count]
    return {part.known[index]: OTHERS + rank for rank, index in enumerate(places.tolist())}


def _tokens(part: Sentences, chosen: dict[str, int]) -> NDArray[np.int32]:
    """The token of each word of all texts."""
    tokens = np.array([chosen.get(word, _UNKNOWN) for word in part.known], np.int32)
    return tokens[part.numbers] if len(tokens) else np.zeros(0, np.int32)


def _bags(part: Sentences, tokens: NDArray[np.int32], width: int) -> NDArray[np.float32]:
    bags = np.zeros((len(part), width), np.float32)
    rows = np.repeat(np.arange(len(part)), part.counts)
    in_vocabulary = tokens >= OTHERS
    places, often = np.unique(rows[in_vocabulary] * width + tokens[in_vocabulary] - OTHERS, return_counts=True)
    bags.reshape(-1)[places] = often / part.counts[places // width]
    return bags


def _sentences(part: Sentences, tokens: NDArray[np.int32], context: int) -> Numbered:
    kind = np.min_scalar_type(-max(int(tokens.max(initial=0)), OTHERS))
    kind = np.dtype(np.int16) if kind.itemsize < 2 else kind
    inputs = np.zeros((len(part), context), kind)
    targets = np.full((len(part), context), PADDING, kind)
    inputs[:, 0] = _BEGIN
    rows = np.repeat(np.arange(len(part)), part.counts)
    places = np.arange(len(tokens)) - np.repeat(np.cumsum(part.counts) - part.counts, part.counts)
    within, before = places < context, places < context - 1
    targets[rows[within], places[within]] = tokens[within]
    inputs[rows[before], places[before] + 1] = tokens[before]
    short = np.flatnonzero(part.counts < context)
    targets[short, part.counts[short]] = _END
    return Numbered(inputs, targets)
