"""The methods and client optimizers that benchmarks/engine.py times, each with the plain loop beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.plain_loops import (
    ADAPTIVE_LR,
    CLIENT_LR,
    CLIP,
    COHORT,
    MIXING,
    PROX,
    STEPS,
    Pictures,
    Plain,
    PlainAllOnClient,
    PlainClipped,
    PlainDyn,
    PlainMaml,
    PlainMass,
    PlainProx,
    PlainScaffold,
    PlainSgd,
)
from benchmarks.plain_methods import (
    DISPLACEMENT,
    LEFT_OUT,
    MOMENTUM,
    PlainAlignedScaling,
    PlainFedga,
    PlainGradAlign,
    PlainLocalUpdate,
    PlainLookahead,
    PlainMime,
    PlainMimeLite,
    PlainOneWay,
    PlainParallel,
    PlainPooled,
    PlainRegularized,
    PlainTwoWay,
    Yogi,
)


@dataclass(frozen=True)
class Row:
    """What is trained, in the engine and in the loop.

    Args:
        name: of the row.
        method: settings of the engine's method, besides those of FedAvg.
        client: the engine's client optimizer.
        loop: the plain loop.
        central: whether the server has data of its own.
        cohort: clients of a round.
    """

    name: str
    loop: Callable[[nn.Module, Pictures], Plain] = Plain
    method: dict[str, Any] = field(default_factory=dict)
    client: dict[str, Any] = field(default_factory=dict)
    central: bool = False
    cohort: int = COHORT


def stepping(make: Callable[[list[Tensor]], torch.optim.Optimizer]) -> Callable[[nn.Module, Pictures], Plain]:
    """FedAvg with an optimizer of torch on the clients."""
    return lambda module, data: Plain(module, data, make)


OPTIMIZERS = [
    Row(
        "momentum",
        stepping(lambda held: torch.optim.SGD(held, CLIENT_LR, momentum=0.9, fused=True)),
        client={"name": "momentum"},
    ),
    Row(
        "nesterov",
        stepping(lambda held: torch.optim.SGD(held, CLIENT_LR, momentum=0.9, nesterov=True, fused=True)),
        client={"name": "nesterov"},
    ),
    Row("adam", stepping(lambda held: torch.optim.Adam(held, ADAPTIVE_LR, fused=True)), client={"name": "adam"}),
    Row(
        "adamw",
        stepping(lambda held: torch.optim.AdamW(held, ADAPTIVE_LR, weight_decay=0.01, fused=True)),
        {"weight_decay": 0.01},
        {"name": "adamw"},
    ),
    Row("rmsprop", stepping(lambda held: torch.optim.RMSprop(held, ADAPTIVE_LR)), client={"name": "rmsprop"}),
    Row(
        "adagrad", stepping(lambda held: torch.optim.Adagrad(held, ADAPTIVE_LR, fused=True)), client={"name": "adagrad"}
    ),
    Row("yogi", stepping(lambda held: Yogi(held, ADAPTIVE_LR)), client={"name": "yogi"}),
]
MASS = {"name": "mass", "server_lr": None, "mixing": MIXING, "sync": "reset"}
NO_STEPS = {"client_lr": None, "local_steps": None}
WEIGHTS = [0.0] * LEFT_OUT + [1.0] * (STEPS - LEFT_OUT)
REGULARIZED = {"name": "regularized_gd", "misalignment_weight": DISPLACEMENT}
MIXED: dict[str, Callable[[nn.Module, Pictures], Plain]] = {
    "one_way_transfer": PlainOneWay,
    "two_way_transfer": PlainTwoWay,
    "parallel_training": PlainParallel,
    "pooled_training": PlainPooled,
}
METHODS = [
    Row("fedavg"),
    Row("fedprox", PlainProx, {"name": "fedprox", "prox": PROX}),
    Row("clip_norm", PlainClipped, {"clip_norm": CLIP}),
    Row("scaffold", PlainScaffold, {"name": "scaffold", "variates": "stored"}),
    Row("feddyn", PlainDyn, {"name": "feddyn", "prox": PROX}),
    Row("mass", PlainMass, MASS),
    Row("maml", PlainMaml, {"name": "maml"}),
    Row("all_on_client", PlainAllOnClient, {"name": "all_on_client"}, central=True),
    Row("fedsgd", PlainSgd, {"name": "fedsgd", "client_lr": None, "local_steps": None}),
    Row("minibatch_prox", PlainProx, {"name": "minibatch_prox", "prox": PROX}),
    Row("local_sgd", Plain, {"name": "local_sgd", "server_lr": None}),
    *(Row(name, Plain, {"name": name}) for name in ("fednova", "fedexp", "reptile", "fomaml")),
    *(Row(name, PlainSgd, {"name": name, **NO_STEPS}) for name in ("minibatch_sgd", "linear_scaling")),
    Row("lookahead", PlainLookahead, {"name": "lookahead"}, cohort=PlainLookahead.cohort),
    Row("local_update", PlainLocalUpdate, {"name": "local_update", "local_steps": None, "gradient_weights": WEIGHTS}),
    Row("gradalign", PlainGradAlign, {"name": "gradalign", "displacement": DISPLACEMENT, **NO_STEPS}),
    Row("aligned_linear_scaling", PlainAlignedScaling, {"name": "aligned_linear_scaling", "local_steps": None}),
    Row("regularized_gd", PlainRegularized, {**REGULARIZED, **NO_STEPS}),
    Row("fedga", PlainFedga, {"name": "fedga", "displacement": DISPLACEMENT}),
    Row("mimelite", PlainMimeLite, {"name": "mimelite", "momentum": MOMENTUM}),
    Row("mime", PlainMime, {"name": "mime", "momentum": MOMENTUM}),
    *(Row(name, loop, {"name": name}, central=True) for name, loop in MIXED.items()),
]
