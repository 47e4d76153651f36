"""Entries with their own name in the literature: FedAvg with a server optimizer, and low-communication training.

    - {preset: fedadam}           # FedAvg with Adam on the server, default spaces
    - {preset: fedyogi, label: yogi, space: {client_lr: 0.1, server_lr: {float: [1e-3, 1], log: true}, local_steps: 10}}
    - {preset: diloco, space: {local_steps: 30}}           # the settings in presets.yaml, with 30 local steps

An entry may override everything in a preset except the method; if it gives a space for the same server optimizer, the
preset's values remain for hyperparameters that this space does not name. The adaptive presets are the papers' loops:
the server steps along the mean change of the clients' models, so that epsilon is tau, v starts at tau^2, and there is
no bias correction; server_lr and delta_lr are both the server's rate. FedAvgM with delta_lr is the paper's; server_lr
multiplies a sum of gradients. Stored studies have presets written out.

The presets of low-communication training are in presets.yaml, with their sources. An entry keeps every setting of such
a preset that it does not name itself, also in its space. An alternative, such as server_lr for delta_lr, replaces it.

Sources: FedAvgM is from "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification"
(Hsu, Qi, Brown 2019), the others from "Adaptive Federated Optimization" (Reddi et al. 2021).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from search_spaces import spaces
from search_spaces.parameters import Float, Space, fixed
from search_spaces.spaces import SERVERS
from trainers import SpecError, hint, shown

__all__ = ["SERVERS", "Training", "entry", "filled", "method_space", "trainings"]

_ALTERNATIVES = (("server_lr", "delta_lr", "tied"), ("local_steps", "local_epochs"))

_ADAPTIVE = {"along": "change", "initial_accumulator": None, "epsilon": 1e-3}
_PAPERS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "fedavgm": {"momentum": 0.9},
        "fedadam": {**_ADAPTIVE, "bias_correction": False},
        "fedyogi": {**_ADAPTIVE, "bias_correction": False},
        "fedadagrad": _ADAPTIVE,
    }
)


@dataclass(frozen=True)
class Training:
    """A preset of low-communication training.

    Args:
        about: what it is.
        source: the papers.
        note: what differs from the papers.
        entry: the entry of a study, as a document.
    """

    about: str
    source: str
    note: str
    entry: Mapping[str, Any]


@cache
def trainings() -> Mapping[str, Training]:
    """The presets of low-communication training by name."""
    text = Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    return {name: Training(**facts) for name, facts in yaml.safe_load(text).items()}


def filled(document: Mapping[str, Any]) -> dict[str, Any]:
    """An entry with its preset written out; the entry's own settings take precedence.

    Args:
        document: the entry, with `preset`.

    Raises:
        SpecError: No such preset; the message names the nearest one.

    Examples:
        >>> filled({"preset": "lookahead", "space": {"server_lr": 0.1}})["space"].keys()
        dict_keys(['client_lr', 'local_steps', 'server_lr'])
    """
    name = document["preset"]
    written = {key: value for key, value in document.items() if key != "preset"}
    if not isinstance(name, str) or name not in trainings():
        return entry(name, written.pop("server", None)) | written
    merged: dict[str, Any] = {"label": name, **trainings()[name].entry}
    for key, value in written.items():
        merged[key] = (
            _space(merged[key], value)
            if key == "space"
            else _part(merged[key], value)
            if isinstance(merged.get(key), Mapping)
            else value
        )
    return merged


def _part(preset: Any, written: Any) -> Any:
    """An optimizer or a schedule; if it is the preset's, the preset fills in what was left out."""
    part = {"name": written} if isinstance(written, str) else written
    if not isinstance(part, Mapping) or part.get("name", preset["name"]) != preset["name"]:
        return written
    space = _space(preset["space"], part.get("space", {}))
    if isinstance(space, Mapping):  # a setting such as state may be given beside the space
        space = {name: form for name, form in space.items() if name not in part or name in part.get("space", ())}
    return {**preset, **part, "space": space}


def _space(preset: Mapping[str, Any], written: Any) -> Any:
    """A space with missing hyperparameters from the preset's space; "default" is the preset's space."""
    if written == "default":
        return dict(preset)
    if not isinstance(written, Mapping):
        return written
    instead = {name for names in _ALTERNATIVES for name in names if not written.keys().isdisjoint(names)}
    return {**{name: form for name, form in preset.items() if name not in instead}, **written}


def method_space(name: object, space: Space) -> Space:
    """The default space of a preset's method; client_lr is not 0 if the server steps along the clients' change.

    Args:
        name: Name of the preset.
        space: The default space of fedavg.
    """
    rate = space.get("client_lr")
    if "along" in _PAPERS.get(str(name), {}) and isinstance(rate, Float):
        return space | {"client_lr": replace(rate, also=())}
    return space


def entry(name: object, server: object = None) -> dict[str, Any]:
    """The entry that a preset stands for, as a document.

    Args:
        name: Name of the preset.
        server: The entry's own server, {"name": ..., "space": ...}, which takes precedence.

    Returns:
        label, name and server, with the default space of the server optimizer but no space of the method.

    Raises:
        SpecError: No such preset; the message names the nearest one.

    Examples:
        >>> entry("fedavgm")["server"]
        {'name': 'sgd', 'space': {'momentum': {'float': [0.0, 0.99], 'log': True, 'complement': True}}}
    """
    if not isinstance(name, str) or name not in SERVERS:
        raise SpecError(f"no preset {shown(name)}: {hint(name, [*SERVERS, *trainings()])}")
    document = {"label": name, "name": "fedavg", "server": server}
    if isinstance(server, str):
        server = {"name": server}
    if server is None:
        server = {"space": "default"}
    if not isinstance(server, Mapping) or server.get("name", SERVERS[name]) != SERVERS[name]:
        return document
    space = server.get("space", {})
    if space == "default" or (space == "theory" and "along" in _PAPERS[name]):  # theory has ranges of momentum only
        space = {key: parameter.to_json() for key, parameter in spaces.default("server", SERVERS[name]).items()}
    if isinstance(space, Mapping):
        space = {**{key: fixed(value).to_json() for key, value in _PAPERS[name].items()}, **space}
    return document | {"server": {"name": SERVERS[name], **server, "space": space}}
