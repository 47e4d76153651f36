"""The server's branch of a round in mixed federated learning, and the merge of both branches, by any optimizer.

The optimizers are those of trainers/server in another role: the server's branch takes its steps with one of them
(central_optimizer), and the sum of both branches' changes is a pseudo-gradient with the sign turned for another
(merge_optimizer). What they remember lasts from round to round, as that of the server optimizer does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainers.engine.central import Central, merged
from trainers.engine.client import ClientSteps
from trainers.engine.local import LocalWork
from trainers.engine.state import State
from trainers.hyper import hyper
from trainers.mixing import OPTIMIZERS, setting_names
from trainers.registry import servers

ROLES = ("central", "merge")
SERVER_LR = -1.0
"""Stands for a central_lr that is left out, in a pack in which other trials have one."""
_MOMENTUM: dict[str, Any] = {
    "low": 0,
    "high": 1,
    "high_open": True,
    "limit": "0 is plain SGD",
    "doc": "of sgd, or beta1 of the others; null is the optimizer's own",
}
_EPSILON: dict[str, Any] = {
    "low": 0,
    "low_open": True,
    "doc": "of adaptive optimizers; null is the optimizer's own",
}


@dataclass(frozen=True)
class Branches(ClientSteps):
    """Hyperparameters of a method with a branch of the server beside the clients'; its Hyper inherits them."""

    central_lr: Tensor | None = hyper(
        None,
        low=0,
        none_is=SERVER_LR,
        limit="0 leaves the clients' branch alone",
        doc="step size of the server's branch; null is server_lr",
    )
    central_steps: Tensor = hyper(
        None, kind="int", low=1, unit="steps", doc="of the server's branch; null is local_steps"
    )
    central_batch_size: int | None = hyper(
        None, low=1, unit="examples", traced=False, doc="of a central step; null is what all clients of a step have"
    )
    merge_lr: Tensor = hyper(1.0, low=0, low_open=True, doc="multiplies the added changes of both branches")
    merge: str = hyper("sum", choices=("sum", "mean"), traced=False, doc="of the two changes; mean halves merge_lr")
    central_optimizer: str = hyper(
        "sgd",
        choices=OPTIMIZERS,
        traced=False,
        doc="takes the steps of the server's branch",
    )
    central_momentum: Tensor = hyper(None, **_MOMENTUM)
    central_epsilon: Tensor = hyper(None, unit="gradient", **_EPSILON)
    merge_optimizer: str = hyper(
        "sgd", choices=OPTIMIZERS, traced=False, doc="steps along the sum of both changes with merge_lr"
    )
    merge_momentum: Tensor = hyper(None, **_MOMENTUM)
    merge_epsilon: Tensor = hyper(None, unit="model", **_EPSILON)


@dataclass(frozen=True)
class Rule:
    """An optimizer of trainers/server in a role of its own.

    Args:
        role: "central" or "merge".
        module: in trainers/server.
        hyper: its settings, traced ones (T, 1, 1).
    """

    role: str
    module: Any
    hyper: Any

    @property
    def plain(self) -> bool:
        """Whether it is SGD without momentum, which remembers nothing."""
        momentum = getattr(self.hyper, "momentum", None)
        return momentum is not None and not bool((momentum != 0).any())

    def init(self, params: Tensor) -> dict[str, Tensor]:
        """What it remembers before the first round, by names that begin with its role; nothing where it is plain."""
        if self.plain:
            return {}
        return {f"{self.role}_{name}": held for name, held in self.module.init(self.hyper, params).items()}

    def step(
        self, memory: Mapping[str, Tensor], params: Tensor, gradient: Tensor, rate: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The models after a step, and what it remembers then, by names that begin with its role.

        Args:
            memory: with at least its own names.
            params: (T, 1, P).
            gradient: (T, 1, P).
            rate: (T, 1, 1).
        """
        names = self.init(params)
        own = {name.removeprefix(f"{self.role}_"): memory[name] for name in names}
        params, own = self.module.step(self.hyper, own, params, gradient, rate)
        return params, {f"{self.role}_{name}": held for name, held in own.items()}


@dataclass(frozen=True)
class Branch:
    """What came of the server's branch.

    Args:
        delta: (T, 1, P) change of the model.
        mean_gradient: (T, 1, P) mean of its gradients, their correction left out.
        memory: what its optimizer remembers, by names of the method's memory.
    """

    delta: Tensor
    mean_gradient: Tensor
    memory: dict[str, Tensor]


def rule(role: str, hyper: Any, like: Tensor) -> Rule:
    """The optimizer of a role, from a method's hyperparameters ROLE_optimizer, ROLE_momentum and ROLE_epsilon.

    Args:
        role: "central" or "merge".
        hyper: of the method, traced fields (T, 1, 1); None leaves an optimizer's own default.
        like: a tensor of the type and on the device of the models.
    """
    name = getattr(hyper, f"{role}_optimizer")
    module = servers()[name]
    given = {own: getattr(hyper, f"{role}_{common}") for common, own in setting_names(name).items()}
    values = {own: value for own, value in given.items() if value is not None}
    for field in fields(module.Hyper):
        if field.name not in values:
            held = field.default
            values[field.name] = like.new_tensor(held).view(1, 1, 1) if isinstance(held, float) else held
    return Rule(role, module, module.Hyper(**values))


def memory(hyper: Any, params: Tensor) -> dict[str, Tensor]:
    """What the optimizers of both roles remember before the first round.

    Args:
        hyper: of the method.
        params: (T, 1, P), the first models.
    """
    return {name: held for role in ROLES for name, held in rule(role, hyper, params).init(params).items()}


def server_branch(central: Central, hyper: Any, state: State, correction: Tensor | None = None) -> Branch:
    """The server's steps of a round, from the round's model.

    Args:
        central: the server's data.
        hyper: of the method, with central_lr, central_steps, central_weight, central_batch_size and the central
            optimizer; central_lr of None, or SERVER_LR, is the rate of the server.
        state: before the round.
        correction: (T, 1, P) added to every gradient; None is 0.
    """
    rate = state.server_lr
    if hyper.central_lr is not None:
        rate = torch.where(hyper.central_lr < 0, rate, hyper.central_lr)
    chosen = rule("central", hyper, state.params)
    if chosen.plain:
        work = LocalWork(rate, hyper.central_steps, correction=correction)
        total = central.local(state.params, work, hyper.central_weight, hyper.central_batch_size).pseudo_gradient
        mean = total / hyper.central_steps.to(total)
        return Branch(-rate * total, mean if correction is None else mean - correction, {})

    kept = {name: state.memory[name] for name in chosen.init(state.params)}

    def step(params: Tensor, gradient: Tensor, active: Tensor) -> Tensor:
        whole = gradient if correction is None else gradient + correction
        moved, fresh = chosen.step(kept, params, whole, rate)
        for name, held in fresh.items():
            kept[name] = torch.where(active, held, kept[name])
        return moved

    params, total = _walk(central, hyper, state.params, step)
    return Branch(params - state.params, total / hyper.central_steps.to(total), kept)


def merge(hyper: Any, before: State, federated: State, branch: Branch) -> State:
    """The state after the merge, with what both optimizers remember.

    Args:
        hyper: of the method, with merge_lr, merge ("mean" halves merge_lr) and the merge optimizer.
        before: the round.
        federated: after the server optimizer's step.
        branch: of the server.
    """
    rate = hyper.merge_lr / 2 if hyper.merge == "mean" else hyper.merge_lr
    chosen = rule("merge", hyper, before.params)
    if chosen.plain:
        return merged(before, federated, branch.delta, rate).remember(**branch.memory)
    change = federated.params - before.params + branch.delta
    params, fresh = chosen.step(before.memory, before.params, -change, rate)
    return replace(federated, params=params).remember(**branch.memory, **fresh)


def _walk(
    central: Central, hyper: Any, params: Tensor, step: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """(models after the steps, sum of the gradients), each trial with its own number of steps."""
    counts = np.where(central.alive, hyper.central_steps.cpu().numpy().reshape(-1), 0)
    total = torch.zeros_like(params)
    for number in range(int(counts.max(initial=0))):
        taking = counts > number
        active = torch.as_tensor(taking, device=params.device).view(-1, 1, 1)
        gradient = central.step_gradient(params, number, hyper.central_weight, hyper.central_batch_size, taking)
        moved = step(params, gradient, active)
        total = torch.where(active, total + gradient, total)
        params = torch.where(active, moved, params)
    return params, total
