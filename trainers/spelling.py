"""The nearest known word, for error messages that help."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher

_CLOSE_ENOUGH = 0.55


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word most like `word`, or None when none is alike.

    Upper case, "-", spaces and "_" make no difference; of equally near words the first counts.

    Args:
        word: what was written.
        known: the words that would have been right.

    Examples:
        >>> nearest("client_rl", ["client_lr", "server_lr"])
        'client_lr'
        >>> nearest("FedAvg", ["fedavg", "fedprox"])
        'fedavg'
        >>> nearest("zebra", ["client_lr"]) is None
        True
    """
    plain = _plain(word)
    best: str | None = None
    best_score = _CLOSE_ENOUGH
    for candidate in known:
        score = SequenceMatcher(None, plain, _plain(candidate)).ratio()
        if score > best_score:
            best, best_score = candidate, score
    return best


def hint(word: str, known: Iterable[str]) -> str:
    """The end of an error message about an unknown word: its nearest neighbour, else all the words there are.

    Args:
        word: what was written.
        known: the words that would have been right.

    Examples:
        >>> hint("client_rl", ["client_lr", "server_lr"])
        'did you mean client_lr?'
        >>> hint("zebra", ["client_lr", "server_lr"])
        'known are client_lr, server_lr'
        >>> hint("zebra", [])
        'none is known here'
    """
    words = list(known)
    found = nearest(word, words)
    if found is not None:
        return f"did you mean {found}?"
    if words:
        return "known are " + ", ".join(sorted(words))
    return "none is known here"


def _plain(word: str) -> str:
    return word.lower().replace("-", "").replace("_", "").replace(" ", "")
