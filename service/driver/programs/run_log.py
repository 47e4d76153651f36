"""The log of a program's output, bounded in size."""

from __future__ import annotations

import os
import re
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

MOST_BYTES = 4 * 2**20
"""Largest log: its beginning and its end, of half this size each, are kept."""

LAST_LINES = 5
"""Lines of stderr that an error quotes."""

_LONGEST = 300  # most characters of a quoted line
_BLOCK = 1 << 16
_ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")  # colours and movements of a terminal's cursor


class RunLog:
    """A file with what a program prints; threads drain its pipes, so that it never waits for a reader.

    Args:
        path: The file; the beginning of what earlier runs of the trial printed stays in front.
        most_bytes: Largest size of the log.
    """

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES) -> None:
        self._half = most_bytes // 2
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._open(path)

    def _open(self, path: Path) -> None:
        self.path = path
        self._tail = bytearray()
        self._dropped = 0
        self._last: deque[str] = deque(maxlen=LAST_LINES)
        self._rest = b""
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        self._file = os.open(path, flags, 0o600)
        self._size = os.fstat(self._file).st_size
        if self._size > self._half:  # the end of the earlier run makes room for this one
            self._dropped = self._size - self._half
            self._size = self._half
            os.ftruncate(self._file, self._half)

    def drain(self, pipe: IO[bytes], *, named: bool) -> None:
        """Reads a pipe until it ends.

        Args:
            pipe: The pipe; it is closed at its end.
            named: Whether an error quotes its last lines.
        """
        thread = threading.Thread(target=self._read, args=(pipe, named), daemon=True)
        thread.start()
        self._threads.append(thread)

    def close(self, wait_s: float = 5.0) -> bool:
        """Writes the end of the log when the pipes have ended, or after `wait_s`; returns whether they have ended."""
        deadline = time.monotonic() + wait_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        with self._lock:
            self._finish()
        return not any(thread.is_alive() for thread in self._threads)

    def turn_to(self, path: Path) -> None:
        """Ends the log of a trial, and begins that of the next one, which the same process trains."""
        with self._lock:
            self._finish()
            self._open(path)

    def last_lines(self) -> str:
        """The last lines of stderr, in one line, without control characters; "" if it printed none."""
        with self._lock:
            lines = [*self._last, *_texts([self._rest])]
        return " | ".join(line[-_LONGEST:] for line in lines[-LAST_LINES:] if line)

    def _read(self, pipe: IO[bytes], named: bool) -> None:
        with pipe:
            while block := os.read(pipe.fileno(), _BLOCK):
                with self._lock:
                    self._keep(block)
                    if named:
                        self._name(block)

    def _finish(self) -> None:
        if self._dropped:
            self._write(f"\n... {self._dropped} bytes were left out ...\n".encode())
        self._write(bytes(self._tail))
        self._tail.clear()
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def _keep(self, block: bytes) -> None:
        if self._file < 0:
            return  # closed: a process that left the group still prints
        room = max(self._half - self._size, 0)
        self._write(block[:room])
        self._tail += block[room:]
        if (surplus := len(self._tail) - self._half) > 0:
            del self._tail[:surplus]
            self._dropped += surplus

    def _name(self, block: bytes) -> None:
        *lines, self._rest = (self._rest + block)[-_BLOCK:].split(b"\n")
        self._last.extend(_texts(lines[-2 * LAST_LINES :]))

    def _write(self, data: bytes) -> None:
        try:
            self._size += os.write(self._file, data) if data else 0
        except OSError:  # a full disk: training is worth more than its log
            self._size += len(data)


def _texts(lines: Iterable[bytes]) -> Iterator[str]:
    """Lines as a terminal would show them at the end: of a progress bar, which overwrites itself, the last state."""
    for line in lines:
        text = line.decode(errors="replace").rstrip().rpartition("\r")[2]
        text = "".join(letter if letter.isprintable() else " " for letter in _ESCAPE.sub("", text)).strip()
        if text:
            yield text
