"""The method, the optimizers and the schedule of a trial: chosen by name, with every member's values checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from typing import Any, Generic, TypeVar, cast

from trainers.contracts import Method, Optimizer
from trainers.errors import SpecError
from trainers.hyperparameters import Hyperparameter, describe, join, refuse_unknown
from trainers.plugins import Configured
from trainers.registry import Registry, methods, optimizers, schedules
from trainers.trial.roles import ALONG, ROLES, STATE, has_state, refuse_method_keys, refuse_settings, scaled, settings
from trainers.values import shown

P = TypeVar("P", bound=Configured, covariant=True)
REGISTRIES: Mapping[str, Callable[[], Registry[Configured]]] = {
    "method": methods,
    **dict.fromkeys(ROLES, optimizers),
    "schedule": schedules,
}
DELTA_LR = Hyperparameter(
    name="delta_lr",
    kind="float",
    default=None,
    low=0,
    low_open=True,
    limit="1 is model averaging",
    doc="in place of server_lr = delta_lr * client_lr; with an adaptive server the rate along the change",
)
TIED = Hyperparameter(
    name="tied",
    kind="bool",
    default=False,
    traced=False,
    limit="true is model averaging, with plain SGD on the server",
    doc="in place of server_lr, which follows client_lr through every schedule",
)
# At most one of each pair may be given. Given the first, the second is derived from it or not needed.
_EITHER = (("delta_lr", "server_lr"), ("local_epochs", "local_steps"), ("constants", "client_lr"))
SERVER_RATES = ("server_lr", "delta_lr")


@dataclass(frozen=True)
class Part(Generic[P]):
    """A chosen method, optimizer or schedule.

    Args:
        kind: "method", "schedule" or the role of an optimizer.
        name: name of the plug-in.
        values: hyperparameter -> one value for each member.
        members: number of members.
        tied: server_lr follows client_lr; the values of server_lr, if the method has it, are then None.
        delta_lrs: for each member of a method, the delta_lr from which server_lr was computed, or None.
        keeps: whether clients keep the memory of this optimizer from round to round (STATE is "keep").
    """

    kind: str
    name: str
    values: Mapping[str, tuple[Any, ...]]
    members: int
    tied: bool = False
    delta_lrs: tuple[float | None, ...] = ()
    keeps: bool = False

    @property
    def module(self) -> P:
        """The plug-in."""
        return cast(P, REGISTRIES[self.kind]()[self.name])

    @property
    def described(self) -> tuple[Hyperparameter, ...]:
        """The hyperparameters of the plug-in."""
        return _described(self.module, self.kind)

    @property
    def structural(self) -> dict[str, Any]:
        """The structural values, which are the same for all members of a pack."""
        values = {item.name: self.values[item.name][0] for item in self.described if not item.traced}
        return {**values, **self.said}

    @property
    def said(self) -> dict[str, Any]:
        """Settings besides the hyperparameters of the plug-in (tied, state), if they are not the default."""
        return {**({TIED.name: True} if self.tied else {}), **({STATE.name: "keep"} if self.keeps else {})}

    def member(self, index: int) -> dict[str, Any]:
        """All values of one member."""
        return {name: values[index] for name, values in self.values.items()}


@dataclass(frozen=True)
class Given:
    """One value from the document, with its dotted path."""

    value: Any
    path: str


def offered(module: Configured, kind: str = "method") -> tuple[Hyperparameter, ...]:
    """All settings of a method, optimizer or schedule.

    These are the fields of its Hyper, for a method delta_lr and tied as alternatives to server_lr, for an adaptive
    server `along`, and for a client optimizer with memory `state`.

    Args:
        module: the plug-in.
        kind: "method", "schedule" or the role of an optimizer.
    """
    items = _described(module, kind)
    if kind == "client" and has_state(cast(Optimizer, module), kind):
        return (*items, STATE)
    if kind == "server":
        return (*items, ALONG) if scaled(items, cast(Optimizer, module)) else items
    return (*items, DELTA_LR, TIED) if {"client_lr", "server_lr"} <= {item.name for item in items} else items


def _described(module: Configured, kind: str) -> tuple[Hyperparameter, ...]:
    return settings(cast(Optimizer, module), kind) if kind in ROLES else describe(module.Hyper)


def chosen(kind: str, registry: Registry[P], document: Any) -> P:
    """The plug-in that a part of a trial document names.

    Args:
        kind: "method", "schedule" or the role of an optimizer.
        registry: registry of the kind.
        document: {"name": ..., hyperparameters}.

    Raises:
        SpecError: the document is not an object, or its name is missing or unknown.
    """
    if not isinstance(document, Mapping):
        raise SpecError(f'{kind} must be an object like {{"name": ...}}, got {kind}={shown(document)}', kind)
    if "name" not in document:
        raise SpecError(f"{kind}.name must be given: one of {', '.join(registry)}", join(kind, "name"))
    return registry.find(document["name"], join(kind, "name"))


def parse_part(kind: str, registry: Registry[P], document: Any, members: Sequence[Mapping[str, Given]]) -> Part[P]:
    """The part that a document describes.

    Args:
        kind: "method", "schedule" or the role of an optimizer.
        registry: registry of the kind.
        document: {"name": ..., hyperparameters}.
        members: further values of each member by the bare name of the hyperparameter; they override the document.

    Raises:
        SpecError: unknown names and keys, missing values, wrong types and ranges, or two alternatives at once.
    """
    module = chosen(kind, registry, document)
    described = {item.name: item for item in offered(module, kind)}
    base = {key: Given(value, join(kind, key)) for key, value in document.items() if key != "name"}
    tied = isinstance(module, Method) and _tied(document["name"], module, [base, *members])
    keys = ["name", *described]
    if kind in ROLES:
        refuse_settings(kind, document, keys)
    elif kind == "method":
        refuse_method_keys(document, keys)
    else:
        refuse_unknown(document, keys, kind)
    rows, deltas = [], []
    keeps = False
    for index, member in enumerate(members):
        _refuse_structural(member, described)
        note = f": member {index} has none" if len(members) > 1 else ""
        row = _values(_merged(base, member), described, kind, note, tied=tied)
        deltas.append(row.pop(DELTA_LR.name, None))
        keeps = kind == "client" and row.pop(STATE.name, STATE.default) == "keep"
        rows.append(module.complete(row))
    values = {name: tuple(row[name] for row in rows) for name in rows[0]}
    return Part(kind, document["name"], values, len(members), tied, tuple(deltas) if kind == "method" else (), keeps)


def _merged(base: Mapping[str, Given], member: Mapping[str, Given]) -> dict[str, Given]:
    """The values of one member: its own override the base, and an alternative of its own replaces the base's."""
    merged = {**base, **member}
    for pair in _EITHER:
        for one, other in (pair, pair[::-1]):
            if one in member and other not in member:
                merged.pop(other, None)
    return merged


def _tied(name: str, module: Method, rows: Sequence[Mapping[str, Given]]) -> bool:
    """Whether server_lr follows client_lr: the method has TIED, or the document (the first row) sets `tied`."""
    always, given = module.TIED, rows[0].get(TIED.name)
    if not always and (given is None or TIED not in offered(module) or not TIED.check(given.value, given.path)):
        return False
    for row in rows:
        for rate in SERVER_RATES:
            if rate in row and (always or row[rate].value is not None):
                path, why = row[rate].path, f"{name} ties" if always else "tied: true ties"
                raise SpecError(f"{path} must be left out: {why} server_lr to client_lr", path)
    return True


def _refuse_structural(member: Mapping[str, Given], described: Mapping[str, Hyperparameter]) -> None:
    for name, given in member.items():
        if not described[name].traced:
            raise SpecError(f"{given.path} must be the same for all members: give it once, outside members", given.path)


def _values(
    given: Mapping[str, Given], described: Mapping[str, Hyperparameter], kind: str, note: str, *, tied: bool
) -> dict[str, Any]:
    """All values of one member: checked, with alternatives resolved and defaults filled in."""
    # Of two alternatives, one may be given as null, which means absent.
    open_to = {name for pair in _EITHER if described.keys() >= set(pair) for name in pair}
    given = {name: item for name, item in given.items() if item.value is not None or name not in open_to}
    values = {name: described[name].check(item.value, item.path) for name, item in given.items()}
    for derived, name in _EITHER:
        if values.get(derived) is not None and values.get(name) is not None:
            path = given[derived].path
            raise SpecError(f"{path} must not be given beside {name}, got both: leave one out", path)
    _derive_local_steps(values, given, described)
    _derive_server_lr(values, given)
    if tied:
        values["server_lr"] = None
        if values.get("client_lr") == 0:
            raise SpecError(
                f"{given['client_lr'].path} must be above 0 if server_lr is tied to it, got client_lr=0",
                given["client_lr"].path,
            )
    if values.get("local_epochs") is not None:
        values["local_steps"] = None
    if values.get("constants") is not None:
        values["client_lr"] = None
    for item in described.values():
        if item is DELTA_LR or item is TIED:
            continue
        value = values.setdefault(item.name, item.default)
        epochs = item.name == "local_steps" and values.get("local_epochs") is not None
        if value is MISSING or (kind == "method" and item.name == "local_steps" and value is None and not epochs):
            raise _missing(item, described, kind, note)
    return {name: values.get(name) for name, item in described.items() if item is not TIED}


def _derive_local_steps(
    values: dict[str, Any], given: Mapping[str, Given], described: Mapping[str, Hyperparameter]
) -> None:
    weights = values.get("gradient_weights")
    if weights is None:
        return
    path = given["gradient_weights"].path
    if weights[-1] == 0:
        raise SpecError(f"{path} must end with a weight above 0, got gradient_weights={shown(list(weights))}", path)
    if "local_steps" not in described:
        return
    steps = values.setdefault("local_steps", len(weights))
    if steps is not None and steps != len(weights):
        raise SpecError(
            f"{path} must have one weight for each local step, got {len(weights)} weights and local_steps={steps}", path
        )


def _derive_server_lr(values: dict[str, Any], given: Mapping[str, Given]) -> None:
    delta_lr = values.get("delta_lr")
    if delta_lr is None:
        return
    client_lr = values.get("client_lr")
    if not client_lr:
        path = given["delta_lr"].path
        raise SpecError(
            f"{path} must come with a client_lr above 0, got client_lr={shown(client_lr)}: give server_lr instead", path
        )
    values["server_lr"] = delta_lr * client_lr


def _missing(item: Hyperparameter, described: Mapping[str, Hyperparameter], kind: str, note: str) -> SpecError:
    path = join(kind, item.name)
    instead = [derived for derived, name in _EITHER if name == item.name and derived in described]
    hint = f", or {instead[0]} in its place" if instead else ""
    return SpecError(f"{path} must be given ({item.wanted()}{hint}){note}", path)
