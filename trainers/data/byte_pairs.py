"""Byte-pair vocabularies, trained on the texts themselves by the `tokenizers` library, offline.

A vocabulary begins with the 256 bytes, so every text can be encoded and nothing is unknown; each further token joins
the pair of tokens that occurs most often within words (Sennrich, Haddow, Birch 2016; on bytes as in GPT-2).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.errors import SpecError

_LINES = 1 << 14  # encoded at once


def train(texts: Iterable[str], size: int, path: str) -> Any:
    """A tokenizer of `size` tokens.

    Args:
        texts: what it is trained on.
        size: tokens, above 256.
        path: dotted path of the task.

    Raises:
        SpecError: the library is not installed, or the texts have too few different pairs.
    """
    try:
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    except ImportError as error:
        raise SpecError(
            f"{path}.vocabulary must be bytes or characters without the package tokenizers, got bpe: "
            'run pip install "driftline[text]"',
            f"{path}.vocabulary",
        ) from error
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator((line for text in texts for line in text.splitlines(keepends=True)), trainer)
    if (most := tokenizer.get_vocab_size()) < size:
        raise SpecError(
            f"{path}.vocabulary_size must be at most {most}, the pairs of this text, got vocabulary_size={size}",
            f"{path}.vocabulary_size",
        )
    return tokenizer


def encode(tokenizer: Any, text: str) -> NDArray[np.int64]:
    """The tokens of a text, line by line.

    Args:
        tokenizer: from `train`.
        text: any text.
    """
    lines = iter(text.splitlines(keepends=True))
    pieces = [np.array(ids, np.int64) for chunk in _chunks(lines) for ids in _ids(tokenizer, chunk)]
    return np.concatenate([np.empty(0, np.int64), *pieces])


def lengths(tokenizer: Any) -> NDArray[np.int64]:
    """(tokens,) bytes of each token: the library writes a byte as one character."""
    return np.array([len(tokenizer.id_to_token(number)) for number in range(tokenizer.get_vocab_size())])


def _ids(tokenizer: Any, lines: list[str]) -> Iterator[list[int]]:
    for encoding in tokenizer.encode_batch_fast(lines):
        yield encoding.ids


def _chunks(lines: Iterator[str]) -> Iterator[list[str]]:
    while chunk := list(islice(lines, _LINES)):
        yield chunk
