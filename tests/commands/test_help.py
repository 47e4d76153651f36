"""`--help` of every command, in a terminal of 80 columns."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from service.cli.main import app


def commands(command: Any, *path: str) -> Iterator[tuple[str, ...]]:
    yield path
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, *path, name)


@pytest.mark.parametrize("path", list(commands(get_command(app))), ids=lambda path: " ".join(path) or "driftline")
def test_help_names_its_arguments_in_one_way(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "80"})
    assert result.exit_code == 0
    assert "...}..." not in result.stdout
    usage = re.search(r"Usage: .*", result.stdout)
    assert usage
    for argument in re.findall(r"[{\[]([^\]}]*)[\]}]", usage[0]):
        assert argument[0].isupper(), argument
    assert max(len(line) for line in result.stdout.splitlines()) <= 80
