"""Finds every error of a document, although reading it ends at the first one.

The value that an error names is replaced by a valid one, and the document is read again, until no error is left. A
misspelt key is replaced by the suggested key, so that its value is checked, too.

An error may also come from a replacement: a cohort may be larger than the replacement of an invalid population. The
document is therefore mended twice, with different replacements, and an error counts only if both searches find it. An
error may also come from another error: a starting point lies outside a range that is itself invalid. An error therefore
counts only if its place is still invalid when everything else is mended.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Steps = tuple[str | int, ...]
"""A place in a document: keys of mappings and indices of lists."""
Changes = Mapping[Any, Any]
"""What to write into a document: `Steps` -> value, or ABSENT."""
StandIns = Callable[[Any, Steps], tuple[Sequence[Changes], Sequence[Changes]]]
"""(a document, a place in it) -> replacements of the value there, for the first and the second search, best first."""
Errors = Sequence[tuple[str, str]]
"""Path and problem of each error, in the order in which they are found."""

ABSENT = object()
"""Marks a removed key or item."""

_MOST = 20  # errors after which the search ends
_READINGS = 40
_PLAIN = (
    (ABSENT, 1, 0.5, 0.1, "x", False, [1], [0.1]),
    (2, 0.25, ABSENT, 1, 0.5, 0.1, "y", True, [2], [0.2]),
)
"""Values tried in place of an invalid one, in the first and in the second search."""
_MEANT = re.compile(r"^(?:unknown (?:key|hyperparameter)|not in )[^?]*: did you mean ([^?]+)\?$")
_UNKNOWN = re.compile(r"^unknown (?:key|hyperparameter)\b")
_STEP = re.compile(r"[^.\[\]]+")


def every_error(
    document: Mapping[str, Any],
    read: Callable[[dict[str, Any]], Errors],
    stand_ins: StandIns,
) -> list[tuple[str, str]]:
    """Path and problem of every error of a document, at least 20 if there are very many; empty if it is valid.

    Args:
        document: the document; not changed.
        read: returns the errors that one reading finds; none for a valid document.
        stand_ins: returns replacements of the value at a place; plain numbers and strings are tried after them.
    """
    first, second = (_Mended(document, stand_ins, number) for number in (0, 1))
    met, again = dict.fromkeys(first.errors(read)), dict.fromkeys(second.errors(read))
    return [error for error in met if error in again and first.stands_alone(error, read)]


class _Mended:
    """A document whose invalid values are replaced by valid ones.

    Args:
        document: the document; not changed.
        stand_ins: returns replacements of the value at a place.
        number: 0 for the first search, 1 for the second.
    """

    def __init__(self, document: Mapping[str, Any], stand_ins: StandIns, number: int) -> None:
        self._document = _copied(dict(document))  # removed items stay as ABSENT, so that indices stay
        self._stand_ins = stand_ins
        self._number = number
        self._tried: dict[Steps, Iterator[Changes]] = {}  # replacements still to be tried at a place
        self._given = _copied(self._document)  # the given document with misspelt keys corrected
        self._replaced: set[Steps] = set()
        self._places: dict[tuple[str, str], Steps] = {}  # of errors, except unknown keys
        self._whole = False

    def errors(self, read: Callable[[dict[str, Any]], Errors]) -> Iterator[tuple[str, str]]:
        """The errors of all readings, except at replaced places."""
        count = 0
        for _ in range(_READINGS):
            met = [(*self._place(path), problem) for path, problem in read(_present(self._document))]
            self._whole = not met
            errors = [(written, problem) for steps, written, problem in met if not self._covered(steps)]
            self._places |= {(written, text): steps for steps, written, text in met if not _UNKNOWN.match(text)}
            yield from errors
            count += len(errors)
            if count >= _MOST:
                return
            changed: set[Steps] = set()
            for steps, written, problem in met:
                if not any(_overlap(steps, other) for other in changed):
                    changed |= self._mend(steps, written, problem)
            if not changed:
                return

    def stands_alone(self, error: tuple[str, str], read: Callable[[dict[str, Any]], Errors]) -> bool:
        """Whether the place of an error is still invalid if everything else is mended; True if that is unknown."""
        changed = [steps for steps in self._replaced if _overlap(self._places.get(error, ()), steps)]
        if not self._whole or error not in self._places or not changed:
            return True
        restored = min(changed, key=len)
        mended = copy.copy(self)
        mended._document = _copied(self._document)
        mended._write(restored, self._at(restored, self._given))
        return any(_overlap(restored, mended._place(path)[0]) for path, _ in read(_present(mended._document)))

    def _place(self, path: str) -> tuple[Steps, str]:
        """The deepest place of the given document that a path names, and the path with the indices of that document."""
        parts = _STEP.findall(path)
        steps: list[str | int] = []
        indices: dict[int, int] = {}
        value: Any = self._document
        number = 0
        while number < len(parts) and isinstance(value, dict | list):
            if isinstance(value, list):
                left = [index for index, item in enumerate(value) if item is not ABSENT]
                kinds = {type(item) for item in value}
                whole = not kinds.isdisjoint((int, float, list)) and dict not in kinds  # such as a matrix
                if whole or not parts[number].isdigit() or int(parts[number]) >= len(left):
                    break
                indices[number] = left[int(parts[number])]
                steps.append(indices[number])
                value, number = value[indices[number]], number + 1
                continue
            ends = range(number + 1, len(parts) + 1)  # a key may hold dots: server.momentum
            end = next((end for end in ends if value.get(".".join(parts[number:end]), ABSENT) is not ABSENT), 0)
            key = ".".join(parts[number:end]) if end else parts[number]
            steps.append(key)
            value, number = value.get(key), end or len(parts)
        numbers = iter(range(len(parts)))
        return tuple(steps), _STEP.sub(lambda step: str(indices.get(next(numbers), step[0])), path)

    def _covered(self, steps: Steps) -> bool:
        """Whether this place overlaps a replaced one; a list with a replaced item counts only if no item is left."""
        return any(
            _overlap(steps, replaced)
            and not (isinstance(replaced[-1], int) and replaced[:-1] == steps and self._at(steps, self._document))
            for replaced in self._replaced
        )

    def _at(self, steps: Steps, document: Any) -> Any:
        """The value at a place of a document; ABSENT without one."""
        value = document
        for step in steps:
            if isinstance(value, list):
                value = value[int(step)]
            else:
                value = value.get(step, ABSENT) if isinstance(value, dict) else ABSENT
        return _present(value)

    def _mend(self, steps: Steps, path: str, problem: str) -> set[Steps]:
        """Replaces the value that an error names; returns the changed places."""
        named = bool(steps) and path.endswith(str(steps[-1]))  # the document has the whole path
        meant = _MEANT.match(problem)
        unknown = meant is not None or _UNKNOWN.match(problem) is not None
        if unknown and named and self._at(steps, self._document) is not ABSENT:
            return self._rename(steps, meant[1] if meant else None)
        while steps:
            around = next((steps[:end] for end in range(1, len(steps) + 1) if steps[:end] in self._tried), steps)
            if around not in self._tried:
                plain = _PLAIN[self._number if isinstance(around[-1], str) else 0]
                stand_ins = self._stand_ins(self._document, around)[self._number]
                candidates: list[Changes] = [*stand_ins, *({around: value} for value in plain)]
                self._tried[around] = iter(candidates)
            for changes in self._tried[around]:
                if self._change(changes):
                    return set(changes)
            steps = around[:-1]
        return set()

    def _rename(self, steps: Steps, meant: str | None) -> set[Steps]:
        """Moves a value to the key that was meant if this key is free; else removes the value."""
        *_, key = steps
        for document in (self._document, self._given):
            holder: Any = document
            for step in steps[:-1]:
                holder = holder[step]
            taken = meant is None or holder.get(meant, ABSENT) is not ABSENT
            items = [(meant if name == key and not taken else name, value) for name, value in holder.items()]
            holder.clear()
            holder.update(items)
            if taken:
                holder[key] = ABSENT
        return {steps}

    def _change(self, changes: Changes) -> bool:
        """Writes values into the document; returns whether anything has changed."""
        before = _present(self._document)
        for steps, value in changes.items():
            self._write(steps, value)
        if _present(self._document) == before:
            return False
        self._replaced |= set(changes)
        return True

    def _write(self, steps: Steps, value: Any) -> None:
        """Writes a value into the document, if there is a mapping or a list to hold it."""
        key: Any = steps[-1]
        holder: Any = self._document
        for step in steps[:-1]:
            inside = isinstance(holder, list) or (isinstance(holder, dict) and step in holder)
            holder = holder[step] if inside else None
        if isinstance(holder, list) or (isinstance(holder, dict) and (value is not ABSENT or key in holder)):
            holder[key] = _copied(value)


def _overlap(one: Steps, other: Steps) -> bool:
    """Whether the places are equal, or one lies within the other."""
    return all(a == b for a, b in zip(one, other, strict=False))


def _copied(value: Any) -> Any:
    """A copy of a value's mappings and lists; everything else, ABSENT included, is shared."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value


def _present(value: Any) -> Any:
    """A copy without removed keys and items."""
    if isinstance(value, dict):
        return {key: _present(item) for key, item in value.items() if item is not ABSENT}
    if isinstance(value, list):
        return [_present(item) for item in value if item is not ABSENT]
    return value
