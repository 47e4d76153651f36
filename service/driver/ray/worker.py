"""Trains one pack at a time, or runs the program of one trial: the Ray Tune Trainable.

A pack arrives as one JSON string (`PackJob`), and a report goes back as one JSON string (see `Worker.step`), so that
Tune does not resolve, flatten or copy their content. Each step trains for about two seconds. The report of a step has
been stored by the time the next step begins. Checkpoints are therefore written at the *beginning* of a step: they never
contain rounds whose reports may still be lost. Errors of the pack come back as a report, not as an exception, so that
the process survives and the driver learns the reason.
"""

from __future__ import annotations

import base64
import json
import math
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ray.tune import PlacementGroupFactory, Trainable

from driftline.wire.curve_codec import Columns, encode
from service.code_digest import code_digest
from service.driver import checkpoints
from service.driver.job import MARK, PackJob
from service.driver.programs.node_folder import NodeFolder
from service.driver.programs.node_run import OtherNodes
from service.driver.programs.process import RestingProgram
from service.driver.programs.program_pack import ProgramPack
from service.driver.programs.report_lines import ProgramError
from service.driver.programs.saved_folder import Damaged
from service.driver.ray.ray_nodes import RayNodes
from service.driver.ray.url_fetch import Fetching
from service.garbage import loaded
from trainers import ChangedDataError, reading_only

FIRST_SECONDS = 0.5
"""Duration of a pack's first step: shorter than the others, so that its first results appear soon."""


class Worker(Trainable):
    """Trains the pack in its config; Tune reuses it for the next pack."""

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> PlacementGroupFactory:
        """CPU cores and GPUs of the pack in this config, on each of its nodes."""
        bundle = {"CPU": float(config.get("cpus", 1.0)), "GPU": float(config.get("gpus", 0.0))}
        bundle = {kind: amount for kind, amount in bundle.items() if amount}
        nodes = int(config.get("nodes", 1))
        return PlacementGroupFactory([bundle] * nodes, strategy="STRICT_SPREAD" if nodes > 1 else "PACK")

    def setup(self, config: dict[str, Any]) -> None:
        """Takes the first pack; this process has imported its modules by now."""
        loaded()
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Takes another pack, and prints its id, so that `worker_output` knows the pack of the lines that follow."""
        self.take(new_config)
        for stream in (sys.stdout, sys.stderr):
            print(f"{MARK}{self.job.pack}", file=stream, flush=True)
        return True

    def take(self, config: dict[str, Any]) -> None:
        """Takes a pack; it is built in its first step, which can report an error."""
        self._let_go()
        self.job = PackJob.from_config(config)
        self.config = {"pack": self.job.pack}  # Tune sends the config back with every result
        self.saved_at = 0.0
        self.stop_requested = False
        self.fetching = None

    pack: Any = None
    fetching: Fetching | None = None
    node_folder: NodeFolder | None = None
    resting: RestingProgram | None = None

    def cleanup(self) -> None:
        """Ends a program that still runs, or waits for its next trial, with the worker."""
        self._let_go()
        self._end_resting()

    def _end_resting(self) -> None:
        if self.resting is not None:
            self.resting.process.dismiss()
        self.resting = None

    def _let_go(self, *, show_log: bool = False) -> None:
        if isinstance(self.pack, ProgramPack):
            if self.pack.resting is not None:
                self._end_resting()
            self.resting, self.pack.resting = self.pack.resting or self.resting, None
            self.pack.close()
        self.pack = None
        if self.node_folder is not None:
            if show_log:
                self.node_folder.print_log()
            self.node_folder.close()
        self.node_folder = None

    def request_stop(self) -> None:
        """Makes the pack write a checkpoint and end at its next step. Ray runs this between two steps."""
        self.stop_requested = True

    def go_on(self, until: int) -> None:
        """Tells a program that waits at a rung how far to go. Ray runs this between two steps."""
        if isinstance(self.pack, ProgramPack) and self.pack.go_on(until):
            self.job = replace(self.job, until=until)

    def step(self) -> dict[str, Any]:
        """Trains for a while.

        Returns:
            ``done``, and ``report``: a JSON string with

            * pack, pid, host, done (trained to its rung or the end), stopped (asked to stop; a checkpoint is written)
            * reports: for each member, its new rounds as blocks (`curve_codec.encode`) in base64
            * rounds_done, plan (how it is computed, and the pack's `work`): null until the pack is built
            * checkpoint: path or URL of the one that this step wrote or restored; null if there is none
            * error: why the pack cannot continue, or null; out_of_memory: whether it is a lack of memory
            * final: whether another attempt would end with the same error
            * ends: whether the error ends the whole study
            * remark: a warning, or null
            * code: digest of the worker's code if that is not the driver's, else null
        """
        report: dict[str, Any] = {
            "pack": self.job.pack,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "reports": [],
            "done": False,
            "stopped": False,
            "out_of_memory": False,
            "final": False,
            "ends": False,
            **dict.fromkeys(("rounds_done", "checkpoint", "plan", "error", "remark", "code")),
        }
        try:
            self._step(report)
        except Exception as error:
            report["error"] = f"{type(error).__name__}: {' '.join(str(error).split()) or 'no message'}"
            report["out_of_memory"] = out_of_memory(error)
            report["final"] = isinstance(error, ProgramError) and error.final
            if isinstance(error, ChangedDataError):
                report["error"], report["ends"] = str(error), True
            if isinstance(self.pack, ProgramPack):  # its reports are stored, so its newest checkpoint may be used
                report["error"] += "" if isinstance(error, ProgramError) else f"; {self.pack.trace}"
                report["rounds_done"], report["plan"] = self.pack.round, {}
                self._save(report)
        ended = bool(report["done"] or report["stopped"] or report["error"])
        if ended:
            self._let_go(show_log=bool(report["error"] or report["remark"]))
        return {"done": ended, "report": json.dumps(report, allow_nan=False)}

    def _step(self, report: dict[str, Any]) -> None:
        job = self.job
        seconds = job.chunk_seconds
        if self.pack is not None and self._at_rung():
            self._save_members(report)
            report["done"] = True
        elif self.pack is None:
            if self.stop_requested:
                report["stopped"] = True
                return
            if job.code not in ("", code_digest()):
                report["code"], report["done"] = code_digest(), True
                return
            if job.urls is not None:
                self.fetching = self.fetching or Fetching(job.document.get("task"), job.urls)
                if not self.fetching.over(seconds):
                    return
            original = job
            if "program" in job.document and not job.place:
                self.node_folder = NodeFolder(job)
                job = self.job = self.node_folder.job
            resting, self.resting = self.resting, None
            with reading_only(job.urls):
                self.pack, report["checkpoint"], report["remark"] = build(job, resting, original)
            self.saved_at = time.monotonic()
            seconds = min(FIRST_SECONDS, job.chunk_seconds)
        else:
            report["stopped"] = self.stop_requested
            if report["stopped"] and isinstance(self.pack, ProgramPack):
                self._report_lines(report, self.pack.stop())
                if self.pack.done or self._at_rung():  # it has just reached its end
                    report["done"], report["stopped"] = True, False
            if report["done"]:
                if not self.pack.done:
                    self._save_members(report)
            elif report["stopped"] or time.monotonic() - self.saved_at >= job.checkpoint_seconds:
                self._save(report)
        if not report["stopped"] and not report["done"]:
            self._report_lines(report, self.train_for(seconds))
            report["done"] = self.pack.done
        report["rounds_done"] = self.pack.round
        if isinstance(self.pack, ProgramPack):
            report["plan"], report["remark"] = {}, report["remark"] or self.pack.remark
            self.pack.remark = None
        else:
            report["plan"] = {**self.pack.plan.to_json(), **self.pack.work}

    def _report_lines(self, report: dict[str, Any], lines: Sequence[Mapping[str, Any]]) -> None:
        report["reports"] = [
            [base64.b64encode(block).decode("ascii") for block in encode(curve)]
            for curve in columns(lines, self.pack.members)
        ]

    def train_for(self, seconds: float) -> list[dict[str, Any]]:
        """Trains for about this many seconds; returns the pack's report lines."""
        rounds = None if self.job.until is None else self.job.until - self.pack.round
        lines: list[dict[str, Any]] = self.pack.advance(rounds, seconds)
        return lines

    def _at_rung(self) -> bool:
        """Whether the pack has reported all rounds until the rung at which it ends."""
        running = isinstance(self.pack, ProgramPack) and self.pack.running  # it waits there, or is about to end
        return self.job.until is not None and self.pack.round >= self.job.until and not running

    def _save_members(self, report: dict[str, Any]) -> None:
        """Writes a checkpoint for each trial; without one, a trial that continues goes back to an earlier round."""
        job = self.job
        if isinstance(self.pack, ProgramPack) and not self.pack.saves:
            return
        try:
            parts = type(self.pack).split(self.pack.to_bytes())
            urls = [
                checkpoints.write(prefix, job.start, self.pack.round, data)
                for prefix, data in zip(job.members, parts, strict=True)
            ]
            report["checkpoint"] = urls[0]
        except OSError as error:
            report["remark"] = f"no checkpoints could be written at a rung, to {job.members[0]}: {error}"

    def _save(self, report: dict[str, Any]) -> None:
        """Writes a checkpoint; training continues even if that fails."""
        self.saved_at = time.monotonic()
        try:
            newest = (
                self.pack.newest() if isinstance(self.pack, ProgramPack) else (self.pack.round, self.pack.to_bytes())
            )
            if newest is not None:
                report["checkpoint"] = checkpoints.write(self.job.prefix, self.job.start, *newest)
        except OSError as error:
            report["remark"] = f"no checkpoint could be written to {self.job.prefix}: {error}"


def build(
    job: PackJob, resting: RestingProgram | None = None, original: PackJob | None = None
) -> tuple[Any, str | None, str | None]:
    """The pack of a job, the checkpoint that it was restored from, and a remark if a checkpoint was unusable.

    Args:
        job: The job, with `place` and `files` on this node.
        resting: A program that waits for its next trial.
        original: The job as it was given, for the other nodes of a trial; by default `job`.
    """
    if "program" in job.document:
        return _build_program(job, resting, original or job)
    if resting is not None:
        resting.process.dismiss()
    import torch

    from trainers import CheckpointError, Pack, Plan, parse

    torch.set_num_threads(max(1, int(job.cpus)))
    spec = parse(job.document)
    bad: list[str] = []
    if job.resume:
        for url in checkpoints.names(job.prefix, job.rounds_known):
            if checkpoints.round_of(url) <= job.since and job.since:
                break  # from before the rung
            try:
                return Pack.restore(spec, checkpoints.read(url)), url, "; ".join(bad) or None
            except (CheckpointError, OSError) as error:
                bad.append(f"checkpoint {url} cannot be used: {error}")
    for urls in _rungs(job):
        try:
            data = Pack.join([checkpoints.read(url) for url in urls])
            return Pack.restore(spec, data), urls[0], "; ".join(bad) or None
        except (CheckpointError, OSError) as error:
            bad.append(f"the checkpoints of round {checkpoints.round_of(urls[0])} cannot be used: {error}")
    plan = Plan.from_json(job.plan) if job.plan is not None else None
    pack = Pack.from_spec(spec, plan=plan)
    if job.width and not pack.plan.separate:
        pack = Pack.from_spec(spec, plan=replace(pack.plan, width=job.width, separate=True))
    return pack, None, "; ".join([*bad, "started again from round 0"]) if bad or job.since else None


def _build_program(
    job: PackJob, resting: RestingProgram | None, original: PackJob
) -> tuple[ProgramPack, str | None, str | None]:
    """The pack of a program's trial, the checkpoint that it was restored from, and a remark as in `build`."""
    bad: list[str] = []
    job_urls = checkpoints.names(job.prefix, job.rounds_known) if job.resume else ()
    later = [url for url in job_urls if checkpoints.round_of(url) > job.since]
    for url in (*later, *(urls[0] for urls in _rungs(job))):
        try:
            data = checkpoints.read(url)
        except OSError as error:
            bad.append(f"checkpoint {url} cannot be used: {error}")
            continue
        try:
            return ProgramPack(job, data, resting, _others(original, url)), url, "; ".join(bad) or None
        except Damaged as error:
            bad.append(f"checkpoint {url} cannot be used: {error}")
    remark = "; ".join([*bad, "started again from round 0"]) if bad or job.since else None
    return ProgramPack(job, None, resting, _others(original, None)), None, remark


def _others(job: PackJob, url: str | None) -> OtherNodes | None:
    """The other nodes of a program's trial, which continues from this checkpoint."""
    return RayNodes(job, url) if job.nodes > 1 else None


def _rungs(job: PackJob) -> list[list[str]]:
    """The checkpoints of each rung at which every trial has one, the latest rung first.

    A trial has none at its last rung if its worker died between the last report and the checkpoint.
    """
    by_round = [
        {checkpoints.round_of(url): url for url in reversed(list(checkpoints.names(prefix, job.since)))}
        for prefix in (job.members if job.since else ())
    ]
    rounds = set.intersection(*map(set, by_round)) if by_round else set()
    return [[urls[number] for urls in by_round] for number in sorted(rounds, reverse=True)]


def out_of_memory(error: Exception) -> bool:
    """Whether an error is a lack of memory: of Python's, torch's on a GPU or a CPU, or foreseen before training.

    Examples:
        >>> out_of_memory(MemoryError()), out_of_memory(RuntimeError("CUDA error: an illegal memory access"))
        (True, False)
    """
    from trainers import TooLargeError

    text = str(error).lower()
    return isinstance(error, MemoryError | TooLargeError) or "out of memory" in text or "can't allocate memory" in text


def columns(lines: Sequence[Mapping[str, Any]], members: int) -> list[Columns]:
    """A pack's report lines as columns for each member.

    Args:
        lines: In the order of rounds; ``member`` is the index of the member, 0 if missing.
        members: Number of members.

    Returns:
        For each member ``{"round": [...], ...}``, or an empty mapping if it has no lines. A value is None where a line
        lacks the metric or it is not finite. Metrics that are not numbers are left out.

    Examples:
        >>> columns([{"round": 0, "member": 0, "loss": 2.0}, {"round": 1, "member": 0, "loss": math.inf}], 2)
        [{'round': [0, 1], 'loss': [2.0, None]}, {}]
    """
    rows: list[list[Mapping[str, Any]]] = [[] for _ in range(members)]
    for line in lines:
        rows[int(line.get("member", 0))].append(line)
    by_member: list[Columns] = []
    for member_lines in rows:
        kept = dict.fromkeys(
            key for line in member_lines for key, value in line.items() if key != "member" and _is_cell(value)
        )
        by_member.append({name: [_cell(line.get(name)) for line in member_lines] for name in kept})
    return by_member


def _is_cell(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float)


def _cell(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, bool | int | float) else None
