"""One round of any method on few clients, at many rates side by side, without a pack; for tests of expansions."""

import itertools

import numpy as np
import torch

from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.counters import Counters
from trainers.engine.rounds.role_optimizer import RoleOptimizer, first_memory
from trainers.engine.rounds.round_context import Draw, RoundContext
from trainers.engine.rounds.server_state import State
from trainers.hyperparameters import describe
from trainers.models import quadratic, softmax
from trainers.problem import Examples, Problem, Quadratics
from trainers.registry import optimizers

sgd = optimizers()["sgd"]
RATES = np.array([4e-2, 2e-2, 1e-2, 5e-3])
CLIENTS = 4
ORDERS = list(itertools.permutations(range(CLIENTS)))
UNEQUAL = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)


def quadratics():
    generator = np.random.default_rng(1)
    roots = generator.standard_normal((CLIENTS, 4, 4))
    hessians = roots @ roots.transpose(0, 2, 1) / 4 + 0.3 * np.eye(4)
    train = Quadratics(hessians, generator.standard_normal((CLIENTS, 4)), np.zeros(CLIENTS))
    return quadratic.build(Problem("quadratic", train), torch.float64, torch.device("cpu"))


def logistic():
    generator = np.random.default_rng(2)
    sizes = np.full(CLIENTS, 12)
    inputs = 1.5 * generator.standard_normal((sizes.sum(), 3))
    targets = generator.integers(0, 3, sizes.sum())
    targets[:6], targets[12:18] = 0, 1  # clients that differ
    train = Examples(inputs, targets, 12 * np.arange(CLIENTS), sizes)
    return softmax.build(Problem("softmax", train), torch.float64, torch.device("cpu"))


class Losses:
    """The clients' losses, and one round of a method at several rates side by side."""

    def __init__(self, model):
        self.model = model
        self.oracle = next(oracle for oracle in model.oracles.values())
        self.source = model.source(0, None, "with_replacement")
        self.full = self.source.round(0, np.arange(CLIENTS)).full()
        values = np.random.default_rng(3).standard_normal(model.layout.count)
        self.start = model.start(values.tolist(), 0).view(1, 1, -1)

    def gradients(self, params):
        """(T, clients, P) at models (T, 1 or clients, P)."""
        return self.oracle.value_and_grad(params, self.full)[1]

    def gradient(self, params):
        return self.gradients(params).mean(1, keepdim=True)

    def slope_of_misalignment(self, params):
        """Mean of (H_i - H)(g_i - g); H_i (g_i - g) have the same mean."""
        gradients = self.gradients(params)
        return self.oracle.hvp(params, self.full, gradients - gradients.mean(1, keepdim=True)).mean(1, keepdim=True)

    def round(self, method, rates, server_lr=None, start=None, weights=None, **settings):
        """(T, 1, P) models after a round with client_lr = server_lr = rates, unless told otherwise."""
        count = len(rates)
        given = {"client_lr": rates, "displacement_source": "full", **settings}
        rows = {}
        for item in describe(method.Hyper):
            if item.name != "server_lr":
                value = given.get(item.name, item.default)
                rows[item.name] = column(value, count) if item.traced and value is not None else value
        hyper = method.Hyper(server_lr=column(rates if server_lr is None else server_lr, count), **rows)
        optimizers = {"server": RoleOptimizer(sgd, sgd.Hyper(momentum=column(0.0, count), nesterov=False))}
        start = self.start.repeat(count, 1, 1) if start is None else start
        memory = method.init(hyper, start) if hasattr(method, "init") else {}
        state = State(start, optimizers, first_memory(optimizers, start), hyper.server_lr, memory)
        batches = self.source.round(0, np.arange(CLIENTS))
        weights = torch.full((CLIENTS,), 1 / CLIENTS, dtype=torch.float64) if weights is None else weights
        counters = Counters.zero(count)
        draw, alive = Draw(batches, weights, 1.0, weights), np.ones(count, bool)
        context = RoundContext(draw, self.oracle, self.model.layout.count, counters, alive)
        return method.train_round(hyper, state, Cohort(context)).params

    def descent(self, steps, rates):
        """(T, 1, P) after steps of gradient descent on the mean loss."""
        params = self.start.repeat(len(rates), 1, 1)
        for _ in range(steps):
            params = params - column(rates, len(rates)) * self.gradient(params)
        return params

    def sequential(self, rates, orders, weights=None):
        """(T, 1, P), the mean over the orders of one step of SGD on every client, each by its share of the rate."""
        sizes = [1.0] * CLIENTS if weights is None else (CLIENTS * weights).tolist()
        ends = []
        for order in orders:
            params = self.start.repeat(len(rates), 1, 1)
            for client in order:
                gradient = self.gradients(params)[:, client : client + 1]
                params = params - sizes[client] * column(rates, len(rates)) * gradient
            ends.append(params)
        return torch.stack(ends).mean(0)


def column(values, count):
    held = np.broadcast_to(values, count).copy()
    return torch.as_tensor(held).view(-1, 1, 1)


def sizes(remainder):
    return remainder[:, 0].norm(dim=-1).numpy()


def slope(remainder, over=RATES):
    """Power of the rate with which a remainder shrinks."""
    return np.polyfit(np.log(over), np.log(sizes(remainder)), 1)[0]


def third_order(clients, remainder, exact):
    """Whether a remainder is of third order, or none where quadratics have none."""
    if exact and isinstance(clients.model, quadratic.Quadratic):
        return sizes(remainder).max() < 1e-14
    return abs(slope(remainder) - 3) <= 0.25


def misalignment(clients, params):
    """(T,) half the mean of |g_i - g|^2."""
    gradients = clients.gradients(params)
    return (gradients - gradients.mean(1, keepdim=True)).square().sum((1, 2)) / (2 * CLIENTS)
