"""A page of the documentation as what it tells people to type, and terminals to type it into."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

COMMANDS = ("driftline ", "export ", "sqlite3 ", "rm ", "cp ", "pg_dump ", "pg_restore ")


class Page:
    """The commands and fenced blocks of a page, in their order.

    Args:
        file: The page, in Markdown.

    Attributes:
        typed: The commands that `take` has handed out.
    """

    def __init__(self, file: Path) -> None:
        self._text = file.read_text(encoding="utf-8")
        self.typed: list[str] = []

    def commands(self) -> list[str]:
        """All lines of indented blocks that are commands, without what stands behind them as a remark."""
        lines = [line[4:] for line in self._text.splitlines() if re.match(r" {4}\S", line)]
        return [re.split(r"\s{3,}", line)[0] for line in lines if line.startswith(COMMANDS)]

    def take(self, beginning: str) -> str:
        """The first command of the page that begins like that and has not been taken."""
        left = self.commands()
        for command in self.typed:
            left.remove(command)
        found = [command for command in left if command.startswith(beginning)]
        assert found, f"the page has no further command {beginning!r}; left are {left}"
        self.typed.append(found[0])
        return found[0]

    def block(self, beginning: str) -> str:
        """The indented block whose first line begins like that."""
        found = re.search(rf"^    {re.escape(beginning)}.*\n(?:(?: {{4}}.*)?\n)*", self._text, re.MULTILINE)
        assert found is not None, beginning
        return "\n".join(line[4:] for line in found[0].splitlines()).rstrip() + "\n"

    def python(self, word: str) -> str:
        """The Python block that holds a word."""
        (found,) = [text for text in re.findall(r"```python\n(.*?)```", self._text, re.DOTALL) if word in text]
        return str(found)


class Terminal:
    """A shell that keeps what was exported.

    Args:
        folder: Where it is.
        environment: Its environment.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self._shell = subprocess.Popen(
            ["env", "--default-signal=INT", "bash", "--norc"],  # Ctrl-C works although these tests may ignore it
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._number = 0
        self.said = ""
        threading.Thread(target=self._read, daemon=True).start()

    def type(self, command: str) -> None:
        """Types a command and its end-of-line."""
        self._number += 1
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"{command}\necho {self._mark} $?\n")
        self._shell.stdin.flush()
        self.said = ""

    def until(self, true: Callable[[], object], seconds: float) -> None:
        """Reads what is said until something holds."""
        deadline = time.monotonic() + seconds
        while not true():
            self._take(0.1)
            assert time.monotonic() < deadline, f"waited in vain; it said:\n{self.said}"

    def ended(self, seconds: float = 120.0) -> int:
        """Waits until the command has ended; its exit code."""
        self.until(lambda: f"{self._mark} " in self.said, seconds)
        self.said, _, code = self.said.partition(f"{self._mark} ")
        return int(code)

    def run(self, command: str, code: int = 0, seconds: float = 120.0) -> str:
        """What a command says, which must end with this exit code; without the line about a slow service (stderr)."""
        self.type(command)
        found = self.ended(seconds)
        assert found == code, f"{command} ended with {found}:\n{self.said}"
        return re.sub(r"(?m)^Waiting for an answer from .*\n", "", self.said)

    def interrupt(self) -> None:
        """Ctrl-C: for the command that runs."""
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, IndexError):
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == self._shell.pid:
                    os.kill(int(entry.name), signal.SIGINT)

    def close(self) -> None:
        """Ends the shell with all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGTERM)
        try:
            self._shell.wait(40)
        except subprocess.TimeoutExpired:
            os.killpg(self._shell.pid, signal.SIGKILL)
            self._shell.wait()
        for entry in Path("/proc").glob("[0-9]*"):  # drivers outlive their service
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_text(errors="replace")
                if "service.driver" in command and str(self.folder) in command:
                    os.kill(int(entry.name), signal.SIGKILL)
        for pipe in (self._shell.stdin, self._shell.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()

    @property
    def _mark(self) -> str:
        return f"__ended_{self._number}__"

    def _take(self, seconds: float) -> None:
        with contextlib.suppress(queue.Empty):
            self.said += self._lines.get(timeout=seconds)
            while True:
                self.said += self._lines.get_nowait()

    def _read(self) -> None:
        assert self._shell.stdout is not None
        with contextlib.suppress(ValueError):  # closed
            for line in self._shell.stdout:
                self._lines.put(line)
