"""An output folder: which study it belongs to, who works in it, and the files that people open."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from service.errors import Conflict, NotFound
from service.results.curves import TrialCurve
from service.results.document import Objective
from service.results.figures.page import frontier_html
from service.results.figures.picture import frontier_png
from service.results.trials import trials_csv
from service.store.store import Store

DATABASE = "driftline.db"
LOCK = ".lock"
LOG = "driver.log"


class Folder:
    """The output folder of one study, held by this process alone until it is closed.

    Args:
        path: The folder; made when it is not there.
        create: False: it must hold a study already.

    Attributes:
        path: The folder.
        store: Its database.

    Raises:
        NotFound: It holds no study, and `create` is False.
        Conflict: It holds files that are not Driftline's, or another process works in it.
    """

    def __init__(self, path: Path, *, create: bool = True) -> None:
        self.path = path
        database = path / DATABASE
        if not database.is_file():
            _refuse_others(path, create)
        path.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(path)
        try:
            self.store = Store(database)
        except BaseException:
            self._lock.close()
            raise

    @property
    def mlflow_uri(self) -> str:
        """Tracking URI of the folder's MLflow database."""
        return f"sqlite:///{(self.path / 'mlflow.db').resolve()}"

    def claim(self, name: str, fingerprint: str) -> None:
        """Makes this the folder of a study.

        Args:
            name: The study's name, for the error.
            fingerprint: What tells it from others.

        Raises:
            Conflict: It is another study's.
        """
        if self.store.set_fact("fingerprint", fingerprint) != fingerprint:
            owner = next((record.name for record in self.store.studies(limit=1)), "another")
            other = "with other settings" if owner == name else f"({owner!r})"
            raise Conflict(
                f"{self.path} must be empty or hold this very study, got the results of a study {other}: "
                "choose another folder with --out"
            )

    def write(self, result: dict[str, Any], curves: Sequence[TrialCurve], objective: Objective, rounds: int) -> None:
        """Writes the files that people open; each one whole or not at all.

        Args:
            result: The document of frontier.json.
            curves: All trials.
            objective: What was chosen as quality and cost.
            rounds: Budget of a trial in rounds.
        """
        self._put("frontier.json", json.dumps(result, indent=2) + "\n")
        self._put("trials.csv", trials_csv(curves, result, objective, rounds))
        self._put("frontier.png", frontier_png(result))
        self._put("frontier.html", frontier_html(result, curves))

    def keep_source(self, text: str) -> None:
        """Keeps the study's file as it was given, once."""
        if not (self.path / "study.yaml").exists():
            self._put("study.yaml", text)

    def close(self) -> None:
        """Lets go of the database and of the folder."""
        self.store.close()
        self._lock.close()

    def _put(self, name: str, content: str | bytes) -> None:
        data = content.encode() if isinstance(content, str) else content
        part = self.path / f".{name}.part"
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self.path / name)


def _refuse_others(path: Path, create: bool) -> None:
    if path.exists() and not path.is_dir():
        raise Conflict(f"the output folder must be a folder, got the file {path}: choose another one with --out")
    if not create:
        raise NotFound(f"no study in {path}: name a folder that `driftline run` wrote, or run a study into it")
    foreign = sorted(entry.name for entry in path.iterdir() if entry.name != LOCK) if path.exists() else []
    if foreign:
        raise Conflict(
            f"{path} must be empty or hold this very study, got other files ({', '.join(foreign[:3])}"
            f"{', ...' if len(foreign) > 3 else ''}): choose another folder with --out"
        )


def _lock(path: Path) -> IO[str]:
    file = (path / LOCK).open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        holder = file.read().strip() or "another process"
        file.close()
        raise Conflict(f"{path} must be free, but {holder} works in it: wait until it ends") from None
    file.truncate(0)
    file.write(f"process {os.getpid()}")
    file.flush()
    return file
