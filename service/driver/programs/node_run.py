"""Starts a program on one node of its trial, with its document and its environment.

On the first node, `program_pack` reads the program's reports and checkpoints. On the other nodes, `OtherRun` starts the
same program for the same trial, but discards its reports and lets it write no checkpoints.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from driftline.program_command import command_file
from service.child_environment import program_environment
from service.driver import checkpoints
from service.driver.job import PackJob
from service.driver.programs.node_folder import NodeFolder
from service.driver.programs.process import VARIABLE, Process
from service.driver.programs.report_lines import ProgramError
from service.driver.programs.run_log import RunLog
from service.driver.programs.saved_folder import FOLDER, unpacked
from service.signal_names import signal_name

UNUSABLE = (2, 126, 127)
"""Exit codes of a wrong argument, and of a command that cannot run."""

_PAUSE_S = 0.05


@dataclass(frozen=True)
class TrialNode:
    """A node of a trial, as described to its program.

    Attributes:
        rank: Number of the node, from 0.
        nodes: Number of nodes of the trial.
        address: Address of the first node.
        port: A free port on the first node; 0 takes a free one of this machine.
    """

    rank: int = 0
    nodes: int = 1
    address: str = "127.0.0.1"
    port: int = 0

    def variables(self) -> dict[str, str]:
        """Variables of the program's environment."""
        return {
            "DRIFTLINE_NODE_RANK": str(self.rank),
            "DRIFTLINE_NODES": str(self.nodes),
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port or free_port()),
        }


@dataclass(frozen=True)
class NodeFault:
    """A failure on a node other than the first.

    Attributes:
        rank: Number of the node.
        host: Name of its machine; "" if unknown.
        text: What went wrong, worded as in a `ProgramError`.
        stderr: The last lines of stderr there.
        final: Whether another attempt would end in the same way.
    """

    rank: int
    host: str
    text: str
    stderr: str = ""
    final: bool = False


class OtherNodes(Protocol):
    """All nodes of a trial but the first."""

    def start(self, *, first: int, last: int) -> TrialNode:
        """Starts the program on these nodes, to train rounds after `first` until `last`; returns the first node."""

    def wait(self, seconds: float) -> tuple[bool, NodeFault | None]:
        """Waits up to `seconds` until the program has ended on all nodes, or has a fault on one.

        Returns:
            Whether it has ended on all nodes; the fault, or None.
        """

    def end(self) -> None:
        """Ends the program on all these nodes."""


class NodeRun:
    """A run of a program on one node.

    Args:
        job: The trial; its place and files are on this node.
        work: Folder of the run, with the checkpoint of `first` unpacked in ``resume``.
        first: Round from which the program continues; 0 at the beginning.
        last: Round at which the program ends.
        reports: The file to which the program appends report lines.
        checkpoints: Folder for checkpoints; None if the program must write none.

    Attributes:
        document: The trial's document.
        kind: What the program is started with; a reused program only trains trials of its own kind.
    """

    def __init__(
        self, job: PackJob, work: Path, *, first: int, last: int, reports: str, checkpoints: Path | None
    ) -> None:
        document = job.document
        program: Mapping[str, Any] = document["program"]
        self._reuse = bool(program.get("reuse"))
        told = {
            **{name: document[name] for name in ("hyperparameters", "seed", "label", "rounds")},
            "first": first,
            "last": last,
            "resume": str(work / "resume" / FOLDER) if first else None,
            "reports": reports,
            "control": str(work / "control.json"),
            "checkpoints": None if checkpoints is None else str(checkpoints),
            "grace": program["grace"],
            "gpus": job.gpus,
            **({"reuse": True} if self._reuse else {}),
            **({"function": program["function"]} if "function" in program else {}),
        }
        self.document = work / "trial.json"
        text = json.dumps(told, ensure_ascii=False)  # paths as they are, for programs that do not parse JSON
        self.document.write_text(text, encoding="utf-8", errors="surrogateescape")
        self._folder: str = job.files or program["folder"]
        threads = str(max(1, int(job.cpus)))
        self._environment = {"OMP_NUM_THREADS": threads, **program_environment(program, os.environ)}
        word, *arguments = program["command"]
        file = command_file(word, self._folder, self._environment.get("PATH", os.defpath))
        self._command = [file, *arguments]
        self.kind = (self._command, self._folder, self._environment, job.gpus, self._reuse)

    def started(self, log: RunLog, node: TrialNode) -> Process:
        """Starts the program.

        Raises:
            ProgramError: The program cannot be started.
        """
        environment = {**node.variables(), **self._environment, VARIABLE: str(self.document)}
        return Process(self._command, self._folder, environment, log, reuse=self._reuse)


class OtherRun:
    """The program on a node other than the first; reads the checkpoint from which it continues.

    Args:
        job: The trial.
        node: This node.
        first: Round from which the program continues.
        last: Round at which the program ends.
        url: Path or URL of the checkpoint of `first`; None at the beginning.

    Raises:
        ProgramError: The program cannot be started.
        OSError: There is no room for its files, or the checkpoint or the program's files cannot be read.
    """

    def __init__(self, job: PackJob, node: TrialNode, *, first: int, last: int, url: str | None) -> None:
        self._folder = None if job.place else NodeFolder(job)
        self._process: Process | None = None
        job = replace(job, place=f"{job.place}.node{node.rank}") if self._folder is None else self._folder.job
        self._rank = node.rank
        self._work = Path(f"{job.place}.{job.start[0]}.{job.start[1]}.work")
        try:
            shutil.rmtree(self._work, ignore_errors=True)
            self._work.mkdir(parents=True)
            if url is not None:
                unpacked(checkpoints.read(url), self._work / "resume")
            tell(self._work, last)
            run = NodeRun(job, self._work, first=first, last=last, reports=os.devnull, checkpoints=None)
            self._log = RunLog(Path(f"{job.place}.log"))
            try:
                self._process = run.started(self._log, node)
            except BaseException:
                self._log.close()
                raise
        except BaseException:
            self.close()
            raise

    def wait(self, stop: threading.Event) -> NodeFault | None:
        """Waits until the program ends, or `stop` is set; then ends all its processes. None if it did not fail."""
        assert self._process is not None
        while (code := self._process.code) is None and not stop.wait(_PAUSE_S):
            pass
        self._process.end()
        if not code or stop.is_set():
            return None
        if self._folder is not None:
            self._folder.print_log()
        last = self._log.last_lines()
        return NodeFault(self._rank, socket.gethostname(), failure(code), last, final=code in UNUSABLE)

    def close(self) -> None:
        """Ends all its processes, and removes its folder."""
        if self._process is not None:
            self._process.end()
        shutil.rmtree(self._work, ignore_errors=True)
        if self._folder is not None:
            self._folder.close()


def other_run(job: PackJob, node: TrialNode, stop: threading.Event, *, first: int, last: int, url: str | None) -> Any:
    """Runs the program on a node other than the first until it ends or `stop` is set; returns a failure or None."""
    try:
        run = OtherRun(job, node, first=first, last=last, url=url)
    except (ProgramError, OSError) as error:
        final = isinstance(error, ProgramError) and error.final
        return NodeFault(node.rank, socket.gethostname(), " ".join(str(error).split()), final=final)
    try:
        return run.wait(stop)
    finally:
        run.close()


def failure(code: int) -> str:
    """An exit code in words; a negative code is a signal."""
    if code > 0:
        return f"ended with exit code {code}"
    name = signal_name(-code)
    return f"was killed by {name}" + (", as for lack of memory" if name == "SIGKILL" else "")


def tell(work: Path, until: int, *, checkpoint: int = 0, wait: bool = False) -> None:
    """Replaces the control file of a run."""
    file = work / "control.json"
    draft = file.with_name("control.draft")
    draft.write_text(json.dumps({"until": until, "checkpoint": checkpoint, "wait": wait}), encoding="utf-8")
    draft.replace(file)


def free_port() -> int:
    """A port of this machine that nothing uses now."""
    with socket.socket() as taken:
        taken.bind(("", 0))
        return int(taken.getsockname()[1])
