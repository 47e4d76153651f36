"""Members of a pack that are still equal, so that their rounds are trained once.

Members that differ in nothing but their schedules have the same model until the schedules give different rates, of a
round or of one of its local steps. Under a `separate` plan, where a member's bits depend on nothing else in the pack,
such members form a group: the lane of the first member trains the round, and the others take over the result. Each
member updates its own schedule with the monitored value. Before the first round for which their rates differ, the
group parts, and each part continues from the state that they had in common.

A checkpoint does not record groups: members that continue from equal states are a group again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from trainers.engine.packs.lane import Lane
from trainers.engine.packs.progress import SHARED_ROWS
from trainers.engine.rounds.round_context import Draw
from trainers.trial.document import TrialSpec
from trainers.trial.members import own_document

Group = list[Lane]


def together(spec: TrialSpec, lanes: Sequence[Lane], rows: Sequence[Mapping[str, Any]] | None = None) -> list[Group]:
    """The groups of the lanes of a separate plan. A group's lanes hold the same tensors.

    Args:
        spec: the trials.
        lanes: the lane of each member.
        rows: the checkpoint of each member; None at the start, where members of equal settings have equal states.
    """
    by_settings: dict[Hashable, list[tuple[int, Group]]] = {}
    for lane in lanes:
        member = int(lane.members[0])
        candidates = by_settings.setdefault((_settings(spec, member), lane.rates), [])
        for first, group in candidates:
            if rows is None or _equal(_state(rows[first]), _state(rows[member])):
                lane.join(group[0])
                group.append(lane)
                break
        else:
            candidates.append((member, [lane]))
    return [group for candidates in by_settings.values() for _, group in candidates]


def parted(group: Group, draw: Draw) -> list[Group]:
    """Splits a group for the next round: lanes with the same rates in all steps of the round stay together.

    Args:
        group: lanes that hold the same tensors.
        draw: clients and batches of the next round.
    """
    if len(group) == 1:
        return [group]
    by_rates: dict[Hashable, Group] = {}
    for lane in group:
        of_steps = lane.relative_rates(draw)
        key = lane.rates, None if of_steps is None else tuple(of_steps.flatten().tolist())
        by_rates.setdefault(key, []).append(lane)
    first, *others = by_rates.values()
    for part in others:
        part[0].part()
        for lane in part[1:]:
            lane.join(part[0])
    return [first, *others]


def _settings(spec: TrialSpec, member: int) -> str:
    """All that a member trains with except its schedule, which matters only through its rates."""
    document = own_document(spec.canonical, member)
    parts = (document[part] for part in ("seed", "method", *spec.optimizers))
    return json.dumps([*parts], sort_keys=True)


def _state(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in SHARED_ROWS}


def _equal(one: Any, other: Any) -> bool:
    """Whether two contents of checkpoints are equal to the bit, except for the counter of shared gradients."""
    if isinstance(one, Mapping):
        names = one.keys() - {"shared_gradients"}
        return names == other.keys() - {"shared_gradients"} and all(_equal(one[name], other[name]) for name in names)
    if isinstance(one, Tensor):
        return one.shape == other.shape and one.dtype == other.dtype and torch.equal(_bytes(one), _bytes(other))
    return bool(one == other) or (isinstance(one, float) and math.isnan(one) and math.isnan(other))


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1).view(torch.uint8)
