"""Reading text takes at most twice its size in memory, whether it is whole or damaged: the rest is in files."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SIZE = 12 * 2**20  # bytes
BUFFERS = 8 * 2**20  # bytes of blocks and of pages that allocators keep, whatever the size of the file
OPEN_QUOTE = 64 * 2**20  # bytes that the search for its end takes, at most
CHILD = """
import json, sys, threading, time
from pathlib import Path
from trainers import SpecError
from trainers.tasks import data

def rows(side):
    return data.parse({"name": "data", "path": f"{side}/{sys.argv[1]}"}, "task").parts.rows

def held():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))

def watch():
    while True:
        peak[0] = max(peak[0], held())
        time.sleep(0.005)

rows("small")
before, peak = held(), [0]
threading.Thread(target=watch, daemon=True).start()
print(len(rows("large")))
print(peak[0] - before)
try:
    rows("damaged")
except SpecError as error:
    print(error)
print(peak[0] - before)
"""


def floats(row: int) -> str:
    return ",".join(f"{(row * 7919 + place) % 1000 / 1000:.6f}" for place in range(10)) + f",{row % 3},{row // 100}\n"


def digits(row: int) -> str:
    return ",".join(str((row * place) % 10) for place in range(40)) + f",{row % 3},{row // 100}\n"


def strings(row: int) -> str:
    city, person = row % 50, row * 7919 % 1000
    return f"{row % 7},{row % 13}.5,city number {city},{'yes' if row % 3 else 'no'},person {person}\n"


def line(row: int) -> str:
    return json.dumps({"x": [row % 1000 / 1000] * 10, "y": row % 3, "client": row // 100}) + "\n"


def user(number: int) -> str:
    data = {"x": [[0.123456, -1.5, 2, number, 0.25]] * 100, "y": [0, 1] * 50}
    return f'{"," if number else ""} "u{number}": {json.dumps(data)}'


def of_one(row: int) -> str:
    return f"{',' if row else ''}[0.123456, -1.5, 2, {row % 1000}, 0.25]"


def labels(rows: int) -> str:
    return f'], "y": {[row % 2 for row in range(rows)]}}}}}}}'


KINDS: dict[str, tuple[str, str, Callable[[int], str], str | Callable[[int], str], str]] = {
    "digits": ("own.csv", ",".join(f"x{place}" for place in range(40)) + ",y,client\n", digits, "", '",{'),
    "strings": ("own.csv", "a,b,city,y,client\n", strings, "", ',"'),
    "gzipped digits": ("own.csv.gz", ",".join(f"x{place}" for place in range(40)) + ",y,client\n", digits, "", ',"'),
    "gzipped": ("own.csv.gz", ",".join(f"x{place}" for place in range(10)) + ",y,client\n", floats, "", ',"'),
    "lines": ("own.jsonl", "", line, "", '",{'),
    "leaf": ("own.json", '{"user_data": {', user, "}}", '",{'),
    "leaf of one user": (
        "own.json",
        '{"user_data": {"a user whose name is much longer than one of her rows": {"x": [',
        of_one,
        labels,
        '",{',
    ),
}


def text(begin: str, row: Callable[[int], str], end: str | Callable[[int], str], size: int) -> str:
    rows = [begin]
    length = number = 0
    while length < size:
        rows.append(row(number))
        length += len(rows[-1])
        number += 1
    return "".join([*rows, end if isinstance(end, str) else end(number)])


@pytest.mark.parametrize("kind", KINDS)
def test_text_takes_at_most_twice_its_size(kind: str, tmp_path: Path) -> None:
    name, begin, row, end, damage = KINDS[kind]
    whole = text(begin, row, end, SIZE)
    cut = len(whole) * 9 // 10
    for side, content in (
        ("small", text(begin, row, end, 200_000)),
        ("large", whole),
        ("damaged", whole[:cut] + damage + whole[cut:-5]),
    ):
        (tmp_path / side).mkdir()
        packed = gzip.compress(content.encode(), 1) if name.endswith(".gz") else content.encode()
        (tmp_path / side / name).write_bytes(packed)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, name],
        cwd=tmp_path,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    count, peak, message, damaged = done.stdout.splitlines()
    assert int(count) > 1000
    assert message.startswith("task."), message
    assert int(peak) < 2 * len(whole) + BUFFERS
    assert int(damaged) < max(2 * len(whole), OPEN_QUOTE)
