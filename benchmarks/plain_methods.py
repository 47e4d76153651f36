"""More methods as plain PyTorch loops (see plain_loops.py): alignment, Mime, weighted steps, and the server's data."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.plain_loops import BATCH, CLIENT_LR, COHORT, EXAMPLES, STEPS, Pictures, Plain, Tensors, zeros

DISPLACEMENT, MOMENTUM = 0.1, 0.9
SHARE = 0.5  # of the clients' loss, and of the server's
LEFT_OUT = 2  # first gradients of a client that have weight 0


class PlainLookahead(Plain):
    """Lookahead: one client a round."""

    cohort = 1


class PlainLocalUpdate(Plain):
    """Local update with weight 0 for a client's first gradients."""

    def train_round(self, clients: list[int]) -> None:
        change = zeros(self.server)
        for client in clients:
            self.start()
            for number, rows in enumerate(self.batches(client)):
                if number == LEFT_OUT:
                    torch._foreach_sub_(change, [held.detach() for held in self.parameters])
                self.step(self.gradients(rows))
            torch._foreach_add_(change, [held.detach() for held in self.parameters])
        torch._foreach_add_(self.server, change, alpha=1 / COHORT)


class PlainGradAlign(Plain):
    """GradAlign: gradients at models displaced along the client's own gradient and against the sum of all."""

    own, others, rate = DISPLACEMENT, -DISPLACEMENT / COHORT, CLIENT_LR / COHORT

    def train_round(self, clients: list[int]) -> None:
        batches = [next(iter(self.batches(client))) for client in clients]
        self.start()
        gradients = [self.gradients(rows) for rows in batches]
        total, change = summed(gradients), zeros(self.server)
        for rows, gradient in zip(batches, gradients, strict=True):
            self.start()
            with torch.no_grad():
                torch._foreach_add_(self.parameters, gradient, alpha=self.own)
                torch._foreach_add_(self.parameters, total, alpha=self.others)
            torch._foreach_add_(change, self.gradients(rows), alpha=-self.rate)
        torch._foreach_add_(self.server, change)


class PlainAlignedScaling(PlainGradAlign):
    """Alignment-aware linear scaling: GradAlign with other displacements and the sum of the gradients."""

    own, others, rate = CLIENT_LR / 2, -CLIENT_LR / 2, CLIENT_LR


class PlainRegularized(Plain):
    """Gradient descent on loss and misalignment, with Hessian-vector products by automatic differentiation."""

    def train_round(self, clients: list[int]) -> None:
        self.start()
        batches = [next(iter(self.batches(client))) for client in clients]
        gradients = [self.gradients(rows) for rows in batches]
        mean = torch._foreach_div(summed(gradients), COHORT)
        slope = zeros(self.server)
        for rows, gradient in zip(batches, gradients, strict=True):
            slopes = torch.autograd.grad(self.loss(rows), self.parameters, create_graph=True)
            gap = torch._foreach_sub(gradient, mean)
            torch._foreach_add_(slope, torch.autograd.grad(slopes, self.parameters, gap))
        torch._foreach_add_(mean, slope, alpha=DISPLACEMENT / COHORT)
        torch._foreach_add_(self.server, mean, alpha=-CLIENT_LR)


class PlainFedga(Plain):
    """FedGA: clients start at displaced models."""

    def train_round(self, clients: list[int]) -> None:
        self.start()
        gradients = [self.gradients(own_rows(client)) for client in clients]
        mean, change = torch._foreach_div(summed(gradients), COHORT), zeros(self.server)
        for client, gradient in zip(clients, gradients, strict=True):
            begin = torch._foreach_add(self.server, torch._foreach_sub(gradient, mean), alpha=DISPLACEMENT)
            self.start(begin)
            for rows in self.batches(client):
                self.step(self.gradients(rows))
            with torch.no_grad():
                torch._foreach_add_(change, torch._foreach_sub(self.parameters, begin), alpha=1 / COHORT)
        torch._foreach_add_(self.server, change)


class PlainMimeLite(Plain):
    """MimeLite."""

    def __init__(self, module: nn.Module, data: Pictures) -> None:
        super().__init__(module, data)
        self.momentum = zeros(self.server)

    def train_round(self, clients: list[int]) -> None:
        self.start()
        mean = summed([self.gradients(own_rows(client)) for client in clients])
        new = torch._foreach_mul(self.momentum, MOMENTUM)
        torch._foreach_add_(new, mean, alpha=(1 - MOMENTUM) / COHORT)
        self.pull, average = self.pulled(new), zeros(self.server)
        for client in clients:
            self.start()
            for rows in self.batches(client):
                self.step(self.local_gradients(rows))
            with torch.no_grad():
                torch._foreach_add_(average, self.parameters, alpha=1 / COHORT)
        self.server, self.momentum = average, new

    def local_gradients(self, rows: Tensor) -> tuple[Tensor, ...]:
        """The gradients of a local step."""
        return self.gradients(rows)

    def pulled(self, new: Tensors) -> Tensors:
        """What is added to every local gradient, given the next momentum."""
        return list(torch._foreach_mul(self.momentum, MOMENTUM))

    @torch.no_grad()
    def step(self, gradients: tuple[Tensor, ...]) -> None:
        torch._foreach_add_(self.parameters, gradients, alpha=-CLIENT_LR * (1 - MOMENTUM))
        torch._foreach_add_(self.parameters, self.pull, alpha=-CLIENT_LR)


class PlainMime(PlainMimeLite):
    """Mime: from each gradient, the gradient of the server's model on the same batch is subtracted."""

    def __init__(self, module: nn.Module, data: Pictures) -> None:
        super().__init__(module, data)
        self.anchor = copy.deepcopy(module)

    def pulled(self, new: Tensors) -> Tensors:
        self.anchor.load_state_dict(self.module.state_dict())
        return new

    def local_gradients(self, rows: Tensor) -> tuple[Tensor, ...]:
        anchored = self.data.loss(self.anchor(self.data.inputs[rows]), self.data.targets[rows])
        theirs = torch.autograd.grad(anchored, list(self.anchor.parameters()))
        return torch._foreach_sub(self.gradients(rows), theirs)


class PlainOneWay(Plain):
    """One-way transfer: clients add a gradient of the server's loss."""

    def train_round(self, clients: list[int]) -> None:
        self.start()
        self.pull = self.central_gradients(COHORT * BATCH * STEPS)
        super().train_round(clients)

    def central_gradients(self, examples: int) -> tuple[Tensor, ...]:
        """The server's weighted gradient at the module's parameters."""
        return torch.autograd.grad(SHARE * self.central_loss(examples), self.parameters)

    @torch.no_grad()
    def step(self, gradients: tuple[Tensor, ...]) -> None:
        torch._foreach_add_(self.parameters, gradients, alpha=-CLIENT_LR * SHARE)
        torch._foreach_add_(self.parameters, self.pull, alpha=-CLIENT_LR)


class PlainTwoWay(PlainOneWay):
    """Two-way transfer: clients and server take steps, each with the other's mean gradient."""

    def __init__(self, module: nn.Module, data: Pictures) -> None:
        super().__init__(module, data)
        self.pull, self.central_pull = tuple(zeros(self.server)), zeros(self.server)

    def train_round(self, clients: list[int]) -> None:
        before = self.server
        moved = self.server_branch()
        Plain.train_round(self, clients)
        by_clients = list(torch._foreach_sub(before, self.server))
        torch._foreach_sub_(self.server, moved)
        self.transfer(moved, by_clients)

    def server_branch(self) -> Tensors:
        """How far the server's own steps move the model."""
        self.start()
        for _ in range(STEPS):
            self.server_step(self.central_gradients(COHORT * BATCH))
        with torch.no_grad():
            return list(torch._foreach_sub(self.server, self.parameters))

    @torch.no_grad()
    def server_step(self, gradients: tuple[Tensor, ...]) -> None:
        """One step of the server's branch."""
        torch._foreach_add_(self.parameters, gradients, alpha=-CLIENT_LR)
        torch._foreach_add_(self.parameters, self.central_pull, alpha=-CLIENT_LR)

    def transfer(self, moved: Tensors, by_clients: Tensors) -> None:
        """Sets what both branches add in the next round, from how far they moved."""
        rate = STEPS * CLIENT_LR
        pull = torch._foreach_sub(torch._foreach_div(moved, rate), self.central_pull)
        self.central_pull = list(torch._foreach_sub(torch._foreach_div(by_clients, rate), self.pull))
        self.pull = pull


class PlainParallel(PlainTwoWay):
    """Parallel training: both branches, without transfer."""

    def step(self, gradients: tuple[Tensor, ...]) -> None:
        with torch.no_grad():
            torch._foreach_add_(self.parameters, gradients, alpha=-CLIENT_LR * SHARE)

    def server_step(self, gradients: tuple[Tensor, ...]) -> None:
        with torch.no_grad():
            torch._foreach_add_(self.parameters, gradients, alpha=-CLIENT_LR)

    def transfer(self, moved: Tensors, by_clients: Tensors) -> None:
        """Nothing."""


class PlainPooled(PlainOneWay):
    """Pooled training: every step is along the gradient of the cohort's and the server's batches."""

    def train_round(self, clients: list[int]) -> None:
        self.start()
        for batches in zip(*(self.batches(client) for client in clients), strict=True):
            step = list(self.central_gradients(COHORT * BATCH))
            for rows in batches:
                torch._foreach_add_(step, self.gradients(rows), alpha=SHARE / COHORT)
            with torch.no_grad():
                torch._foreach_add_(self.parameters, step, alpha=-CLIENT_LR)
        self.server = [held.detach().clone() for held in self.parameters]


class Yogi(torch.optim.Optimizer):
    """Yogi with bias correction, which torch lacks."""

    def __init__(self, parameters: Tensors, rate: float) -> None:
        super().__init__(parameters, {"lr": rate})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        held = self.param_groups[0]["params"]
        gradients = [one.grad for one in held]
        if not self.state:
            self.state["mean"], self.state["square"], self.state["steps"] = zeros(held), zeros(held), 0
        mean, square = self.state["mean"], self.state["square"]
        self.state["steps"] += 1
        torch._foreach_lerp_(mean, gradients, 0.1)
        new = torch._foreach_mul(gradients, gradients)
        gap = torch._foreach_sub(new, square)
        torch._foreach_sign_(gap)
        torch._foreach_addcmul_(square, gap, new, value=0.001)
        root = torch._foreach_sqrt(square)
        torch._foreach_add_(root, 1e-3)
        steps = self.state["steps"]
        factor = (1 - 0.999**steps) ** 0.5 / (1 - 0.9**steps)
        torch._foreach_addcdiv_(held, mean, root, value=-self.param_groups[0]["lr"] * factor)


def own_rows(client: int) -> Tensor:
    """All rows of a client."""
    return torch.arange(client * EXAMPLES, (client + 1) * EXAMPLES)


def summed(gradients: list[tuple[Tensor, ...]]) -> Tensors:
    """The sum of gradients."""
    total = zeros(list(gradients[0]))
    for gradient in gradients:
        torch._foreach_add_(total, gradient)
    return total
