"""The command of docs/diloco.md with tiny models: it runs everything, in two parts, and writes the page."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.diloco.cells import cells
from benchmarks.diloco.finished import pieces
from benchmarks.diloco.statements import STATEMENTS
from tests.conftest import TESTS


def command(*options: object) -> str:
    words = [sys.executable, "-m", "benchmarks.diloco", *map(str, options)]
    return subprocess.run(words, cwd=TESTS.parent, check=True, text=True, stdout=subprocess.PIPE, timeout=280).stdout


@pytest.mark.slow
def test_all_cells_run_in_two_parts_and_every_statement_gets_numbers(tmp_path: Path) -> None:
    text, out, page = tmp_path / "text.txt", tmp_path / "out", tmp_path / "diloco.md"
    text.write_text("The quick brown fox jumps over the lazy dog. " * 400)
    smoke = ("--smoke", text, "--out", out)
    everything = pieces(cells(str(text)))

    first = command(*smoke, "--only", "steps", "batches-36-m1")
    began = {path.name: path.stat().st_mtime_ns for path in out.glob("*.json")}
    assert 0 < len(began) < len(everything)
    assert "not run" in first

    printed = command(*smoke, "--page", page)
    assert all(piece.file(out).exists() for piece in everything)
    assert {path.name: path.stat().st_mtime_ns for path in out.glob("*.json") if path.name in began} == began
    assert "not run" not in printed
    assert all(f"| {statement.name}: " in printed for statement in STATEMENTS)
    assert "**undecided**, 2 seeds" in printed

    assert command(*smoke, "--decide") in printed
    assert "{{" not in page.read_text()
