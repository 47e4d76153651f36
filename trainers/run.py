"""Trains one trial document and prints its report: one JSON object per line.

    python -m trainers.run trial.json
    python -m trainers.run - --checkpoint trial.ckpt < trial.json

trainers/trial/document.py describes the document. Exit codes: 0 finished; 1 error while training; 2 invalid document,
missing data or unsuitable checkpoint, with a line on stderr for each error; 130 or 143 interrupted; 141 output closed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from trainers.errors import CheckpointError, SpecError, TrainerError
from trainers.own_files import put
from trainers.trial.document import TrialSpec, parse
from trainers.trial.document_errors import trial_errors
from trainers.values import digits, shown, step

if TYPE_CHECKING:
    from trainers.engine.packs.pack import Pack

_CHUNK_SECONDS = 0.1
_CHECKPOINT_SECONDS = 30.0


def run(document: Any, *, device: str = "auto") -> Iterator[dict[str, Any]]:
    """Yields the report lines of a trial; checks the document before training.

    Args:
        document: a trial document (trainers/trial/document.py).
        device: "auto", or a torch device, such as "cpu" or "cuda:1".

    Returns:
        One dictionary for each round (and member), beginning with round 0. Values that are not finite are None.
        Lines have `member` only if the document has members.

    Raises:
        SpecError: the document is invalid.
        MissingDataError: the task's data is not on this machine.
    """
    spec = parse(document)
    return _lines(spec, _start(spec, device, None))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code.

    Args:
        arguments: without the program's name; None uses those of the process.
    """
    options = _parser().parse_args(arguments)
    checkpoint = Path(options.checkpoint) if options.checkpoint else None
    try:
        document = read(options.trial)
        with _Signals() as signals:
            try:
                spec = parse(document)
            except SpecError:
                for problem in trial_errors(document):
                    print(f"error: {problem}", file=sys.stderr)
                return 2
            for warning in spec.warnings:
                print(f"warning: {warning}", file=sys.stderr)
            return _train(spec, _start(spec, options.device, checkpoint), checkpoint, signals)
    except TrainerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader closed the pipe. Without this, the interpreter prints another error when it shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except (MemoryError, RuntimeError) as error:
        from trainers.engine.memory import ran_out  # here, so that --help does not wait for torch

        if not ran_out(error):
            raise
        message = shown(str(error).partition("\n")[0])
        print(
            f"error: memory ran out, got {message}: train fewer members or clients, or a smaller model", file=sys.stderr
        )
        return 1
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def read(source: str) -> Any:
    """The JSON document in a file.

    Args:
        source: path of the file, or "-" for standard input.

    Raises:
        SpecError: the file cannot be read, or is not JSON.
    """
    name = "standard input" if source == "-" else source
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
        return json.loads(text, object_pairs_hook=_object, parse_int=digits)
    except OSError as error:
        raise SpecError(f"{name} must be a file to read: {error.strerror}") from error
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SpecError(f"{name} must hold a JSON document: {error}") from error


def _train(spec: TrialSpec, pack: Pack, checkpoint: Path | None, signals: _Signals) -> int:
    """Prints lines until the pack is done or a signal arrives; a checkpoint is never ahead of the printed lines."""
    saved = time.monotonic()
    while not pack.done and signals.received is None:
        for line in _chunk(spec, pack):
            print(json.dumps(line, allow_nan=False))
        sys.stdout.flush()
        if checkpoint is not None and time.monotonic() - saved > _CHECKPOINT_SECONDS:
            put(checkpoint, pack.to_bytes())
            saved = time.monotonic()
    if checkpoint is not None:
        put(checkpoint, pack.to_bytes())
    if signals.received is None:
        return 0
    where = f"; run again with --checkpoint {checkpoint} to continue" if checkpoint else ""
    print(f"interrupted after round {pack.round} of {pack.rounds}{where}", file=sys.stderr)
    return 128 + signals.received


def _start(spec: TrialSpec, device: str, checkpoint: Path | None) -> Pack:
    from trainers.engine.packs.pack import Pack  # here, so that --help does not wait for torch

    _check_device(device)
    if checkpoint is None:
        return Pack.from_spec(spec, device=device)
    if not checkpoint.parent.is_dir():
        raise CheckpointError(f"the folder of --checkpoint must exist, got {checkpoint}")
    try:
        data = checkpoint.read_bytes()
    except FileNotFoundError:
        return Pack.from_spec(spec, device=device)
    except OSError as error:
        raise CheckpointError(f"--checkpoint must be a file to read, got {checkpoint}: {error.strerror}") from error
    return Pack.restore(spec, data, device=device)


def _check_device(name: str) -> None:
    if name == "auto":
        return
    import torch

    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:  # torch raises either if it lacks the device
        reason = str(error).splitlines()[0]
        raise SpecError(f"--device must be one that torch can use here, got {name}: {reason}", "device") from error


def _lines(spec: TrialSpec, pack: Pack) -> Iterator[dict[str, Any]]:
    while not pack.done:
        yield from _chunk(spec, pack)


def _chunk(spec: TrialSpec, pack: Pack) -> Iterator[dict[str, Any]]:
    for line in pack.advance(seconds=_CHUNK_SECONDS):
        yield line if spec.listed else {key: value for key, value in line.items() if key != "member"}


class _Signals:
    """Records the first Ctrl-C or SIGTERM, so that the round is finished first; a second one acts at once."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Signals:
        if threading.current_thread() is not threading.main_thread():
            return self  # only the main thread may set handlers
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.received = number
        signal.signal(number, signal.SIG_DFL)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise SpecError(f"every key must occur once in its object, got {shown(key)} twice", step(key))
        result[key] = value
    return result


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m trainers.run",
        description="Trains one trial document and prints its report, one JSON object per line: the first line is "
        "round 0, before training, the last line is the last server update.",
    )
    parser.add_argument("trial", help="JSON file of the trial, or - for standard input")
    parser.add_argument(
        "--checkpoint",
        metavar="FILE",
        help="written every 30 s, at Ctrl-C and at the end; if it exists, the trial continues from it",
    )
    parser.add_argument("--device", default="auto", help="auto (the default), cpu, cuda, cuda:1, ...")
    return parser


if __name__ == "__main__":
    sys.exit(main())
