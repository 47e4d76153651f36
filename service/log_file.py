"""Log lines with text that others wrote: on stderr, and in a log file in an output folder."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path

from driftline.results.show.escaped_text import escaped_lines
from trainers.own_files import append

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class VisibleFormatter(logging.Formatter):
    """Formats log lines so that every character in them is visible; times are in UTC, with a Z behind them."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """The record's time in UTC."""
        return f"{datetime.fromtimestamp(record.created, UTC):%Y-%m-%d %H:%M:%S},{int(record.msecs):03d}Z"

    def format(self, record: logging.LogRecord) -> str:
        """The record's lines."""
        return escaped_lines(super().format(record))


def log_to_stderr(level: int) -> None:
    """Writes the log of this process, a service or one of its programs, to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(VisibleFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])


class LogFile(logging.FileHandler):
    """Appends to a log file, which is made with the first line; a link of its name is not followed.

    Args:
        file: The file.
    """

    def __init__(self, file: Path) -> None:
        super().__init__(file, encoding="utf-8", delay=True)
        self.setFormatter(VisibleFormatter(FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a line, if the file can be opened."""
        with contextlib.suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Drops a line that cannot be written, as on a full disk; a traceback for each would fill the terminal."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)

    def close(self) -> None:
        """Closes the file; lines for which there is no room are lost."""
        with contextlib.suppress(OSError):
            super().close()

    def _open(self) -> TextIOWrapper:
        return os.fdopen(append(Path(self.baseFilename)), "a", encoding="utf-8")
