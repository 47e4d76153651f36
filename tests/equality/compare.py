"""Compares two recordings: equal to the bit, but for relative differences that are allowed.

    python -m tests.equality.compare OLD NEW [--allow "oracle/*/loop/float64" 1e-13] [--most 40]

OLD and NEW are two files of record.py. Prints each difference with its case, metric, place, both values and the
relative difference; exits with 1 when there is one that is not allowed. A pattern of cases that allowed nothing is an
error, and so is a relative difference above 1e-11 for cases in float64.
"""

import argparse
import fnmatch
import gzip
import itertools
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

MOST_FLOAT64 = 1e-11
FLOAT32 = ("/float32", "data/*")
"""Ends of patterns of cases in float32."""
MISSING = "nothing"
_NUMBER = re.compile(r"(?:\d+ numbers [0-9a-f]+ )?(-?0x[01]\.[0-9a-f]+p[+-]\d+)")


class Leaf(NamedTuple):
    """Where a value stands.

    Attributes:
        case: name of a case.
        key: name of a metric.
        place: member and line.
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

    def within(self, cases: str, relative: float) -> bool:
        """Whether it is in cases of this pattern, and relatively at most so large."""
        return fnmatch.fnmatchcase(self.leaf.case, cases) and self.relative <= relative

    def __str__(self) -> str:
        return (
            f"{self.leaf.case}: {self.leaf.key} {self.leaf.place}".rstrip()
            + f": {shown(self.old)} -> {shown(self.new)} (relative {self.relative:.1e})"
        )


def allowed(given: Sequence[tuple[str, str]]) -> dict[str, float]:
    """Pattern of cases -> the largest relative difference that is allowed in them.

    Raises:
        SystemExit: one that is too large for cases in float64.
    """
    for pattern, relative in given:
        if not pattern.endswith(FLOAT32) and float(relative) > MOST_FLOAT64:
            raise SystemExit(
                f"--allow must be at most {MOST_FLOAT64:g} for cases that do not end in /float32 or are data/*, "
                f"got {relative} for {pattern}"
            )
    return {pattern: float(relative) for pattern, relative in given}


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
        if "error" in answer:
            yield Leaf(case, "error", ""), answer["error"]
            continue
        for member, metrics in answer.items():
            for metric, values in metrics.items():
                for line, value in enumerate(values):
                    place = f"member {member} [{line}]"
                    if isinstance(value, list):
                        yield from ((Leaf(case, metric, f"{place} [{at}]"), item) for at, item in enumerate(value))
                    else:
                        yield Leaf(case, metric, place), value


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


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--allow", nargs=2, action="append", default=[], metavar=("CASES", "RELATIVE"))
    parser.add_argument("--most", type=int, default=40, help="differences to print, the others are counted")
    options = parser.parse_args(arguments)
    most = allowed(options.allow)
    one, other = read(options.old), read(options.new)
    for fact in sorted({*one["about"], *other["about"]}):
        if one["about"].get(fact) != other["about"].get(fact):
            print(
                f"note: {fact} was {one['about'].get(fact)} and is {other['about'].get(fact)}: "
                "the last bits may differ for that reason alone; record OLD again on this machine"
            )
    differing = differences(options.old, options.new)
    fitting = [[pattern for pattern in most if each.within(pattern, most[pattern])] for each in differing]
    left = [each for each, patterns in zip(differing, fitting, strict=True) if not patterns]
    unused = most.keys() - itertools.chain.from_iterable(fitting)
    for difference in left[: options.most]:
        print(difference)
    if len(left) > options.most:
        print(f"... and {len(left) - options.most} more")
    for pattern in unused:
        print(f"nothing differs that --allow {pattern} allows: leave it out")
    differ = len({each.leaf.case for each in left})
    print(
        f"{len(one['cases'])} and {len(other['cases'])} cases, {len(dict(leaves(one)))} values: "
        f"{len(left)} differences in {differ} cases, {len(differing) - len(left)} allowed"
    )
    return 1 if left or unused else 0


if __name__ == "__main__":
    sys.exit(main())
