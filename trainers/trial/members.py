"""The members of a pack: several values of traced hyperparameters in one trial document, and several seeds.

    "members": [{"client_lr": 0.1, "client.beta1": 0.8, "server.momentum": 0.9, "schedule.window": 10, "seed": 3}, ...]

A bare name is a hyperparameter of the method; hyperparameters of optimizers and of the schedule have dotted names. A
member without a seed has that of the document.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainers.contracts import Method, Optimizer, Schedule
from trainers.errors import SpecError
from trainers.hyperparameters import Hyperparameter, join
from trainers.plugins import Configured
from trainers.registry import methods, optimizers, schedules
from trainers.trial.parts import REGISTRIES, SERVER_RATES, Given, Part, chosen, offered, parse_part
from trainers.trial.roles import PLAIN, ROLES, lacks, refuse_kept_state, refuse_member_keys, refuse_role
from trainers.trial.server_units import along_gradients, check_followers
from trainers.values import shown

_PREFIXES = (*ROLES, "schedule")
SEED = "seed"
"""Key of a member, and of the document, for the seed."""

SCHEDULED = "rates"
"""Setting of a schedule: the rates that it changes; by default client_lr, or server_lr for a method without it."""


@dataclass(frozen=True)
class Parts:
    """Method, optimizers and schedule of a trial.

    Args:
        method: the method.
        optimizers: role -> optimizer, for the roles that the method has.
        schedule: the schedule.
    """

    method: Part[Method]
    optimizers: Mapping[str, Part[Optimizer]]
    schedule: Part[Schedule]

    @property
    def by_kind(self) -> dict[str, Part[Configured]]:
        """Kind or role -> part."""
        return {"method": self.method, **self.optimizers, "schedule": self.schedule}


def parse_parts(document: Mapping[str, Any]) -> Parts:
    """Method, optimizers and schedule of a trial document, with the values of all its members.

    Args:
        document: a trial document. Missing optimizers are sgd, a missing schedule is constant.

    Raises:
        SpecError: a part is invalid (`parse_part`), the method does not take an optimizer, or members are not a list of
            objects with known keys.
    """
    method = chosen("method", methods(), document["method"])
    objects = {"method": document["method"]}
    for role in ROLES:
        if document.get(role) is not None:
            chosen(role, optimizers(), document[role])
            refuse_role(role, document[role]["name"], document["method"]["name"])
            objects[role] = document[role]
        elif lacks(method, role) is None:
            objects[role] = {"name": PLAIN}
    objects["schedule"] = document.get("schedule", {"name": "constant"})
    members = _parse_members(document.get("members"), objects)
    member_values = {kind: [member[kind] for member in members] for kind in objects}
    chosen_method = parse_part("method", methods(), objects["method"], member_values["method"])
    chosen_optimizers = {
        role: parse_part(role, optimizers(), objects[role], member_values[role]) for role in ROLES if role in objects
    }
    if "client" in chosen_optimizers and chosen_optimizers["client"].keeps:
        refuse_kept_state(document["method"]["name"])
    schedule = parse_part("schedule", schedules(), objects["schedule"], member_values["schedule"])
    check_followers(chosen_method, chosen_optimizers)
    chosen_method, chosen_optimizers["server"] = along_gradients(chosen_method, chosen_optimizers["server"])
    return Parts(chosen_method, chosen_optimizers, _following(schedule, chosen_method, document.get("rounds")))


def _following(schedule: Part[Schedule], method: Part[Method], rounds: Any) -> Part[Schedule]:
    """The schedule, with missing values taken from the trial (FOLLOWS of its module).

    Args:
        schedule: the schedule.
        method: the method.
        rounds: rounds of the trial.
    """
    values, count = dict(schedule.values), method.members
    scheduled = "client_lr" if "client_lr" in method.values else "server_lr"
    trial = {**method.values, "rounds": (rounds,) * count, SCHEDULED: (scheduled,) * count}
    for name, otherwise in schedule.module.FOLLOWS.items():
        trial_values = trial.get(name, (otherwise,) * count)
        values[name] = tuple(
            trial_value if value is None else value
            for value, trial_value in zip(values[name], trial_values, strict=True)
        )
        if None in values[name]:
            path = join("schedule", name)
            raise SpecError(f"{path} must be given, because the method has no {name} of its own", path)
    if SCHEDULED in schedule.module.FOLLOWS:
        _refuse_rates(values[SCHEDULED][0], method)
    return replace(schedule, values=values)


def _refuse_rates(chosen: str, method: Part[Method]) -> None:
    """Raises a SpecError for rates of a schedule that the method does not have, or takes from client_lr."""
    path = join("schedule", SCHEDULED)
    if chosen != "server_lr" and "client_lr" not in method.values:
        raise SpecError(
            f"{path} must be server_lr for {method.name}, which has no client_lr, got {path}={chosen}", path
        )
    if chosen != "client_lr" and (method.tied or "server_lr" not in method.values):
        raise SpecError(
            f"{path} must be client_lr for {method.name}, whose server_lr follows client_lr, got {path}={chosen}", path
        )


def _parse_members(value: Any, objects: Mapping[str, Any]) -> list[dict[str, dict[str, Given]]]:
    """For each member: kind of part -> its values by bare name."""
    if value is None:
        return [{kind: {} for kind in objects}]
    if not isinstance(value, (list, tuple)) or not value:
        raise SpecError(f"members must be a list of at least one object, got members={shown(value)}", "members")
    keys = _member_keys(objects)
    rows = []
    for index, member in enumerate(value):
        path = f"members.{index}"
        if not isinstance(member, Mapping):
            raise SpecError(f"{path} must be an object, got {shown(member)}", path)
        refuse_member_keys(member, [*keys, SEED], path, objects)
        row: dict[str, dict[str, Given]] = {kind: {} for kind in objects}
        for key, item in member.items():
            if key == SEED:
                continue  # of the trial, see `parse_seeds`
            kind, name = keys[key]
            row[kind][name] = Given(item, join(path, key))
        rows.append(row)
    return rows


def _member_keys(objects: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Dotted name -> (kind of part, bare name) of everything that a member may set."""
    keys: dict[str, tuple[str, str]] = {}
    for kind, document in objects.items():
        # A missing or unknown name is reported by parse_part.
        name = document.get("name") if isinstance(document, Mapping) else None
        if not isinstance(name, str) or name not in REGISTRIES[kind]():
            continue
        module = REGISTRIES[kind]()[name]
        names = [item.name for item in offered(module, kind)]
        if isinstance(module, Method) and module.TIED:
            names += SERVER_RATES  # known, so that parse_part can say why they are refused
        keys.update({(f"{kind}.{bare}" if kind in _PREFIXES else bare): (kind, bare) for bare in names})
    return keys


def parse_seeds(document: Mapping[str, Any], shared: int, described: Hyperparameter) -> tuple[int, ...]:
    """The seed of each member.

    Args:
        document: a trial document, with members as `parse_parts` takes them.
        shared: seed of members without one of their own.
        described: what a seed may be.

    Raises:
        SpecError: a member's seed is not one.
    """
    members = document.get("members") or [{}]
    return tuple(
        described.check(member[SEED], f"members.{index}.{SEED}") if SEED in member else shared
        for index, member in enumerate(members)
    )


def canonical_parts(parts: Parts, seeds: Sequence[int], listed: bool) -> dict[str, Any]:
    """The objects and the seed of a canonical document with these parts, and its members if `listed`.

    Args:
        parts: parts of the trial.
        seeds: seed of each member.
        listed: whether to write members; values that all members share stand outside the members.
    """
    result: dict[str, Any] = {}
    members: list[dict[str, Any]] = [{} for _ in range(parts.method.members)]
    for kind, part in parts.by_kind.items():
        offers = {item.name for item in offered(part.module, kind)}
        result[kind] = {"name": part.name, **{name: value for name, value in part.said.items() if name in offers}}
        for name, column in part.values.items():
            if part.tied and name == "server_lr":
                continue
            plain = [list(value) if isinstance(value, tuple) else value for value in column]
            if all(value == plain[0] for value in plain):
                result[kind][name] = plain[0]
                continue
            for member, value in zip(members, plain, strict=True):
                member[f"{kind}.{name}" if kind in _PREFIXES else name] = value
    if len(set(seeds)) == 1:
        result[SEED] = seeds[0]
    else:
        for member, seed in zip(members, seeds, strict=True):
            member[SEED] = seed
    if listed:
        result["members"] = members
    return result


def own_document(canonical: Mapping[str, Any], member: int) -> dict[str, Any]:
    """The canonical document of a single member.

    Args:
        canonical: the document with all defaults filled in, with or without members.
        member: index of the member.
    """
    document = {key: dict(value) if isinstance(value, Mapping) else value for key, value in canonical.items()}
    listed = document.pop("members", None)
    for key, value in listed[member].items() if listed else ():
        if key == SEED:
            document[key] = value
            continue
        kind, _, name = key.rpartition(".")
        document[kind or "method"][name] = value
    return document
