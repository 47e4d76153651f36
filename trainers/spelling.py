"""Finds the nearest known word, for error messages."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher
from itertools import islice

from trainers.values import step

_CLOSE_ENOUGH = 0.55
_LENGTH = 60  # characters of a word that are compared; the time of a comparison is quadratic in it
_ENOUGH = 4  # shared letters that make two words similar
_LEAST_SLIP = 2  # letters that may differ in any word
_COMPARED = 500  # known words that are compared
_LISTED = 50  # known words that a message lists


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """The known word most similar to `word`, or None if none is so similar that a slip explains the difference.

    A slip changes at most two letters or a third of them; a word within the other, or the same beginning, counts as a
    slip, too. Ignores case, "-", spaces and "_"; of equally near words, returns the first. Compares only the first 60
    characters of a word, so that long words are fast.

    Args:
        word: the given word.
        candidates: the valid words.

    Examples:
        >>> nearest("client_rl", ["client_lr", "server_lr"])
        'client_lr'
        >>> nearest("FedAvg", ["fedavg", "fedprox"])
        'fedavg'
        >>> [nearest(word, ["fedga", "cmaes", "feddyn"]) for word in ("zebra", "fedadam", "bayes", "fedmedian")]
        [None, None, None, None]
    """
    plain = _plain(word)
    best: str | None = None
    best_score = _CLOSE_ENOUGH
    for candidate in islice(candidates, _COMPARED):
        matcher = SequenceMatcher(None, plain, _plain(candidate))
        if matcher.real_quick_ratio() <= best_score or matcher.quick_ratio() <= best_score:
            continue  # upper bounds of the score, which cost less
        score = matcher.ratio()
        if score > best_score and _slip(plain, _plain(candidate)):
            best, best_score = candidate, score
    return best


def _slip(word: str, candidate: str) -> bool:
    """Whether few letters differ, by the Damerau-Levenshtein distance, in which a swap of neighbours counts as one."""
    if min(len(word), len(candidate)) >= _ENOUGH and (
        word in candidate or candidate in word or word[:_ENOUGH] == candidate[:_ENOUGH]
    ):
        return True
    last: list[int] = []
    row = list(range(len(candidate) + 1))
    for index, letter in enumerate(word, 1):
        before, last, row = last, row, [index]
        for column, candidate_letter in enumerate(candidate, 1):
            least = min(last[column] + 1, row[-1] + 1, last[column - 1] + (letter != candidate_letter))
            if index > 1 < column and (letter, word[index - 2]) == (candidate[column - 2], candidate_letter):
                least = min(least, before[column - 2] + 1)
            row.append(least)
    return row[-1] <= max(_LEAST_SLIP, len(word) // 3)


def hint(word: object, candidates: Iterable[str]) -> str:
    """The end of an error message about an unknown word: the nearest known word, else all known words.

    Args:
        word: the given word.
        candidates: the valid words.

    Examples:
        >>> hint("client_rl", ["client_lr", "server_lr"])
        'did you mean client_lr?'
        >>> hint("zebra", ["client_lr", "server_lr"])
        'known are client_lr, server_lr'
        >>> hint("zebra", [])
        'none is known here'
    """
    words = list(candidates)
    guess = nearest(step(word), words)
    if guess is not None:
        return f"did you mean {step(guess)}?"
    if words:
        listed = ", ".join(step(candidate) for candidate in sorted(words)[:_LISTED])
        more = f" and {len(words) - _LISTED} more" if len(words) > _LISTED else ""
        return f"known are {listed}{more}"
    return "none is known here"


def _plain(word: str) -> str:
    return word[:_LENGTH].lower().replace("-", "").replace("_", "").replace(" ", "")
