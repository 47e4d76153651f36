"""A log file in an output folder."""

from __future__ import annotations

import logging
import os
from io import TextIOWrapper
from pathlib import Path

from trainers.own_files import append

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class LogFile(logging.FileHandler):
    """Appends to a log file, which is made with the first line; a link of its name is not followed.

    Args:
        file: The file.
    """

    def __init__(self, file: Path) -> None:
        super().__init__(file, encoding="utf-8", delay=True)
        self.setFormatter(logging.Formatter(FORMAT))

    def _open(self) -> TextIOWrapper:
        return os.fdopen(append(Path(self.baseFilename)), "a", encoding="utf-8")
