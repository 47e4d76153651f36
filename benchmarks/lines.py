"""Counts what has to be carried on: lines of code, of docstrings, of tests, and words, by package.

    python benchmarks/lines.py [REVISION ...]      the working tree, or these commits beside one another

A line of code has a token other than a comment; lines of docstrings, comments and blank lines are not code. Imports are
code. Words are those of Markdown files.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path

PACKAGES = ("driftline", "service", "trainers", "search_spaces", "tests", "benchmarks")
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def lines_of(source: str) -> tuple[int, int, int]:
    """(all, code, docstring) lines of a module."""
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                docstrings.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    return source.count("\n"), len(code - docstrings), len(docstrings)


def count(files: dict[str, str]) -> dict[str, Counter[str]]:
    """Row -> column -> number; rows are packages, their sum without tests and benchmarks, and documents."""
    rows: dict[str, Counter[str]] = {name: Counter() for name in (*PACKAGES, "all packages", "documents")}
    for path, text in files.items():
        package = path.split("/")[0]
        if path.endswith(".py") and package in PACKAGES:
            numbers = dict(zip(("lines", "code", "docstrings"), lines_of(text), strict=True)) | {"files": 1}
            rows[package].update(numbers)
            if package not in ("tests", "benchmarks"):
                rows["all packages"].update(numbers)
        elif path.endswith(".md"):
            rows["documents"].update(files=1, lines=text.count("\n"), words=len(text.split()))
    return rows


def _files(revision: str | None) -> dict[str, str]:
    """Path -> text of the Python and Markdown files that git has."""

    def git(*arguments: str) -> str:
        done = subprocess.run(("git", *arguments), capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"git {' '.join(arguments)}: {done.stderr.strip().splitlines()[0]}")
        return done.stdout

    names = git("ls-files") if revision is None else git("ls-tree", "-r", "--name-only", revision)
    paths = [path for path in names.splitlines() if path.endswith((".py", ".md"))]
    if revision is None:
        return {path: Path(path).read_text() for path in paths if Path(path).exists()}
    return {path: git("show", f"{revision}:{path}") for path in paths}


def main(revisions: list[str]) -> None:
    """Prints a table of each revision."""
    columns = ("files", "lines", "code", "docstrings", "words")
    for revision in revisions or [None]:
        print(f"\n{revision or 'working tree'}\n\n| | {' | '.join(columns)} |\n|{'---|' * (1 + len(columns))}")
        for name, row in count(_files(revision)).items():
            print(f"| {name} | {' | '.join(f'{row[column]:,}' if row[column] else '' for column in columns)} |")


if __name__ == "__main__":
    main(sys.argv[1:])
