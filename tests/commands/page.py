"""A page of the documentation as what it tells people to type, and a shell to type it into."""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from driftline.client.environment import environment
from driftline.errors import DriftlineError
from service.cli.main import app
from tests.waiting import until

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


class Begun:
    """A command that runs until Ctrl-C."""

    def __init__(self, command: str, folder: Path, variables: dict[str, str], log: Path) -> None:
        self._log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                # Ctrl-C works although these tests may ignore it
                ["env", "--default-signal=INT", "bash", "-c", f"exec {command}"],
                cwd=folder,
                env=variables,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        return self._log.read_text()

    def until(self, words: str) -> None:
        """Waits until the command has said this."""
        until(lambda: words in self.said, why=lambda: self.said)

    def interrupt(self) -> int:
        """Ctrl-C; the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)


class Shell:
    """Where somebody types commands, with what was exported before.

    Args:
        folder: Where it is.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("DRIFTLINE_", "RAY_"))}
        self.variables = {
            "DATA_DIR": str(Path(__file__).parents[3] / "shared" / "data"),
            **plain,
            "PATH": f"{Path(sys.executable).parent}:{plain['PATH']}",
            "OMP_NUM_THREADS": "1",
            "RAY_AUTH_MODE": "disabled",
            "RAY_worker_niceness": "0",  # see tests/conftest.py
        }
        self._begun: list[Begun] = []

    def export(self, command: str) -> None:
        """Types an `export` for all later commands."""
        done = subprocess.run(["bash", "-c", f"{command}; env -0"], env=self.variables, capture_output=True, check=True)
        self.variables = dict(line.split("=", 1) for line in done.stdout.decode().split("\0") if line)

    def run(self, command: str, code: int = 0) -> str:
        """What a command says, which must end with this exit code; Driftline's commands run in this process."""
        if command.startswith("driftline "):
            environment.cache_clear()
            with contextlib.chdir(self.folder):
                result = CliRunner().invoke(app, shlex.split(command)[1:], env=self.variables)
            environment.cache_clear()  # later tests of this process have another one
            error, ended, said = result.exception, result.exit_code, result.stdout
            if isinstance(error, DriftlineError):
                ended, said = error.exit_code, f"{said}{error}"
        else:
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=self.folder,
                env=self.variables,
                capture_output=True,
                text=True,
                timeout=300,
            )
            error, ended, said = None, done.returncode, done.stdout + done.stderr
        assert ended == code, f"{command} ended with {ended}:\n{said}{error!r}"
        return said

    def begin(self, command: str) -> Begun:
        """Types a command that goes on."""
        log = self.folder / f"said-{len(self._begun)}"
        self._begun.append(Begun(command, self.folder, self.variables, log))
        return self._begun[-1]

    def close(self) -> None:
        """Ends all that was begun."""
        for begun in reversed(self._begun):
            begun.process.terminate()
            begun.process.wait(60)
        for entry in Path("/proc").glob("[0-9]*"):  # drivers outlive their service
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_text(errors="replace")
                if "service.driver" in command and str(self.folder) in command:
                    os.kill(int(entry.name), signal.SIGKILL)
