"""A program's trial as a pack of one: the part of `trainers.Pack` that a worker uses, and a few more methods."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from service.driver.job import PackJob
from service.driver.programs.node_run import UNUSABLE, NodeFault, NodeRun, OtherNodes, TrialNode, failure, tell
from service.driver.programs.process import Process, RestingProgram
from service.driver.programs.report_lines import LONGEST, SECONDS, LineError, ProgramError, ReportLines
from service.driver.programs.run_log import RunLog
from service.driver.programs.saved_folder import packed, unpacked

DECISION_S = 60.0
"""How long a program waits at a rung for a decision, if the driver lives."""

ENDED = b'{"ended": true}'
"""The line by which a reused program reports that a trial has ended, and that it waits for the next one."""

_PAUSES_S = (0.005, 0.05)  # between two looks at a program: at first, and at most
_BLOCK_BYTES = 1 << 18  # of report lines that are read at once
_MOST_LINES = 20_000  # report lines that are passed on at once, about
_ROUNDS_COUNTED = 1000  # newest rounds whose checkpoint may still come
_LAST_S = 2.0  # to wait for the fault of another node that may have ended the first one


class ProgramPack:
    """One trial of a program, from its start to its end.

    Args:
        job: The pack, with one member.
        saved: A packed checkpoint to continue from; None at the beginning.
        resting: A program that waits for another trial, if there is one; used if it is of the trial's kind.
        others: The trial's other nodes; None if it has none.

    Attributes:
        members: Always 1.
        round: The last round that `advance` has returned.
        saves: Whether the program writes checkpoints; if not, it waits at rungs for a decision.
        resting: The program, if it waits for another trial after this one; whoever takes it must end it.
        remark: A message for the driver's log, to be logged once; None if there is none.

    Raises:
        ProgramError: The program cannot be started.
        Damaged: The checkpoint is not what was written.
        OSError: There is no room for its files.
    """

    members = 1

    def __init__(
        self,
        job: PackJob,
        saved: bytes | None = None,
        resting: RestingProgram | None = None,
        others: OtherNodes | None = None,
    ) -> None:
        document = job.document
        self._others = others
        self.resting = resting
        self._through = False  # whether it has reported `ENDED`, and waits for another trial
        self._program: Mapping[str, Any] = document["program"]
        self._rounds: int = document["rounds"]
        self.saves = bool(self._program["checkpoints"])
        self._reuse = bool(self._program.get("reuse"))
        self._until = self._rounds if job.until is None else job.until  # the last round, as far as decided
        self._last = self._until if self.saves else self._rounds
        self._undecided = self._until < self._last
        self._work = Path(f"{job.place}.{job.start[0]}.{job.start[1]}.work")
        shutil.rmtree(self._work, ignore_errors=True)
        self._error: ProgramError | None = None
        self._process: Process | None = None
        self._file = -1
        try:
            self._begin(job, saved)
        except BaseException:
            self.close()
            raise

    def _begin(self, job: PackJob, saved: bytes | None) -> None:
        document = job.document
        self._folders = self._work / "checkpoints"
        self._folders.mkdir(parents=True)
        self._taken = self._work / "taken"
        self._taken.mkdir()
        self.remark: str | None = None
        state = {} if saved is None else unpacked(saved, self._work / "resume")
        self.round = self._saved_round = first = int(state.get("round", 0))
        self._seconds = float(state.get("seconds", 0.0))
        costs: dict[str, float] = state.get("costs", {})
        self._before = {"costs": costs, "seconds": self._seconds}
        declared = self._program.get("costs", ())
        self._lines = ReportLines(
            self._program["metrics"], declared, document["quality"], first=first, last=self._until, before=costs
        )
        self._counted: dict[int, dict[str, Any]] = {}  # costs and seconds after rounds that may have a checkpoint
        self._held: dict[str, Any] | None = None
        self._read_to = 0
        self._part = b""
        self._wanted = 0
        self._reports = self._work / "reports.jsonl"
        self._file = os.open(self._reports, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._tell()
        self._process = self._started(job, first)
        self._heard = self._began = time.monotonic()

    # ---- what `trainers.Pack` has

    @property
    def done(self) -> bool:
        """Whether nothing is left to report."""
        return self._lines.diverged or self.round >= self._rounds

    def advance(self, max_rounds: int | None = None, seconds: float | None = None) -> list[dict[str, Any]]:
        """The report lines of about the next `seconds`; returns earlier if the program ends.

        The line of the last round is returned only when the program has ended well: its checkpoint is complete then.

        Args:
            max_rounds: Ignored; the program knows its last round.
            seconds: How long to wait; None waits until it ends.

        Raises:
            ProgramError: The program did something wrong or ended too early; its report lines were returned before.
        """
        if self._error is not None:
            raise self._error
        deadline = time.monotonic() + (float("inf") if seconds is None else seconds)
        lines: list[dict[str, Any]] = []
        pause = _PAUSES_S[0]
        try:
            while self._process is not None:
                code = self._process.code  # before reading, so that all lines of an ended program are read
                more = self._read(lines)
                if self._through:
                    code = 0
                if not more and code is not None:
                    self._read_end(lines, well=code == 0)
                if self._lines.diverged:
                    self._end()
                elif not more and code is None and self._others is not None and (fault := self._others.wait(0.0)[1]):
                    raise self._other_error(fault)
                elif more:
                    if len(lines) >= _MOST_LINES or time.monotonic() >= deadline:
                        break
                elif code is not None:
                    if self._through:
                        self.resting, self._process = RestingProgram(self._process, self._kind), None
                    self._judge(code)
                    self._end()
                    lines += [self._held] if self._held is not None else []
                elif time.monotonic() >= deadline or (lines and self.waits):
                    break
                elif self.waits and time.monotonic() - self._heard > DECISION_S:
                    self.go_on(self._until)
                elif not self.waits and time.monotonic() - self._heard > self._program["silence"]:
                    limit, number = f"{self._program['silence']:g} s (program.silence)", self._lines.round
                    if self._held is not None:
                        raise ProgramError(f"did not end within {limit} after round {number}, its last one")
                    due = f", must report round {self._until}, a rung" if self._undecided else ""
                    raise ProgramError(f"reported nothing for {limit} after round {number}{due}")
                else:
                    time.sleep(pause)
                    pause = min(2 * pause, _PAUSES_S[1])
        except ProgramError as error:
            self._end()
            self._end_resting()
            self._error = self._named(error)
            if not lines:
                raise self._error from error
        if lines:
            self.round = lines[-1]["round"]
        return lines

    @staticmethod
    def split(data: bytes) -> list[bytes]:
        """The checkpoint of the one member."""
        return [data]

    def to_bytes(self) -> bytes:
        """The packed checkpoint of the last round, with which the program has ended at a rung."""
        return self._packed(self._folders / str(self.round))

    # ---- what only a program has

    @property
    def running(self) -> bool:
        """Whether the program runs, as far as `advance` has seen."""
        return self._process is not None

    @property
    def waits(self) -> bool:
        """Whether the program waits at a rung for a decision."""
        return self._undecided and self._process is not None and self._lines.round >= self._until

    def go_on(self, until: int) -> bool:
        """Tells a program that waits at a rung how far to go; returns whether it continues.

        Args:
            until: The next rung, or the last round; a round that the program has reached makes it end.
        """
        if not self.waits or self._process is None or self._process.code is not None:
            return False
        further = until > self._until
        if further:
            self._until = self._lines.last = until
        self._undecided = further and until < self._last
        self._heard = time.monotonic()
        self._tell()
        return further

    @property
    def trace(self) -> str:
        """Details of a fault: where the log is, and the last lines of stderr."""
        last = self._log.last_lines()
        return f"log: {self._log_place}" + (f"; stderr: {last}" if last else "")

    def newest(self) -> tuple[int, bytes] | None:
        """Round and content of a checkpoint that is newer than all before, if any; requests the next one."""
        self._wanted += 1
        self._tell()
        rounds = [number for number in self._written() if self._saved_round < number <= self.round]
        if not rounds:
            return None
        self._saved_round = max(rounds)
        folder = self._taken / str(self._saved_round)
        (self._folders / folder.name).rename(folder)  # the program cannot change it there
        try:
            data = self._packed(folder)
        finally:
            for old in (folder, *(self._folders / str(number) for number in rounds)):
                shutil.rmtree(old, ignore_errors=True)
        return self._saved_round, data

    def stop(self) -> list[dict[str, Any]]:
        """Makes the program write a checkpoint and end; returns its last report lines."""
        lines: list[dict[str, Any]] = []
        if self._process is None:
            return lines
        if not self._process.terminate(self._program["grace"]):
            self.remark = (
                f"the program ignored SIGTERM for {self._program['grace']:g} s and was killed: {self._log_place}"
            )
        code = self._process.code
        try:
            while self._read(lines) and len(lines) < _MOST_LINES:
                pass
            self._read_end(lines, well=code == 0)
            if code == 0 and self._held is not None:
                self._judge(code)
                lines.append(self._held)
        except ProgramError as error:
            self.remark = str(self._named(error))
        self._end()
        if lines:
            self.round = lines[-1]["round"]
        return lines

    def close(self) -> None:
        """Ends everything that the program has started, and removes its folder; its log stays."""
        self._end()
        self._end_resting()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        shutil.rmtree(self._work, ignore_errors=True)

    # ---- inside

    def _started(self, job: PackJob, first: int) -> Process:
        checkpoints = self._folders if self.saves else None
        run = NodeRun(
            job, self._work, first=first, last=self._last, reports=str(self._reports), checkpoints=checkpoints
        )
        self._kind = run.kind
        log = Path(f"{job.place}.log")
        resting, self.resting = self.resting, None
        if resting is not None and (process := resting.take_on(self._kind, log, run.document)) is not None:
            self._log = process.log
            return process
        self._log = RunLog(log)
        node = TrialNode()
        try:
            if self._others is not None:
                node = self._others.start(first=first, last=self._last)
            return run.started(self._log, node)
        except ProgramError as error:
            self._log.close()
            raise self._named(error) from error

    def _read(self, lines: list[dict[str, Any]]) -> bool:
        """Reads new report lines, up to the last complete line or `_BLOCK_BYTES`; returns whether there may be more."""
        status = os.fstat(self._file)
        with contextlib.suppress(FileNotFoundError):
            if not os.path.samestat(os.stat(self._reports), status):
                raise LineError("has replaced its file of reports: append lines to it")
        if status.st_size < self._read_to:
            raise LineError("has cut its file of reports: append lines to it")
        data = os.pread(self._file, _BLOCK_BYTES, self._read_to)
        self._read_to += len(data)
        *texts, self._part = (self._part + data).split(b"\n")
        if len(self._part) > LONGEST:
            raise LineError(f"reported a line of more than {LONGEST} bytes")
        for text in texts:
            if self._reuse and text.strip() == ENDED:
                self._through = True
            elif text.strip() and not self._lines.diverged:
                self._take(self._lines.read(text), lines)
        return len(data) == _BLOCK_BYTES

    def _read_end(self, lines: list[dict[str, Any]], *, well: bool) -> None:
        """Takes a last line without a newline; if the program has not ended well, a torn line is ignored."""
        text, self._part = self._part, b""
        if text.strip() and not self._lines.diverged:
            with contextlib.nullcontext() if well else contextlib.suppress(LineError):
                self._take(self._lines.read(text), lines)

    def _take(self, line: dict[str, Any], lines: list[dict[str, Any]]) -> None:
        self._heard = time.monotonic()
        line[SECONDS] = self._seconds + self._heard - self._began
        if self.saves:
            self._counted[line["round"]] = {"costs": self._lines.costs, "seconds": line[SECONDS]}
            if len(self._counted) > 2 * _ROUNDS_COUNTED:
                kept = {*map(self._counted_at, self._written()), *list(self._counted)[-_ROUNDS_COUNTED:]}
                self._counted = {number: at for number, at in self._counted.items() if number in kept}
        if line["round"] >= self._last and not line["diverged"]:
            self._held = line
        else:
            lines.append(line)

    def _judge(self, code: int) -> None:
        """Raises a ProgramError unless the program has ended as it should, on all nodes."""
        last = f"after round {self._lines.round} of {self._last}"
        if self._others is not None:
            ended, fault = self._others.wait(_LAST_S if code else self._program["grace"])
            if fault is not None:
                raise self._other_error(fault)
            if not ended and not code:
                raise ProgramError(f"did not end on all nodes within {self._program['grace']:g} s of the first, {last}")
        if code:
            raise ProgramError(f"{failure(code)}, {last}", final=code in UNUSABLE and not self._lines.begun)
        if self._held is None:
            if self._lines.round == self._until < self._rounds:
                return  # at a rung
            raise ProgramError(f"ended {last}, must report the last one")
        if self._last < self._rounds and self._last not in self._written():
            raise ProgramError(f"ended at the rung, {last}, without a checkpoint: write one when it is due")

    def _other_error(self, fault: NodeFault) -> ProgramError:
        """The error for a fault on another node; a fault of the first node may be only a consequence of it."""
        where = f"node {fault.rank}" + (f" ({fault.host})" if fault.host else "")
        text = f"{fault.text} on {where}, after round {self._lines.round} of {self._last}"
        text += f"; stderr there: {fault.stderr}" if fault.stderr else ""
        return ProgramError(text, final=fault.final and not self._lines.begun)

    def _end(self) -> None:
        if self._others is not None:
            self._others.end()
        if self._process is not None:
            left, unseen = self._process.end(), self._process.unseen
            self._process = None
            if left and self.remark is None:
                processes = "a process" if left == 1 else f"{left} processes"
                self.remark = f"the program left {processes} behind, now ended: {self._log_place}"
            elif unseen and self.remark is None:
                processes = "a process that hides and keeps its output open: it may still run"
                self.remark = f"the program left {processes}: {self._log_place}"

    @property
    def _log_place(self) -> str:
        """Where users find the log; the log file of a service's program is removed with its trial."""
        return str(self._log.path) if self._program["folder"] else "driftline logs"

    def _end_resting(self) -> None:
        if self.resting is not None:
            self.resting.process.dismiss()
        self.resting = None

    def _named(self, error: ProgramError) -> ProgramError:
        """The error with the place of the log and the last lines of stderr."""
        return ProgramError(f"the program {error}; {self.trace}", final=error.final)

    def _tell(self) -> None:
        tell(self._work, self._until, checkpoint=self._wanted, wait=self._undecided)

    def _written(self) -> list[int]:
        """Rounds of the checkpoint folders that are complete."""
        if not self.saves:
            return []
        with os.scandir(self._folders) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        return [int(name) for name in names if name.isascii() and name.isdecimal() and name == str(int(name))]

    def _packed(self, folder: Path) -> bytes:
        number = int(folder.name)
        return packed(folder, {"round": number, **self._counted.get(self._counted_at(number), self._before)})

    def _counted_at(self, number: int) -> int:
        """The last reported round up to this one."""
        return max((counted for counted in self._counted if counted <= number), default=-1)
