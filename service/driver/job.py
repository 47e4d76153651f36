"""What a driver gives a worker: one pack, as plain values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

MARK = "driftline-pack "
"""Begins the line with which a worker announces the pack whose output follows."""


@dataclass(frozen=True)
class PackJob:
    """A pack for a worker to train.

    Attributes:
        pack: Id of the pack.
        code: Digest of the driver's code, which the worker's must equal; "" skips the check.
        document: Trial document with members.
        prefix: Prefix of the pack's checkpoints.
        start: The driver's attempt, and the number of the pack under that attempt.
        resume: Whether checkpoints under the prefix belong to exactly these members.
        rounds_known: Rounds that were reported to the service; checkpoints of later rounds are not used.
        plan: How the pack was computed before; kept if it restarts from round 0.
        width: Width of its plan if it is computed trial by trial (`separate`), else 0.
        since: Round of the rung from which its trials continue, 0 at the beginning.
        until: Round of the rung at which it ends; None at the last round.
        members: For each trial, the prefix of its checkpoints at rungs; empty without rungs.
        cpus: CPU cores it may use.
        gpus: GPUs it may use, below 1 a share of one.
        nodes: For a program: nodes that its trial spans, each with these CPU cores and GPUs.
        place: For a program: beginning of the paths of its trial's log and working files; "" uses a new folder on the
            node, which is removed with the trial.
        files: For a program: folder with the copy of its files; "" starts it in its own folder. With `archive`: path or
            URL of the archive.
        archive: For a program of a service: digest of the archive with its files; "" if it has none.
        urls: Beginnings that the URLs of its data may have; None allows any URL.
        chunk_seconds: Duration of a step.
        checkpoint_seconds: Time between checkpoints.
    """

    pack: str
    document: Mapping[str, Any]
    prefix: str
    code: str = ""
    start: tuple[int, int] = (0, 0)
    resume: bool = False
    rounds_known: int = 0
    plan: Mapping[str, Any] | None = None
    width: int = 0
    since: int = 0
    until: int | None = None
    members: tuple[str, ...] = ()
    cpus: float = 1.0
    gpus: float = 0.0
    nodes: int = 1
    place: str = ""
    files: str = ""
    archive: str = ""
    urls: Sequence[str] | None = None
    chunk_seconds: float = 2.0
    checkpoint_seconds: float = 30.0

    def config(self) -> dict[str, Any]:
        """The job as Tune's config."""
        return {"job": json.dumps(asdict(self)), "cpus": self.cpus, "gpus": self.gpus, "nodes": self.nodes}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> PackJob:
        """The job in Tune's config."""
        fields = json.loads(config["job"])
        return cls(**{**fields, "start": tuple(fields["start"]), "members": tuple(fields.get("members", ()))})
