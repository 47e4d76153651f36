"""Records the curves of all cases with the code of a tree, every number exactly.

    python -m tests.equality.record TREE --out FILE [--workers 2] [--only PATTERN] [--data FOLDER]

TREE is a checkout. FILE is gzipped JSON: `about` (versions and processor, on which the last bits depend) and `cases`.
A case has its columns by member and metric; floats are in C99's hexadecimal form. Long lists (models) are a digest of
their bits and a norm, in which every place has another weight.
"""

import argparse
import fnmatch
import gzip
import hashlib
import json
import math
import os
import queue
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.equality import cases
from tests.equality.cases import Case

MASKED = ("wall_seconds",)
"""Metrics that differ from run to run."""

LONGEST = 16
"""Lists of more numbers are kept as a digest and a norm."""

SCRIPT = Path(__file__).with_name("tree.py")


class Tree:
    """A process with the code of a tree; answers requests as tree.py says.

    Args:
        path: of the checkout.
        folder: in which it runs.
        data: folder of data sets; None is a folder without any.
    """

    def __init__(self, path: Path, folder: Path, data: Path | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(SCRIPT), str(path.resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=environment(path, data or folder),
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to a request."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the process of the tree ended with {self._process.wait()}; see above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()


def environment(tree: Path, data: Path) -> dict[str, str]:
    """The environment for the code of a tree: its modules first, one thread, no settings of Driftline or Ray."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DRIFTLINE_", "RAY_"))}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    calm = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
    return {**kept, **threads, **calm, "PYTHONPATH": str(tree.resolve()), "DATA_DIR": str(data.resolve())}


def record(
    tree: Path, chosen: Sequence[Case], *, workers: int = 1, data: Path | None = None, slowest: int = 0
) -> dict[str, Any]:
    """The recording of some cases.

    Args:
        tree: a checkout.
        chosen: the cases.
        workers: processes at once.
        data: folder of data sets, for the cases that need it.
        slowest: how many of the slowest cases are named on stderr.
    """
    waiting: queue.SimpleQueue[Case] = queue.SimpleQueue()
    for case in chosen:
        waiting.put(case)
    about: dict[str, Any] = {}
    curves: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="equality-") as name:
        folder = Path(name)
        cases.write_arrays(folder)

        def work() -> None:
            with Tree(tree, folder, data) as process:
                about.update(process.ask(do="about"))
                while True:
                    try:
                        case = waiting.get_nowait()
                    except queue.Empty:
                        return
                    start = time.monotonic()
                    answer = process.ask(do="train", document=case.document, oracle=case.oracle, stop=case.stop)
                    seconds[case.name] = time.monotonic() - start
                    curves[case.name] = columns(answer["lines"]) if "lines" in answer else {"error": answer["error"]}

        threads = [threading.Thread(target=work) for _ in range(max(1, workers))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for name in sorted(seconds, key=lambda name: -seconds[name])[:slowest]:
        print(f"{seconds[name]:6.2f} s  {name}", file=sys.stderr)
    return {"about": about, "cases": {case.name: curves[case.name] for case in chosen}}


def columns(lines: Iterable[dict[str, Any]]) -> dict[str, dict[str, list[Any]]]:
    """Report lines as columns: member -> metric -> one value a line; "absent" where a line has no such metric."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        rows.setdefault(str(line.get("member", 0)), []).append(line)
    return {
        member: {
            name: [_cell(line[name]) if name in line else "absent" for line in own]
            for name in sorted({name for line in own for name in line} - {*MASKED, "member"})
        }
        for member, own in rows.items()
    }


def exact(value: Any) -> Any:
    """A value as JSON has it, such that equal texts mean equal bits.

    Examples:
        >>> exact(0.1), exact(-0.0), exact(1), exact(None), exact(True), exact({"a": [1.0, 2]})
        ('0x1.999999999999ap-4', '-0x0.0p+0', 1, None, True, {'a': ['0x1.0000000000000p+0', 2]})
    """
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, list):
        return [exact(item) for item in value]
    if isinstance(value, dict):
        return {key: exact(item) for key, item in value.items()}
    return value


def _cell(value: Any) -> Any:
    if not isinstance(value, list) or len(value) <= LONGEST:
        return exact(value)
    packed = b"".join(struct.pack("<d", item) for item in value)
    norm = math.hypot(*(item * (1 + place / len(value)) for place, item in enumerate(value)))
    return f"{len(value)} numbers {hashlib.sha256(packed).hexdigest()[:16]} {norm.hex()}"


def write(recording: dict[str, Any], file: Path) -> None:
    """Writes a recording; equal recordings are equal files."""
    text = json.dumps(recording, separators=(",", ":"), allow_nan=False)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tree", type=Path, help="a checkout")
    parser.add_argument("--out", type=Path, required=True, help="file to write, as curves.json.gz")
    parser.add_argument("--workers", type=int, default=2, help="processes at once")
    parser.add_argument("--only", default="*", help="cases whose names match this pattern")
    parser.add_argument("--data", type=Path, help="folder of data sets; without it cases that need them are left out")
    options = parser.parse_args()
    named = [case for case in cases.cases() if fnmatch.fnmatch(case.name, options.only)]
    chosen = [case for case in named if options.data is not None or not case.needs_data]
    start = time.monotonic()
    recording = record(options.tree, chosen, workers=options.workers, data=options.data, slowest=5)
    write(recording, options.out)
    failed = {name: case["error"] for name, case in recording["cases"].items() if "error" in case}
    for name, error in failed.items():
        print(f"{name}: {error}", file=sys.stderr)
    size, spent = options.out.stat().st_size / 1e6, time.monotonic() - start
    print(f"{len(chosen)} cases, {len(failed)} failed, {spent:.0f} s, {size:.2f} MB in {options.out}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
