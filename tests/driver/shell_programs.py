"""Programs in shell as trials, without a study around them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from service.driver.job import PackJob
from service.driver.programs.program_pack import ProgramPack

FILES = """
document=$DRIFTLINE_TRIAL
file() { sed -n 's/.*"'$1'": "\\([^"]*\\)".*/\\1/p' "$document"; }
reports=$(file reports); saved=$(file checkpoints); resume=$(file resume); control=$(file control)
say() { printf '%s\\n' "$1" >> "$reports"; }
"""
"""What a program in shell needs of its document: `say LINE`, and places."""

GOOD = """say '{"round": 1, "loss": 0.5, "tokens": 10}'; say '{"round": 2, "loss": 0.25, "tokens": 20}'"""

Started = Callable[..., ProgramPack]


def trial_of(script: str, folder: Path, *, rounds: int = 2, **keys: Any) -> dict[str, Any]:
    """The document of a trial that a program in shell trains.

    Args:
        script: The program.
        folder: Its working directory.
        rounds: Rounds of the trial.
        keys: Further keys of a study's program.
    """
    program = {
        "command": ["/bin/sh", "-c", FILES + script],
        "metrics": {"loss": "falls"},
        "costs": ["tokens"],
        "checkpoints": False,
        "silence": 120.0,
        "grace": 5.0,
        "folder": str(folder),
        **keys,
    }
    values = {"label": "mine", "hyperparameters": {"client_lr": 0.1}, "seed": 3, "rounds": rounds, "quality": "loss"}
    return {**values, "program": program}


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    """Starts a program in shell as a trial of two rounds."""
    packs = []

    def start(
        script: str, *, until: int | None = None, saved: bytes | None = None, others: Any = None, **keys: Any
    ) -> Any:
        job = PackJob("pack", trial_of(script, tmp_path, **keys), "", until=until, place=str(tmp_path / "trial"))
        packs.append(ProgramPack(job, saved, others=others))
        return packs[-1]

    yield start
    for pack in packs:
        pack.close()


def lines_of(pack: ProgramPack) -> list[dict[str, Any]]:
    """All its lines, without seconds."""
    lines: list[dict[str, Any]] = []
    while not pack.done:
        lines += pack.advance()
    for line in lines:
        assert line.pop("wall_seconds") >= 0
    return lines


def alive(process: int) -> bool:
    """Whether a process runs."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
