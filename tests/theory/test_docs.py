"""The theory's page: its Python runs, its commands print what it says."""

import re
from pathlib import Path

from trainers.theory.__main__ import main

PAGE = Path(__file__).parents[2] / "docs" / "theory.md"


def test_the_python_on_the_page_runs():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 2
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    assert "point" in names


def test_the_commands_on_the_page_run(capsys):
    text = PAGE.read_text(encoding="utf-8")
    commands = re.findall(r"^    python -m trainers\.theory (.*)$", text, re.MULTILINE)
    assert len(commands) == 5
    for command in commands:
        assert main(command.split()) == 0
        printed = capsys.readouterr().out
        shown = text.partition(command + "\n    {")[2].partition(", ...}")[0]
        assert not shown or "{" + shown in printed
