"""docs/kubernetes.md as people follow it: its commands, section by section, in one shell."""

import os
import re
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.kubernetes.tools import FOLDER
from tests.kubernetes_cluster.node import ROOT, say

PAGE = ROOT / "docs" / "kubernetes.md"


@dataclass(frozen=True)
class Change:
    """What a test does differently from the page.

    Attributes:
        old: Text on the page.
        new: Text instead; None does not run the whole command.
        why: Why the page's own text cannot be followed.
    """

    old: str
    new: str | None
    why: str


@dataclass(frozen=True)
class Command:
    """One command of the page.

    Attributes:
        section: Its heading.
        text: The command as the page has it, with its lines that end in a backslash.
    """

    section: str
    text: str


def commands(text):
    """The shell commands of a page: what is indented by four spaces outside of fences."""
    found, section, fenced, begun = [], "", False, ""
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif line.startswith("#") and not fenced:
            section = line.lstrip("# ")
        elif line.startswith("    ") and not fenced:
            begun += line.removeprefix("    ")
            if begun.endswith("\\"):
                begun += "\n"
                continue
            found.append(Command(section, begun))
            begun = ""
    return found


def values(text):
    """The YAML of a page's fences."""
    return [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]


class Page:
    """The page and how far it has been followed.

    Args:
        shell: Where its commands run.
        changes: What is done differently.
    """

    def __init__(self, shell, changes):
        self._shell = shell
        self._changes = changes
        self._left = commands(PAGE.read_text())
        self._used = set()

    def follow(self, section, stop=None, timeout=660):
        """Runs the next commands of a section.

        Args:
            section: Its heading.
            stop: The first command, by its beginning, that is left for later.
            timeout: Seconds that each may take.

        Returns:
            What they printed.
        """
        assert self._left, "the whole page has been followed"
        said = []
        while self._left and self._left[0].section == section:
            if stop is not None and self._left[0].text.startswith(stop):
                break
            said.append(self._run(self._left.pop(0), timeout))
        assert said, f"the next command is of section {self._left[0].section!r}, not of {section!r}"
        return "\n".join(said)

    def finish(self):
        """Checks that every command was run, and every change was needed."""
        assert not self._left, f"not run: {[command.text for command in self._left]}"
        unused = [change.old for change in self._changes if change not in self._used]
        assert not unused, f"the page no longer says: {unused}"

    def _run(self, command, timeout):
        text = command.text
        for change in self._changes:
            if change.old in text:
                self._used.add(change)
                if change.new is None:
                    say(f"page: {text}\n          not run: {change.why}")
                    return ""
                text = text.replace(change.old, change.new)
        say(f"page: {text}")
        return self._shell.run(text, timeout)


class Shell:
    """A bash that keeps its variables and background jobs from command to command.

    Args:
        argv: A command line that ends with bash.
        environment: Variables beside this process's own.
    """

    def __init__(self, argv, environment):
        path = os.pathsep.join([str(FOLDER), str(Path(sys.executable).parent), os.environ["PATH"]])
        self._process = subprocess.Popen(
            [*argv, "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PATH": path, **environment},
            start_new_session=True,
        )
        self._count = 0

    def run(self, command, timeout=660, ok=True):
        """Runs a command and gives its output.

        Args:
            command: One command, or several lines.
            timeout: Seconds after which the shell is ended.
            ok: Whether it must end with 0; False wants a failure.
        """
        self._count += 1
        mark = f"--- end of command {self._count}:"
        self._process.stdin.write(f"{{\n{command}\n}} </dev/null\nprintf '\\n%s %s\\n' '{mark}' $?\n")
        self._process.stdin.flush()
        timer = threading.Timer(timeout, os.killpg, (self._process.pid, signal.SIGTERM))
        timer.start()
        said, code = [], None
        for line in self._process.stdout:
            if line.startswith(mark):
                code = int(line.removeprefix(mark))
                break
            said.append(line)
        timer.cancel()
        output = "".join(said).rstrip("\n")
        assert code is not None, f"{command} took more than {timeout} s:\n{output}"
        assert (code == 0) == ok, f"{command} ended with {code}:\n{output}"
        return output

    def close(self):
        """Ends the shell and its background jobs."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
            self._process.stdin.close()
            self._process.wait(10)
            self._process.stdout.close()
