"""Entries that have a name of their own in the literature, but are FedAvg with a server optimizer here.

    - {preset: fedadam}           # FedAvg with Adam on the server, default spaces
    - {preset: fedyogi, label: yogi, space: {client_lr: 0.1, server_lr: {float: [1e-3, 1], log: true}, local_steps: 10}}

An entry may change everything that a preset says, except the method; the stored study has it written out.

Sources: FedAvgM is of "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification"
(Hsu, Qi, Brown 2019), the others of "Adaptive Federated Optimization" (Reddi et al. 2021).
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
"""Preset -> its server optimizer; the method of all is fedavg."""


def entry(name: object) -> dict[str, Any]:
    """The entry of a study that a preset stands for, as a document.

    Args:
        name: of the preset.

    Returns:
        label, name and server, with the default space of the server optimizer; that of the method is left to be filled
        in.

    Raises:
        SpecError: No such preset; names the nearest one.

    Examples:
        >>> entry("fedavgm")["server"]
        {'name': 'sgd', 'space': {'momentum': {'float': [0.0, 0.99], 'log': True, 'complement': True}}}
    """
    if not isinstance(name, str) or name not in SERVERS:
        raise SpecError(f"no preset {shown(name)}: {hint(name, SERVERS)}")
    space = spaces.default("server", SERVERS[name])
    forms = {key: parameter.to_json() for key, parameter in space.items()}
    return {"label": name, "name": "fedavg", "server": {"name": SERVERS[name], "space": forms}}
