"""Local update methods as one would write them with care in plain PyTorch, for benchmarks/engine.py.

One resident module, no copies of data, batches gathered by index, gradients by autograd, fused updates (`fused=True` of
torch.optim where it exists, `torch._foreach` operations otherwise). The loops only train: they report and count
nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

CLIENTS, EXAMPLES, COHORT, BATCH, STEPS, CLASSES, SIDE = 100, 100, 10, 20, 5, 62, 28
CLIENT_LR, ADAPTIVE_LR = 0.05, 0.001
PROX, CLIP, MIXING = 0.1, 1.0, 0.3
CENTRAL = 10 * CLIENTS  # examples of the server
NUMBERS = 20  # of a quadratic

Tensors = list[Tensor]


@dataclass(frozen=True)
class Pictures:
    """The data.

    Args:
        inputs: (clients * examples, 1, 28, 28), client after client.
        targets: (clients * examples,).
        central_inputs: (central, 1, 28, 28).
        central_targets: (central,).
        loss: mean loss of scores (examples, outputs) and targets (examples,).
    """

    inputs: Tensor
    targets: Tensor
    central_inputs: Tensor
    central_targets: Tensor
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy


def half_squares(scores: Tensor, targets: Tensor) -> Tensor:
    """The loss of linear regression."""
    return 0.5 * F.mse_loss(scores[:, 0], targets)


class Plain:
    """FedAvg.

    Args:
        module: of the model.
        data: of clients and server.
        optimizer: makes the clients' optimizer for some parameters; None is gradient descent.

    Attributes:
        cohort: clients of a round.
    """

    cohort = COHORT

    def __init__(
        self, module: nn.Module, data: Pictures, optimizer: Callable[[Tensors], torch.optim.Optimizer] | None = None
    ) -> None:
        self.module = module
        self.data = data
        self.parameters: Tensors = list(module.parameters())
        self.server = [held.detach().clone() for held in self.parameters]
        self.generator = np.random.default_rng(0)
        self.optimizer = None if optimizer is None else optimizer(self.parameters)

    def rounds(self, count: int) -> None:
        """Trains for some rounds."""
        for _ in range(count):
            self.train_round(self.generator.choice(CLIENTS, self.cohort, replace=False).tolist())

    def train_round(self, clients: list[int]) -> None:
        mean = zeros(self.server)
        for client in clients:
            self.start()
            for rows in self.batches(client):
                self.step(self.gradients(rows))
            with torch.no_grad():
                torch._foreach_add_(mean, self.parameters, alpha=1 / self.cohort)
        self.server = mean

    def start(self, model: Tensors | None = None) -> None:
        """The client receives a model, by default the server's."""
        with torch.no_grad():
            torch._foreach_copy_(self.parameters, self.server if model is None else model)
        if self.optimizer is not None:
            self.optimizer.state.clear()

    def batches(self, client: int) -> Iterator[Tensor]:
        """The rows of the client's steps."""
        order = torch.from_numpy(self.generator.permutation(EXAMPLES) + client * EXAMPLES)
        return iter(order.split(BATCH))

    def loss(self, rows: Tensor) -> Tensor:
        return self.data.loss(self.module(self.data.inputs[rows]), self.data.targets[rows])

    def central_loss(self, examples: int) -> Tensor:
        """The loss of a batch of the server's examples."""
        rows = torch.from_numpy(self.generator.integers(0, len(self.data.central_targets), examples))
        return self.data.loss(self.module(self.data.central_inputs[rows]), self.data.central_targets[rows])

    def gradients(self, rows: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(self.loss(rows), self.parameters)

    @torch.no_grad()
    def step(self, gradients: tuple[Tensor, ...]) -> None:
        """One local step along the gradients."""
        if self.optimizer is None:
            torch._foreach_add_(self.parameters, gradients, alpha=-CLIENT_LR)
            return
        for held, gradient in zip(self.parameters, gradients, strict=True):
            held.grad = gradient
        self.optimizer.step()


class PlainSgd(Plain):
    """FedSGD: one gradient of each client."""

    def batches(self, client: int) -> Iterator[Tensor]:
        return itertools.islice(super().batches(client), 1)


class PlainProx(Plain):
    """FedProx."""

    @torch.no_grad()
    def step(self, gradients: tuple[Tensor, ...]) -> None:
        torch._foreach_lerp_(self.parameters, self.server, CLIENT_LR * PROX)
        torch._foreach_add_(self.parameters, gradients, alpha=-CLIENT_LR)


class PlainClipped(Plain):
    """FedAvg with clipped gradients."""

    @torch.no_grad()
    def step(self, gradients: tuple[Tensor, ...]) -> None:
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        scale = min(1.0, CLIP / float(norm))
        torch._foreach_add_(self.parameters, gradients, alpha=-CLIENT_LR * scale)


class PlainScaffold(Plain):
    """SCAFFOLD whose control variates are the means of the local gradients."""

    def __init__(self, module: nn.Module, data: Pictures) -> None:
        super().__init__(module, data)
        self.mean = zeros(self.server)
        self.own = [zeros(self.server) for _ in range(CLIENTS)]

    def train_round(self, clients: list[int]) -> None:
        mean, change = zeros(self.server), zeros(self.server)
        for client in clients:
            self.start()
            correction = torch._foreach_sub(self.mean, self.own[client])
            for rows in self.batches(client):
                gradients = self.gradients(rows)
                with torch.no_grad():
                    torch._foreach_add_(self.parameters, correction, alpha=-CLIENT_LR)
                    torch._foreach_add_(self.parameters, gradients, alpha=-CLIENT_LR)
            with torch.no_grad():
                # own - mean + (server - client) / (steps rate)
                new = torch._foreach_sub(self.server, self.parameters)
                torch._foreach_div_(new, STEPS * CLIENT_LR)
                torch._foreach_sub_(new, correction)
                torch._foreach_add_(change, torch._foreach_sub(new, self.own[client]))
                torch._foreach_add_(mean, self.parameters, alpha=1 / COHORT)
            self.own[client] = new
        torch._foreach_add_(self.mean, change, alpha=1 / CLIENTS)
        self.server = mean


class PlainDyn(Plain):
    """FedDyn."""

    def __init__(self, module: nn.Module, data: Pictures) -> None:
        super().__init__(module, data)
        self.mean = zeros(self.server)
        self.own = [zeros(self.server) for _ in range(CLIENTS)]

    def train_round(self, clients: list[int]) -> None:
        moved = zeros(self.server)
        for client in clients:
            self.start()
            pull = torch._foreach_mul(self.own[client], CLIENT_LR * PROX)
            for rows in self.batches(client):
                gradients = self.gradients(rows)
                with torch.no_grad():
                    torch._foreach_lerp_(self.parameters, self.server, CLIENT_LR * PROX)
                    torch._foreach_add_(self.parameters, pull)
                    torch._foreach_add_(self.parameters, gradients, alpha=-CLIENT_LR)
            with torch.no_grad():
                gone = torch._foreach_sub(self.server, self.parameters)
                torch._foreach_add_(self.own[client], gone)
                torch._foreach_add_(moved, gone, alpha=1 / COHORT)
        torch._foreach_add_(self.mean, moved, alpha=COHORT / CLIENTS)
        torch._foreach_sub_(self.server, moved)
        torch._foreach_sub_(self.server, self.mean)


class PlainMass(Plain):
    """FedAvg with MaSS, three sequences, which start anew in every round."""

    def train_round(self, clients: list[int]) -> None:
        mean = zeros(self.server)
        auxiliary = zeros(self.server)
        for client in clients:
            self.start()
            torch._foreach_copy_(auxiliary, self.server)
            for number, rows in enumerate(self.batches(client)):
                gradients = self.gradients(rows)
                with torch.no_grad():
                    torch._foreach_lerp_(auxiliary, self.parameters, MIXING)
                    torch._foreach_add_(auxiliary, gradients, alpha=-CLIENT_LR / MIXING)
                    torch._foreach_add_(self.parameters, gradients, alpha=-CLIENT_LR)  # now the model
                    if number == STEPS - 1:
                        torch._foreach_add_(mean, self.parameters, alpha=1 / COHORT)
                    torch._foreach_lerp_(self.parameters, auxiliary, MIXING / (1 + MIXING))
        self.server = mean


class PlainMaml(Plain):
    """MAML, by automatic differentiation through the local steps (torch.func.functional_call)."""

    def train_round(self, clients: list[int]) -> None:
        mean = zeros(self.server)
        names = [name for name, _ in self.module.named_parameters()]
        for client in clients:
            start = [held.clone().requires_grad_() for held in self.server]
            here: Tensors = start
            batches = [*self.batches(client), *self.batches(client)][: STEPS + 1]
            for number, rows in enumerate(batches):
                scores = torch.func.functional_call(
                    self.module, dict(zip(names, here, strict=True)), (self.data.inputs[rows],)
                )
                loss = self.data.loss(scores, self.data.targets[rows])
                if number == STEPS:
                    break
                gradients = torch.autograd.grad(loss, here, create_graph=True)
                here = torch._foreach_add(here, gradients, alpha=-CLIENT_LR)
            torch._foreach_add_(mean, torch.autograd.grad(loss, start), alpha=-CLIENT_LR / COHORT)
        torch._foreach_add_(self.server, mean)


class PlainAllOnClient(Plain):
    """Clients train on their own and the server's examples; batches of the server are as large as the cohort's."""

    def loss(self, rows: Tensor) -> Tensor:
        return super().loss(rows) + self.central_loss(COHORT * BATCH)


class PlainQuadratic(Plain):
    """FedAvg on quadratics, whose gradients are products."""

    def __init__(self, module: nn.Module, data: Pictures) -> None:
        super().__init__(module, data)
        self.hessians = [torch.eye(NUMBERS, dtype=torch.float64) for _ in range(CLIENTS)]
        self.centers = [torch.ones(NUMBERS, dtype=torch.float64) for _ in range(CLIENTS)]

    def train_round(self, clients: list[int]) -> None:
        (server,) = self.server
        mean = torch.zeros_like(server)
        for client in clients:
            here, hessian, center = server.clone(), self.hessians[client], self.centers[client]
            for _ in range(STEPS):
                here.sub_(torch.mv(hessian, here - center), alpha=CLIENT_LR)
            mean.add_(here, alpha=1 / COHORT)
        self.server = [mean]


def zeros(like: Tensors) -> Tensors:
    """As many zeros."""
    return [torch.zeros_like(held) for held in like]
