"""Entries with their own name in the literature that are FedAvg with a server optimizer here.

    - {preset: fedadam}           # FedAvg with Adam on the server, default spaces
    - {preset: fedyogi, label: yogi, space: {client_lr: 0.1, server_lr: {float: [1e-3, 1], log: true}, local_steps: 10}}

An entry may override everything in a preset except the method; a space of the same server optimizer keeps what it does
not name. The adaptive ones are the papers' loops: the server steps along the mean change of the clients' models, so
that epsilon is tau, v starts at tau^2, and there is no bias correction; server_lr and delta_lr are both the server's
rate. FedAvgM is the paper's with delta_lr, and server_lr multiplies a sum of gradients. Stored studies have presets
written out.

Sources: FedAvgM is from "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification"
(Hsu, Qi, Brown 2019), the others from "Adaptive Federated Optimization" (Reddi et al. 2021).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from search_spaces import spaces
from search_spaces.parameters import Float, Space, fixed
from search_spaces.spaces import SERVERS
from trainers import SpecError, hint, shown

__all__ = ["SERVERS", "entry", "method_space"]

_ADAPTIVE = {"along": "change", "initial_accumulator": None, "epsilon": 1e-3}
_PAPERS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "fedavgm": {"momentum": 0.9},
        "fedadam": {**_ADAPTIVE, "bias_correction": False},
        "fedyogi": {**_ADAPTIVE, "bias_correction": False},
        "fedadagrad": _ADAPTIVE,
    }
)


def method_space(name: object, space: Space) -> Space:
    """The default space of a preset's method; client_lr is not 0 if the server steps along the clients' change.

    Args:
        name: Name of the preset.
        space: The default space of fedavg.
    """
    rate = space["client_lr"]
    if "along" in _PAPERS[str(name)] and isinstance(rate, Float):
        return space | {"client_lr": replace(rate, also=())}
    return space


def entry(name: object, server: object = None) -> dict[str, Any]:
    """The entry that a preset stands for, as a document.

    Args:
        name: Name of the preset.
        server: What the study says of the server instead, {"name": ..., "space": ...}.

    Returns:
        label, name and server, with the default space of the server optimizer but no space of the method.

    Raises:
        SpecError: No such preset; the message names the nearest one.

    Examples:
        >>> entry("fedavgm")["server"]
        {'name': 'sgd', 'space': {'momentum': {'float': [0.0, 0.99], 'log': True, 'complement': True}}}
    """
    if not isinstance(name, str) or name not in SERVERS:
        raise SpecError(f"no preset {shown(name)}: {hint(name, SERVERS)}")
    made = {"label": name, "name": "fedavg", "server": server}
    if isinstance(server, str):
        server = {"name": server}
    if server is None:
        server = {"space": "default"}
    if not isinstance(server, Mapping) or server.get("name", SERVERS[name]) != SERVERS[name]:
        return made
    space = server.get("space", {})
    if space == "default" or (space == "theory" and "along" in _PAPERS[name]):  # theory has ranges of momentum only
        space = {key: parameter.to_json() for key, parameter in spaces.default("server", SERVERS[name]).items()}
    if isinstance(space, Mapping):
        space = {**{key: fixed(value).to_json() for key, value in _PAPERS[name].items()}, **space}
    return made | {"server": {"name": SERVERS[name], **server, "space": space}}
