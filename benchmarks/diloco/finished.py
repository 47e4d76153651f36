"""Numbers of finished pieces: in the folder of a run, and in finished.jsonl, which is committed.

So pieces can be run over days and on several computers. A line of finished.jsonl is a piece, as is a file of a folder.
It counts as long as the settings of its cell are those with which it was made.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.diloco.cells import Cell
from driftline import __version__
from driftline.results.curves import TrialCurve
from driftline.results.recorded_table import recorded_trial
from trainers.own_files import put

KEPT = Path(__file__).with_name("finished.jsonl")


@dataclass(frozen=True)
class Piece:
    """A cell on one seed."""

    cell: Cell
    seed: int

    @property
    def name(self) -> str:
        """Its name, which is also that of its file."""
        return f"{self.cell.name}-s{self.seed}"

    def file(self, folder: Path) -> Path:
        """The file that exists when it is finished."""
        return folder / f"{self.name}.json"


@dataclass(frozen=True)
class Finished:
    """The numbers of a finished piece.

    Attributes:
        piece: Its name.
        settings: Digest of its study, see `digest`.
        version: Driftline's version and commit.
        seconds: Of a core.
        untrained: Loss of the untrained model, which is that of all its trials.
        ends: (rounds, final loss) of each configuration; no loss if it diverged after so many rounds.
    """

    piece: str
    settings: str
    version: str
    seconds: float
    untrained: float
    ends: tuple[tuple[int, float | None], ...]

    @classmethod
    def from_json(cls, text: str) -> Finished:
        """Reads what `to_json` has written."""
        document = json.loads(text)
        return cls(**{**document, "ends": tuple(tuple(end) for end in document["ends"])})

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    def trials(self, piece: Piece) -> list[TrialCurve]:
        """The trials, evaluated before the first round and after the last one."""
        metric, configurations = piece.cell.study.objective.quality, piece.cell.configurations()
        found = []
        for number, (hyperparameters, (rounds, loss)) in enumerate(zip(configurations, self.ends, strict=True)):
            values = np.array([self.untrained, np.nan if loss is None else loss])
            columns = {"round": np.array([0.0, rounds]), metric: values}
            state = "DIVERGED" if loss is None else "COMPLETE"
            found.append(recorded_trial(piece.cell.label, number, piece.seed, hyperparameters, state, columns))
        return found


def pieces(cells: Iterable[Cell]) -> list[Piece]:
    """All pieces of these cells: part by part, and all cells of a part on one seed before the next seed."""
    found = [Piece(cell, seed) for cell in cells for seed in cell.seeds]
    parts = list(dict.fromkeys((piece.cell.part, piece.cell.width) for piece in found))
    return sorted(found, key=lambda piece: (parts.index((piece.cell.part, piece.cell.width)), piece.seed))


def finished(plan: Sequence[Piece], folder: Path, kept: Path | None = KEPT) -> tuple[dict[str, Finished], list[str]]:
    """(pieces of the plan that are finished with its settings, names of those that were made with others).

    Args:
        plan: The pieces.
        folder: Of a run; its pieces go before those that are kept.
        kept: A file as finished.jsonl; None is none.
    """
    files = [piece.file(folder) for piece in plan]
    lines = [] if kept is None or not kept.exists() else kept.read_text(encoding="utf-8").splitlines()
    lines += [file.read_text(encoding="utf-8") for file in files if file.exists()]
    settings = {name: digest(cell) for name, cell in {piece.cell.name: piece.cell for piece in plan}.items()}
    known = {piece.name: settings[piece.cell.name] for piece in plan}
    found: dict[str, Finished] = {}
    others: set[str] = set()
    for each in map(Finished.from_json, lines):
        if known.get(each.piece) == each.settings:
            found[each.piece] = each
        else:
            others.add(each.piece)
    return found, sorted(others - set(found))


def keep(found: Mapping[str, Finished], file: Path = KEPT) -> None:
    """Writes pieces to a file as finished.jsonl, sorted by their names; the file then has no others."""
    put(file, "".join(f"{found[name].to_json()}\n" for name in sorted(found)).encode())


def digest(cell: Cell) -> str:
    """A digest of the study of a cell, which holds all settings and the digest of the text."""
    return cell.study.fingerprint()[:16]


def version() -> str:
    """Driftline's version and, in a checkout, its commit; `-dirty` if it differs from it."""
    describe = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        done = subprocess.run(describe, cwd=KEPT.parent, check=True, text=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return __version__
    return f"{__version__}+{done.stdout.strip()}"
