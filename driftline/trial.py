"""What a training program imports to be tuned; it needs the standard library alone.

Example::

    from driftline import trial

    t = trial.current(client_lr=0.1, local_steps=4)    # the values of this trial; by hand, these defaults
    for r in t.rounds():
        ...
        t.report(r, test_loss=loss, bytes=sent)
        if t.checkpoint_due:
            with t.checkpoint() as folder:
                save(folder / "model.pt")

It reads and writes files, as programs in any language may do: docs/programs.md.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

VARIABLE = "DRIFTLINE_TRIAL"
"""Names the JSON document of the trial; without it a program runs by hand."""

ROUNDS_VARIABLE = "DRIFTLINE_ROUNDS"
ROUNDS_BY_HAND = 10

_PAUSE_S = 0.02  # between two looks at the control file

_stopping = threading.Event()


class Trial:
    """One trial: its values, and where its reports go.

    Args:
        document: The one that `VARIABLE` names; a trial by hand has ``{"rounds": ...}`` and prints its report lines.
        defaults: Values of hyperparameters that the document does not have.

    Attributes:
        hyperparameters: All values by name; ``t["client_lr"]`` is one of them.
        seed: Seed of the trial.
        label: Label of its entry in the study.
        resume: The folder of a checkpoint to continue from, written by an earlier run; None to begin at round 0.
        first: The round that `resume` was written after; 0 without one.
        last: The round at which this run ends: a rung, or `budget`. The run may be told to end at an earlier rung.
        budget: Rounds of a whole trial, on which a schedule may depend.
        device: "cuda" if the trial has a GPU, otherwise "cpu".
    """

    def __init__(self, document: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        hyperparameters = dict(document.get("hyperparameters", {}))
        if unknown := [name for name in hyperparameters if defaults and name not in defaults]:
            raise ValueError(
                f"current() must have a default for {unknown[0]!r}, which the study sets (it has {', '.join(defaults)})"
            )
        self.hyperparameters: dict[str, Any] = {**defaults, **hyperparameters}
        self.seed = int(document.get("seed", 0))
        self.label = str(document.get("label", ""))
        self.resume = Path(document["resume"]) if document.get("resume") else None
        self.first = int(document.get("first", 0))
        self.device = "cuda" if document.get("gpus") else "cpu"
        self.budget = int(document["rounds"])
        self.last = int(document.get("last", self.budget))
        self._reports = document.get("reports")
        self._control = document.get("control")
        self._checkpoints = document.get("checkpoints")
        self._reused = bool(document.get("reuse"))
        self._round = self._trained = self.first
        self._saved_round: int | None = None
        self._wanted = 0

    def __getitem__(self, name: str) -> Any:
        return self.hyperparameters[name]

    def rounds(self) -> Iterator[int]:
        """The numbers of the rounds to train, from the one after `first`.

        Ends at the last round or at a rung, and early when the trial is told to stop; a checkpoint is due then.
        Without checkpoints, waits at a rung until it is decided whether the trial goes on.
        """
        number = self.first
        while not self.stopping and number < self._until(number):
            self._trained = number = number + 1
            yield number

    def report(self, number: int, /, **values: Any) -> None:
        """Reports a round: metrics and costs as the study's program declares them.

        Args:
            number: Number of the round; larger than that of the report before. 0 is the untrained model.
            values: Numbers, also of numpy or torch; None for a metric that was not measured. Costs count from the
                start of the trial. A quality that is not finite says that the trial has diverged.

        Raises:
            TypeError: A value is not a number.
        """
        line: dict[str, Any] = {"round": int(number)} | {name: _number(name, value) for name, value in values.items()}
        self._append(line)
        self._round = int(number)

    @property
    def stopping(self) -> bool:
        """Whether the trial was told to stop, with SIGTERM: a checkpoint is due, and `rounds` ends."""
        return _stopping.is_set()

    @property
    def report_due(self) -> bool:
        """Whether the current round of `rounds` must be reported: it is the last one or a rung."""
        return self._trained >= min(self.last, int(self._told().get("until", self.last)))

    @property
    def checkpoint_due(self) -> bool:
        """Whether to write a checkpoint now: one was requested, or the trial ends here and may go on later."""
        if self._checkpoints is None or self._saved_round == self._round:
            return False
        ends = self._round >= self.last and self.last < self.budget
        return self.stopping or ends or int(self._told().get("checkpoint", 0)) > self._wanted

    @contextlib.contextmanager
    def checkpoint(self) -> Iterator[Path]:
        """A new folder for the state after the last reported round; it counts when the block ends without an error."""
        if self._checkpoints is None:
            with tempfile.TemporaryDirectory() as folder:
                yield Path(folder)
            return
        request = int(self._told().get("checkpoint", 0))
        final = Path(self._checkpoints, str(self._round))
        draft, old = (final.with_name(f"{final.name}.{end}") for end in ("draft", "old"))
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        yield draft
        shutil.rmtree(old, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            final.rename(old)  # removing it in place could be killed halfway and leave a part
        draft.rename(final)
        shutil.rmtree(old, ignore_errors=True)
        self._saved_round, self._wanted = self._round, request

    def _append(self, line: Mapping[str, Any]) -> None:
        if self._reports is None:
            print(json.dumps(line), flush=True)
            return
        data = (json.dumps(line) + "\n").encode()
        file = os.open(self._reports, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            while data:
                data = data[os.write(file, data) :]
        finally:
            os.close(file)

    def _until(self, number: int) -> int:
        """The round to train up to; waits until that is decided."""
        told = self._told()
        while told.get("wait") and number >= told["until"] and not self.stopping:
            time.sleep(_PAUSE_S)
            told = self._told()
        return min(self.last, int(told.get("until", self.last)))

    def _told(self) -> dict[str, Any]:
        """The present contents of the control file, which is always replaced as a whole."""
        if self._control is None:
            return {}
        with open(self._control, encoding="utf-8") as file:
            told: dict[str, Any] = json.load(file)
        return told


def current(**defaults: Any) -> Trial:
    """The trial that this process is to train.

    Args:
        defaults: Hyperparameters with the values that a run by hand has. If any are given, the study may set no others.

    Raises:
        ValueError: The study sets a hyperparameter that has no default here.
    """
    return _trial(os.environ.get(VARIABLE), defaults)


def each(**defaults: Any) -> Iterator[Trial]:
    """The trials that this process is to train, one after another: several if the study's program has `reuse`.

    A trial has ended when the next one is asked for, and the process when there is none.

    Args:
        defaults: As for `current`.

    Raises:
        ValueError: As for `current`.
    """
    name = os.environ.get(VARIABLE)
    while True:
        trial = _trial(name, defaults)
        yield trial
        if not trial._reused or trial.stopping:
            return
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        trial._append({"ended": True})
        name = os.fsdecode(sys.stdin.buffer.readline().removesuffix(b"\n"))
        if not name:
            return


def _trial(name: str | None, defaults: Mapping[str, Any]) -> Trial:
    """The trial whose document is in the file `name`; without a name, a trial by hand."""
    if not name:
        return Trial({"rounds": int(os.environ.get(ROUNDS_VARIABLE, ROUNDS_BY_HAND))}, defaults)
    with open(name, encoding="utf-8", errors="surrogateescape") as file:  # names of files may be any bytes
        document = json.load(file)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _stop)
    return Trial(document, defaults)


def _stop(number: int, frame: FrameType | None) -> None:
    _stopping.set()


def _after_fork() -> None:
    """Lets SIGTERM end a forked process: multiprocessing ends its workers by it, and would wait forever."""
    if signal.getsignal(signal.SIGTERM) is _stop:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _number(name: str, value: Any) -> int | float | None:
    """A value as a number of JSON; NaN and infinity are written as Python writes them."""
    if not isinstance(value, int | float) and hasattr(value, "item"):
        value = value.item()
    if value is None or isinstance(value, float):
        return value
    if isinstance(value, int):
        return int(value)
    raise TypeError(f"{name} must be a number, got {value!r} ({type(value).__name__})")
