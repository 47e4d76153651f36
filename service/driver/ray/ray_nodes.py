"""The other nodes of a trial that spans several: a Ray actor in each further bundle of its placement group."""

from __future__ import annotations

import contextlib
import importlib
import socket
import sys
import threading
import time
from typing import Any

import ray
from ray.exceptions import RayError

from service.code_digest import code_digest
from service.driver.job import MARK, PackJob
from service.driver.programs.node_run import NodeFault, TrialNode, free_port, other_run

_END_S = 10.0  # for the processes of a program to be killed


class _OtherNode:
    """Runs the program of a trial on the node of this actor."""

    def __init__(self) -> None:
        self._stop = threading.Event()

    def run(
        self, config: dict[str, Any], node: TrialNode, rounds: tuple[int, int], url: str | None
    ) -> NodeFault | None:
        """Runs the program from its first to its last round; returns what went wrong, or None."""
        job = PackJob.from_config(config)
        for stream in (sys.stdout, sys.stderr):
            print(f"{MARK}{job.pack}", file=stream, flush=True)
        if job.code not in ("", code_digest()):
            text = f"cannot be started beside other code of Driftline ({code_digest()}) than its driver's ({job.code})"
            return NodeFault(node.rank, socket.gethostname(), text, final=True)
        fault: NodeFault | None = other_run(job, node, self._stop, first=rounds[0], last=rounds[1], url=url)
        return fault

    def stop(self) -> None:
        """Ends the program."""
        self._stop.set()


class RayNodes:
    """All nodes of a trial but that of this worker, which is in the first bundle of the trial's placement group.

    Args:
        job: The trial.
        url: Path or URL of the checkpoint from which it continues; None at the beginning.
    """

    def __init__(self, job: PackJob, url: str | None) -> None:
        self._job = job
        self._url = url
        self._actors: list[Any] = []
        self._runs: dict[Any, int] = {}  # rank of each run that has not ended

    def start(self, *, first: int, last: int) -> TrialNode:
        """Starts an actor with the program on each node; returns the first node."""
        job = self._job
        util: Any = importlib.import_module("ray.util")
        strategy: Any = importlib.import_module("ray.util.scheduling_strategies").PlacementGroupSchedulingStrategy
        head = TrialNode(0, job.nodes, util.get_node_ip_address(), free_port())
        group = util.get_current_placement_group()
        for rank in range(1, job.nodes):
            placement = strategy(group, placement_group_bundle_index=rank)
            options = {
                "num_cpus": job.cpus,
                "num_gpus": job.gpus,
                "max_concurrency": 2,
                "scheduling_strategy": placement,
            }
            actor: Any = ray.remote(_OtherNode).options(**options).remote()
            self._actors.append(actor)
            node = TrialNode(rank, job.nodes, head.address, head.port)
            self._runs[actor.run.remote(job.config(), node, (first, last), self._url)] = rank
        return head

    def wait(self, seconds: float) -> tuple[bool, NodeFault | None]:
        """Waits up to `seconds` until the program has ended on all nodes, or has a fault on one.

        The other nodes may wait for the failed one forever.

        Returns:
            Whether it has ended on all nodes; the fault, or None.
        """
        deadline = time.monotonic() + seconds
        while self._runs:
            ended, _ = ray.wait(list(self._runs), timeout=max(0.0, deadline - time.monotonic()))
            if not ended:
                break
            rank = self._runs.pop(ended[0])
            try:
                fault: NodeFault | None = ray.get(ended[0])
            except RayError as error:
                fault = NodeFault(rank, "", f"is gone: its node or its worker has died ({type(error).__name__})")
            if fault is not None:
                return not self._runs, fault
        return not self._runs, None

    def end(self) -> None:
        """Ends the program on all nodes, and their actors."""
        with contextlib.suppress(RayError):
            for actor in self._actors:
                actor.stop.remote()
            if self._runs:
                ray.wait(list(self._runs), num_returns=len(self._runs), timeout=_END_S)
        for actor in self._actors:
            with contextlib.suppress(RayError):
                ray.kill(actor, no_restart=True)
        self._actors, self._runs = [], {}
