"""Entries with their own name in the literature that are FedAvg with a server optimizer here.

    - {preset: fedadam}           # FedAvg with Adam on the server, default spaces
    - {preset: fedyogi, label: yogi, space: {client_lr: 0.1, server_lr: {float: [1e-3, 1], log: true}, local_steps: 10}}

An entry may override everything in a preset except the method. Stored studies have presets written out.

Sources: FedAvgM is from "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification"
(Hsu, Qi, Brown 2019), the others from "Adaptive Federated Optimization" (Reddi et al. 2021).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from search_spaces import spaces
from trainers import SpecError, hint, shown

SERVERS: Mapping[str, str] = MappingProxyType(
    {"fedavgm": "sgd", "fedadam": "adam", "fedyogi": "yogi", "fedadagrad": "adagrad"}
)
"""Preset -> its server optimizer; the method is always fedavg."""


def entry(name: object) -> dict[str, Any]:
    """The entry that a preset stands for, as a document.

    Args:
        name: Name of the preset.

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
    space = spaces.default("server", SERVERS[name])
    forms = {key: parameter.to_json() for key, parameter in space.items()}
    return {"label": name, "name": "fedavg", "server": {"name": SERVERS[name], "space": forms}}
