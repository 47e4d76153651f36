"""Makes covering.csv: few rows in which every legal pair of values of two factors occurs.

    python -m tests.equality.covering TREE     writes covering.csv; a minute or two

A row is legal when the parser of the tree takes its document. Greedy, with a fixed seed: each row begins with a pair
that no row has yet; then every factor gets the value that adds most new pairs and leaves the row legal.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.equality.cases import COVERING, FACTORS, document, write_arrays
from tests.equality.record import Tree

Row = tuple[str, ...]
Pair = tuple[tuple[int, str], tuple[int, str]]
Legal = Callable[[Sequence[Row]], list[bool]]

_NAMES = tuple(FACTORS)
_SEED = 0
_TRIES = 40
_AT_ONCE = 200


def asking(tree: Tree) -> Legal:
    """A function that says which rows are legal; it remembers what it was told."""
    answers: dict[Row, bool] = {}

    def legal(rows: Sequence[Row]) -> list[bool]:
        fresh = [row for row in dict.fromkeys(rows) if row not in answers]
        documents = [document(**dict(zip(_NAMES, row, strict=True))) for row in fresh]
        errors = tree.ask(do="check", documents=documents)["errors"] if fresh else []
        answers.update({row: error is None for row, error in zip(fresh, errors, strict=True)})
        return [answers[row] for row in rows]

    return legal


def pairs(row: Row) -> set[Pair]:
    """The pairs of values in a row."""
    return set(itertools.combinations(enumerate(row), 2))


def all_pairs() -> list[Pair]:
    """Every pair of values of two factors, legal or not."""
    values = [[(factor, value) for value in FACTORS[name]] for factor, name in enumerate(_NAMES)]
    return [pair for one, other in itertools.combinations(values, 2) for pair in itertools.product(one, other)]


def completions(pair: Pair) -> Iterator[Row]:
    """Every row that has a pair, in a random order that is always the same."""
    fixed = dict(pair)
    choices = [[fixed[factor]] if factor in fixed else list(FACTORS[name]) for factor, name in enumerate(_NAMES)]
    rows = list(itertools.product(*choices))
    random.Random(_SEED).shuffle(rows)
    return iter(rows)


def legal_row(pair: Pair, legal: Legal, impossible: set[Pair]) -> Row | None:
    """A legal row that has a pair; None when there is none.

    Args:
        pair: to be in it.
        legal: says which rows are legal.
        impossible: pairs that are known to be in no legal row.
    """
    rows = (row for row in completions(pair) if not impossible & pairs(row))
    while some := list(itertools.islice(rows, _AT_ONCE)):
        for row, fine in zip(some, legal(some), strict=True):
            if fine:
                return row
    return None


def build(legal: Legal) -> list[Row]:
    """The rows of a covering array."""
    chance = random.Random(_SEED)
    impossible: set[Pair] = set()
    open_pairs: dict[Pair, Row] = {}
    for pair in all_pairs():
        row = legal_row(pair, legal, impossible)
        if row is None:
            impossible.add(pair)
        else:
            open_pairs[pair] = row
    rows: list[Row] = []
    while open_pairs:
        best: Row | None = None
        gain = 0
        for pair in itertools.islice(open_pairs, 5):
            for _ in range(_TRIES):
                row = _improved(open_pairs[pair], pair, open_pairs, legal, chance)
                fresh = len(pairs(row) & open_pairs.keys())
                if fresh > gain:
                    best, gain = row, fresh
        assert best is not None
        rows.append(best)
        for pair in pairs(best):
            open_pairs.pop(pair, None)
    return sorted(rows)


def _improved(row: Row, pair: Pair, wanted: dict[Pair, Row], legal: Legal, chance: random.Random) -> Row:
    """The row with its other factors, in a random order, set to what adds most pairs and is legal."""
    others = [factor for factor in range(len(row)) if factor not in dict(pair)]
    chance.shuffle(others)
    for factor in others:
        options = [(*row[:factor], value, *row[factor + 1 :]) for value in FACTORS[_NAMES[factor]]]
        chance.shuffle(options)
        options.sort(key=lambda option: -len(pairs(option) & wanted.keys()))
        row = next(option for option in options if legal([option])[0])
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tree", type=Path, help="a checkout")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        write_arrays(Path(name))
        with Tree(options.tree, Path(name)) as tree:
            rows = build(asking(tree))
    with COVERING.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([_NAMES, *rows])
    print(f"{len(rows)} rows in {COVERING.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
