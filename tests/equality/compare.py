"""Compares two recordings: equal to the bit, up to listed exceptions.

    python -m tests.equality.compare OLD NEW [--exceptions curves.yaml] [--most 40]

OLD and NEW are two files of record.py. Prints each difference with its case, key, place,
both values and the relative difference; exits with 1 when there is one that no exception allows. An exception is

    - {cases: "fedavg/*/float64", keys: "train_loss", relative: 1e-12, reason: "..."}
    - {cases: "*", keys: "extra_*", absent: true, reason: "only one of the trees reports it"}
    - {cases: "*", keys: "*.fingerprint", text: true, reason: "of a study in another spelling"}
    - {cases: "*", keys: "frontier.json.*", anew: true, reason: "results are defined anew"}

with patterns as of a shell, or lists of them. An exception of which a key allowed nothing is an error, and so is one
for a float64 case with a relative difference above 1e-11.
"""

from __future__ import annotations

import argparse
import fnmatch
import gzip
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

MOST_FLOAT64 = 1e-11
FLOAT32 = ("/float32", "data/*")
"""Ends of patterns of cases in float32."""
MISSING = "nothing"
_NUMBER = re.compile(r"(?:\d+ numbers [0-9a-f]+ )?(-?0x[01]\.[0-9a-f]+p[+-]\d+)")


class Leaf(NamedTuple):
    """Where a value stands.

    Attributes:
        case: name of a case or study.
        key: name of a metric, or dotted path within an answer.
        place: member and line, for a curve.
    """

    case: str
    key: str
    place: str


@dataclass(frozen=True)
class Difference:
    """Two values that should be equal.

    Args:
        leaf: where.
        old: of the old recording; MISSING where it has none.
        new: of the new one.
    """

    leaf: Leaf
    old: Any
    new: Any

    @property
    def relative(self) -> float:
        """The relative difference; infinite where one of both is no number."""
        one, other = number(self.old), number(self.new)
        if one is None or other is None or not math.isfinite(one - other):
            return math.inf
        return abs(one - other) / max(abs(one), abs(other)) if one != other else 0.0

    def __str__(self) -> str:
        return (
            f"{self.leaf.case}: {self.leaf.key} {self.leaf.place}".rstrip()
            + f": {shown(self.old)} -> {shown(self.new)} (relative {self.relative:.1e})"
        )


@dataclass
class Exemption:
    """An allowed difference, as the file of exceptions lists it.

    Args:
        cases: pattern of names of cases, or a list of them.
        keys: pattern of keys.
        reason: why.
        relative: largest relative difference that is allowed.
        absent: whether a value may be in one recording only.
        text: whether a text may be another text.
        anew: whether the value is defined anew, so that it may be any.
        used: how often it allowed something.
    """

    cases: str | list[str]
    keys: str
    reason: str
    relative: float = 0.0
    absent: bool = False
    text: bool = False
    anew: bool = False
    used: int = 0

    @property
    def patterns(self) -> list[str]:
        """Patterns of names of cases."""
        return [self.cases] if isinstance(self.cases, str) else self.cases

    def allows(self, difference: Difference) -> bool:
        """Whether it allows a difference."""
        leaf = difference.leaf
        named = any(fnmatch.fnmatchcase(leaf.case, pattern) for pattern in self.patterns)
        if not (named and fnmatch.fnmatchcase(leaf.key, self.keys)):
            return False
        if self.anew:
            return True
        if MISSING in (difference.old, difference.new):
            return self.absent
        if isinstance(difference.old, str) and isinstance(difference.new, str) and number(difference.old) is None:
            return self.text and number(difference.new) is None
        return difference.relative <= self.relative


def exemptions(file: Path | None) -> list[Exemption]:
    """The exceptions in a file.

    Raises:
        SystemExit: one that lacks a reason, has an unknown key or allows too much.
    """
    if file is None:
        return []
    listed = []
    for entry in yaml.safe_load(file.read_text()) or []:
        keys = entry.get("keys")
        relative = float(entry.get("relative", 0.0))
        try:
            of_keys = [
                Exemption(**{**entry, "keys": key, "relative": relative})
                for key in (keys if isinstance(keys, list) else [keys])
            ]
        except TypeError as error:
            raise SystemExit(f"{file}: an exception must have cases, keys, reason and a tolerance: {error}") from error
        exemption = of_keys[0]
        if not exemption.reason.strip():
            raise SystemExit(f"{file}: an exception must have a reason, got none for {exemption.cases}")
        in_float32 = all(pattern.endswith(FLOAT32) for pattern in exemption.patterns)
        if not in_float32 and exemption.relative > MOST_FLOAT64:
            raise SystemExit(
                f"{file}: relative must be at most {MOST_FLOAT64:g}, or cases must end in /float32 or be data/*, "
                f"got {exemption.relative:g} for {exemption.cases}"
            )
        listed += of_keys
    return listed


def differences(old: Path, new: Path) -> list[Difference]:
    """All differences between two recordings."""
    before, after = dict(leaves(read(old))), dict(leaves(read(new)))
    order = [*before, *(leaf for leaf in after if leaf not in before)]
    pairs = [Difference(leaf, before.get(leaf, MISSING), after.get(leaf, MISSING)) for leaf in order]
    return [difference for difference in pairs if not same(difference.old, difference.new)]


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same, and of the same type: 1 is not 1.0, and True is not 1."""
    return type(one) is type(other) and one == other


def read(file: Path) -> dict[str, Any]:
    """A recording."""
    recording: dict[str, Any] = json.loads(gzip.decompress(file.read_bytes()))
    return recording


def leaves(recording: Mapping[str, Any]) -> Iterator[tuple[Leaf, Any]]:
    """Every value of a recording with its place."""
    for case, answer in recording["cases"].items():
        for key, place, value in _leaves(answer, "", ""):
            yield Leaf(case, key, place), value


def _leaves(value: Any, key: str, place: str) -> Iterator[tuple[str, str, Any]]:
    if isinstance(value, dict) and value:
        for name, item in value.items():
            if name.isdecimal() and not key:  # a member of a pack
                yield from _leaves(item, key, f"member {name}")
            else:
                yield from _leaves(item, f"{key}.{name}" if key else name, place)
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _leaves(item, key, f"{place} [{index}]".strip())
    else:
        yield key, place, value


def number(value: Any) -> float | None:
    """The number that a recorded value stands for, of a digest its norm; None where it is none."""
    if isinstance(value, str) and (match := _NUMBER.fullmatch(value)):
        return float.fromhex(match[1])
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    return None


def shown(value: Any) -> str:
    """A recorded value for people: floats with all digits."""
    text = repr(number(value)) if isinstance(value, str) and value.lstrip("-").startswith("0x") else str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def verdict(differing: Sequence[Difference], allowed: Sequence[Exemption]) -> tuple[list[Difference], list[Exemption]]:
    """The differences that nothing allows, and the exceptions that allowed nothing."""
    left = []
    for difference in differing:
        fitting = [exemption for exemption in allowed if exemption.allows(difference)]
        for exemption in fitting:
            exemption.used += 1
        if not fitting:
            left.append(difference)
    return left, [exemption for exemption in allowed if not exemption.used]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--exceptions", type=Path, help="YAML file of allowed differences")
    parser.add_argument("--most", type=int, default=40, help="differences to print, the others are counted")
    options = parser.parse_args(arguments)
    allowed = exemptions(options.exceptions)
    one, other = read(options.old), read(options.new)
    for fact in sorted({*one["about"], *other["about"]}):
        if one["about"].get(fact) != other["about"].get(fact):
            print(
                f"note: {fact} was {one['about'].get(fact)} and is {other['about'].get(fact)}: "
                "the last bits may differ for that reason alone; record OLD again on this machine"
            )
    differing = differences(options.old, options.new)
    left, unused = verdict(differing, allowed)
    for difference in left[: options.most]:
        print(difference)
    if len(left) > options.most:
        print(f"... and {len(left) - options.most} more")
    for exemption in unused:
        print(f"unused exception, take it out: {exemption.cases} {exemption.keys}: {exemption.reason}")
    cases = len({difference.leaf.case for difference in left})
    values = sum(1 for _ in leaves(one))
    print(
        f"{len(one['cases'])} and {len(other['cases'])} cases, {values} values: "
        f"{len(left)} differences in {cases} cases, {len(differing) - len(left)} allowed, "
        f"{len(unused)} exceptions unused"
    )
    return 1 if left or unused else 0


if __name__ == "__main__":
    sys.exit(main())
