"""A pack: several trials of equal structure, trained together, round by round."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from trainers.engine.evaluation.flops import gradient_flops
from trainers.engine.memory import keep_freed_memory
from trainers.engine.oracles.oracle import HasModule
from trainers.engine.packs import checkpoint, sharing
from trainers.engine.packs.build import slots
from trainers.engine.packs.lane import Lane
from trainers.engine.packs.lines import Metrics
from trainers.engine.packs.plan import Plan
from trainers.engine.packs.seeds import joins, settings
from trainers.engine.products import products_in
from trainers.errors import CheckpointError, SpecError
from trainers.trial.document import TrialSpec


class Pack:
    """Trials of equal structure, with one seed or several, in one process on one device; from `from_spec` or `restore`.

    Up to rounding, which training amplifies, a trial gives the same curve alone and in any pack. Under the same plan a
    restored pack gives the same curves to the bit. Networks on CPUs whose seeds are not joined, and all trials under a
    `separate` plan, give the same curves to the bit in any pack (see Plan).

    A trial diverges when its training loss, the norm of its update or its model is not finite, or when its training
    loss exceeds the first one by more than the model's `explosion` (1e3; 1e6 for quadratics) times
    max(1, |first loss|). It is reported once as diverged, then its lines end and it stops; the other trials are not
    affected.
    """

    def __init__(
        self, spec: TrialSpec, device: str, plan: Plan | None, rows: Sequence[Mapping[str, Any]] | None = None
    ) -> None:
        keep_freed_memory()
        self.spec = spec
        parts = settings(spec, device, plan)
        self._setting = parts[0]
        self.device = self._setting.device
        self._lanes = [
            Lane(part, order, members) for part in parts for order, members in slots(spec, part.plan, part.members)
        ]
        self._round = 0
        self._opened = False
        self._wall_seconds = np.zeros(spec.members)
        if rows is not None:
            self._round, self._opened = rows[0]["round"], rows[0]["opened"]
            self._wall_seconds = np.array([row["wall_seconds"] for row in rows])
            for lane in self._lanes:
                lane.now.load([rows[number] for number in lane.members])
        if self.plan.separate:
            self._groups = sharing.together(spec, self._lanes, rows)
        else:
            self._groups = [[lane] for lane in self._lanes]

    @staticmethod
    def from_spec(spec: TrialSpec, *, device: str = "auto", plan: Plan | None = None) -> Pack:
        """A pack at the start, before round 0.

        Args:
            spec: one trial or several.
            device: "auto", "cpu", "cuda", ...
            plan: how to compute; None measures which oracle is fastest and uses as many slots as members. With more
                slots than members the last slots are idle.

        Raises:
            SpecError: `init` has the wrong size, or the plan has an unknown oracle or fewer slots than members.
        """
        return Pack(spec, device, plan)

    @staticmethod
    def restore(spec: TrialSpec, data: bytes, *, device: str = "auto") -> Pack:
        """The pack as it was when `to_bytes` was called; it continues as if it had never stopped.

        Args:
            spec: the same trials; rounds, report, eval_every, adaptation and evaluation may differ. The stored plan
                decides when to evaluate.
            data: from `to_bytes`, or joined from checkpoints of single members (engine/packs/checkpoint.py).
            device: "auto", "cpu", "cuda", ...

        Raises:
            CheckpointError: the checkpoint is damaged, has another version, is of other trials, or is past the trial's
                last round.
        """
        members = checkpoint.from_bytes(data)
        if len(members) != spec.members:
            raise CheckpointError(
                f"the checkpoint must be of the same trials, got {len(members)} members for {spec.members}: "
                "start from the spec"
            )
        for number, (member, fingerprint) in enumerate(zip(members, checkpoint.fingerprints(spec), strict=True)):
            if member["fingerprint"] != fingerprint:
                raise CheckpointError(
                    f"the checkpoint must be of the same trials, got another one as member {number}: "
                    "start from the spec"
                )
        first = members[0]
        if first["round"] > spec.rounds:
            raise CheckpointError(
                f"the checkpoint must be within the trial's {spec.rounds} rounds, got one of round {first['round']}"
            )
        return Pack(spec, device, Plan.from_json(first["plan"]), members)

    @staticmethod
    def split(data: bytes) -> list[bytes]:
        """The checkpoint of each member of a checkpoint; see engine/packs/checkpoint.py."""
        return checkpoint.members(data)

    @staticmethod
    def join(parts: Sequence[bytes]) -> bytes:
        """One checkpoint of members of several packs; see engine/packs/checkpoint.py."""
        return checkpoint.joined(parts)

    @property
    def plan(self) -> Plan:
        """How the pack is computed."""
        return self._setting.plan

    @property
    def work(self) -> dict[str, Any]:
        """What turns the counters into modelled time: clients of a round, a model's bytes, operations of a gradient.

        `flops_per_example` is None if torch cannot count them, as for a model with operations of its own. If rounds
        drop clients, `senders_per_round` counts the remaining ones. `joins_seeds` is True if a pack of such trials with
        several seeds is computed as one large cohort (engine/packs/seeds.py).
        """
        try:
            flops: float | None = gradient_flops(self._setting.model)
        except Exception:  # of a plug-in's model: a count must not stop its training
            flops = None
        counted = flops is not None and flops > 0  # NaN is not
        clients, stragglers = self._setting.clients_per_round, self.spec.stragglers
        dropped = 0 if stragglers is None or stragglers.kept else stragglers.count(clients)
        return {
            "clients_per_round": clients,
            **({"senders_per_round": clients - dropped} if dropped else {}),
            "flops_per_example": flops if counted else None,
            "model_bytes": self._setting.model.layout.count * self._setting.like.element_size(),
            **({"joins_seeds": True} if self._joins_seeds else {}),
        }

    def torch_modules(self) -> list[nn.Module]:
        """The models of all members as they are now: plain torch modules from inputs to scores, on the CPU.

        Raises:
            SpecError: The task's model has no module, as for losses in closed form.
        """
        model = self._setting.model
        if not isinstance(model, HasModule):
            raise SpecError("task: its model cannot be written as a torch module")
        rows = {number: row for lane in self._lanes for number, row in zip(lane.members, lane.params(), strict=True)}
        return [model.torch_module(rows[number]) for number in range(self.members)]

    @property
    def members(self) -> int:
        """Number of trials."""
        return self.spec.members

    @property
    def round(self) -> int:
        """Server updates done."""
        return self._round

    @property
    def rounds(self) -> int:
        """Server updates to do."""
        return self.spec.rounds

    @property
    def done(self) -> bool:
        """Whether nothing is left to report: all rounds are done, or all trials have diverged."""
        return self._opened and (self.round >= self.rounds or not any(lane.now.alive.any() for lane in self._lanes))

    def advance(self, max_rounds: int | None = None, seconds: float | None = None) -> list[dict[str, Any]]:
        """Trains further and returns one report line per round and trial; the first call begins with those of round 0.

        Args:
            max_rounds: largest number of server updates; None is no limit.
            seconds: no new round begins after this time; None is no limit. At least one round is trained, so that every
                call makes progress.
        """
        with products_in("float32", self.device):
            return list(self._advance(max_rounds, seconds))

    def to_bytes(self) -> bytes:
        """Everything that `restore` needs; `checkpoint.members` splits it by member."""
        structure, fingerprints = self._identity
        rows = {number: row for lane in self._lanes for number, row in zip(lane.members, lane.now.rows(), strict=True)}
        return checkpoint.to_bytes(
            [
                {
                    "fingerprint": fingerprints[number],
                    "structure": structure,
                    "plan": self.plan.to_json(),
                    "round": self.round,
                    "opened": self._opened,
                    "wall_seconds": float(self._wall_seconds[number]),
                    **rows[number],
                }
                for number in range(self.members)
            ]
        )

    @cached_property
    def _joins_seeds(self) -> bool:
        """Whether trials like these are joined over seeds."""
        return joins(self.spec, str(self.device))

    @cached_property
    def _identity(self) -> tuple[str, list[str]]:
        """(structure, fingerprints), as stored in checkpoints."""
        return checkpoint.structure(self.spec), checkpoint.fingerprints(self.spec)

    def _advance(self, max_rounds: int | None, seconds: float | None) -> Iterator[dict[str, Any]]:
        begin, before, last = time.perf_counter(), self._wall_seconds, self.rounds
        first = self.round
        if max_rounds is not None:
            last = min(last, self.round + max_rounds)
        if not self._opened:
            self._opened = True
            opened = [(group, group[0].opening()) for group in self._groups]
            yield from self._lines(
                [
                    ([lane], {**metrics, **lane.opening_rate()}, lane.now.alive)
                    for group, metrics in opened
                    for lane in group
                ]
            )
        while self.round < last and not self.done:
            if seconds is not None and self.round > first and time.perf_counter() - begin >= seconds:
                break
            trained, groups = [], []
            for setting, of_setting in groupby(self._groups, lambda group: group[0].setting):
                draw = setting.draw(self.round)
                for group in (part for whole in of_setting for part in sharing.parted(whole, draw)):
                    groups.append(group)
                    leader, alive = group[0], group[0].now.alive
                    if alive.any():
                        trained.append((group, leader.train_round(self.round, draw), alive))
                        for lane in group[1:]:
                            lane.follow(leader)
            self._groups = groups
            self._round += 1
            self._wall_seconds = before + time.perf_counter() - begin
            yield from self._lines(trained)

    def _lines(self, trained: Sequence[tuple[sharing.Group, Metrics, NDArray[np.bool_]]]) -> list[dict[str, Any]]:
        """The lines of a round, in the order of the members.

        Args:
            trained: groups of lanes, the metrics of each, and (T,) which of a lane's trials are reported.
        """
        rows = [
            line
            for group, metrics, reported in trained
            for lane in group
            for line in lane.lines(self.round, metrics, reported, self._wall_seconds)
        ]
        return sorted(rows, key=lambda line: line["member"])
