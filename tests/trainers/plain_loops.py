"""Rounds of several methods over unequal clients, as plain loops in numpy: client by client and batch by batch."""

import numpy as np
import torch

from trainers.engine import randomness
from trainers.engine.packs.pack import Pack
from trainers.trial.document import parse

SIZES = [7, 33, 5, 8, 1, 20]
CLASSES, INPUTS, ROUNDS = 3, 4, 3
RATE = 0.3


def trial(data, **changes):
    task = {"name": "npz", "path": str(data), "model": "softmax", "test_fraction": 0, **changes.pop("task", {})}
    method = {"name": "fedavg", "client_lr": RATE, "server_lr": RATE, "local_epochs": 2, **changes.pop("method", {})}
    if "local_steps" in method:
        del method["local_epochs"]
    keys = {"batch_size": 8, "rounds": ROUNDS, "dtype": "float64", "weighting": "uniform", "seed": 3, "eval_every": 1}
    return {"task": task, "method": method, "report": ["params", "full_loss"], **keys, **changes}


def lines(given, plan=None):
    return Pack.from_spec(parse(given), plan=plan).advance()


def cosine(step, steps, warmup=0.05, floor=0.05):
    """The factor of a rate that rises for a share of all steps, and falls along half a cosine."""
    rise = warmup * steps
    fall = floor + (1 - floor) * (1 + np.cos(np.pi * (step - rise) / (steps - rise))) / 2
    return (step + 1) / rise if step + 1 <= rise else 1.0 if step < rise else fall


def workers(hessians, centers, start, rounds, steps, inner, outer, cohort=None, warmup=None, clip=None, keep=True):
    """Models after every round of torch optimizers on quadratics, one a client, whose mean change is a gradient.

    Args:
        inner: makes the optimizer of a client's model, whose memory the client keeps from round to round.
        outer: makes the optimizer of the model.
        cohort: gives the clients of a round; None are all.
        warmup: the share of all steps in which the clients' rate rises, to fall along half a cosine; None: constant.
        clip: the largest norm of a gradient.
        keep: False if each round begins with a new optimizer.
    """
    model, kept, models = torch.tensor(start, dtype=torch.float64), {}, []
    average, hessians, centers = outer([model]), torch.tensor(hessians), torch.tensor(centers)
    for number in range(rounds):
        clients, model.grad = range(len(centers)) if cohort is None else cohort(number), torch.zeros_like(model)
        for client in clients:
            if not keep or client not in kept:
                point = torch.empty_like(model)
                kept[client] = (point, own := inner([point]), own.param_groups[0]["lr"])
            point, own, rate = kept[client]
            point.copy_(model)
            for step in range(steps):
                if warmup is not None:
                    own.param_groups[0]["lr"] = rate * cosine(steps * number + step, steps * rounds, warmup)
                point.grad = hessians[client] @ (point - centers[client])
                if clip is not None:
                    point.grad *= (clip / point.grad.norm()).clamp(max=1)
                own.step()
            model.grad += (model - point) / len(clients)
        average.step()
        models.append(model.tolist())
    return models


class Plain:
    """Softmax regression in numpy, client by client and batch by batch."""

    def __init__(self, data, seed, batch_size, epochs=None, steps=None, drop_last=False, over_rounds=False):
        held = np.load(data)
        self.x = np.hstack([held["x"], np.ones((len(held["x"]), 1))])
        self.y = np.eye(CLASSES)[held["y"]]
        self.seed, self.batch_size, self.epochs, self.steps = seed, batch_size, epochs, steps
        self.drop_last, self.over_rounds = drop_last, over_rounds
        self.first = np.cumsum(SIZES) - SIZES

    def gradient(self, w, rows):
        scores = self.x[rows] @ w.T
        p = np.exp(scores - scores.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        return (p - self.y[rows]).T @ self.x[rows] / len(rows)

    def full(self, w, client):
        return self.gradient(w, self.first[client] + np.arange(SIZES[client]))

    def batches(self, round_index, client):
        """The batches of a client, as a DataLoader cuts them."""
        n, b = SIZES[client], self.batch_size
        base = randomness.key(self.seed, round_index, randomness.Purpose.SHUFFLE)
        if self.steps is not None and n <= b:
            return [self.first[client] + np.arange(n)] * self.steps
        if self.over_rounds:
            return [self.first[client] + self.in_epochs(round_index, step, client) for step in range(self.steps)]
        passes = self.epochs or -(-self.steps * b // n)
        order = randomness.permutations(base, *(np.array([number]) for number in (client, n, passes)))
        order = self.first[client] + order
        if self.steps is not None:
            return [order[start : start + b] for start in range(0, self.steps * b, b)]
        cut = [order[n * k : n * k + n][start : start + b] for k in range(passes) for start in range(0, n, b)]
        return [rows for rows in cut if len(rows) == b or n < b] if self.drop_last else cut

    def in_epochs(self, round_index, step, client):
        """A batch of a client that goes on with its epoch from round to round."""
        n, b = SIZES[client], self.batch_size
        base = randomness.key(self.seed, 0, randomness.Purpose.EPOCHS)
        places = (round_index * self.steps + step) * b + np.arange(b)
        one = np.array([client]), np.array([n])
        orders = {epoch: randomness.in_epochs(base, *one, n, 1, epoch * n).ravel() for epoch in set(places // n)}
        return np.array([orders[place // n][place % n] for place in places])

    def walk(self, w, batches, change=lambda gradient, w, rows: gradient):
        """(sum of the directions, steps)."""
        y, total = w, np.zeros_like(w)
        for rows in batches:
            step = change(self.gradient(y, rows), y, rows)
            total = total + step
            y = y - RATE * step
        return total, len(batches)


def fedavg(plain, w, memory, batches):
    return np.mean([plain.walk(w, own)[0] for own in batches], 0)


def fedprox(plain, w, memory, batches):
    return np.mean([plain.walk(w, own, lambda g, y, rows: g + 0.5 * (y - w))[0] for own in batches], 0)


def fednova(plain, w, memory, batches):
    done = [plain.walk(w, own) for own in batches]
    return np.mean([steps for _, steps in done]) * np.mean([total / steps for total, steps in done], 0)


def scaffold(plain, w, memory, batches):
    own = [plain.full(w, client) for client in range(len(batches))]
    mean = np.mean(own, 0)
    return np.mean(
        [plain.walk(w, b, lambda g, y, r, c=c: g + mean - c)[0] for b, c in zip(batches, own, strict=True)], 0
    )


def fedga(plain, w, memory, batches):
    own = [plain.full(w, client) for client in range(len(batches))]
    mean = np.mean(own, 0)
    return np.mean([plain.walk(w + 0.2 * (c - mean), b)[0] for b, c in zip(batches, own, strict=True)], 0)


def scaffold_stored(plain, w, memory, batches):
    own = memory.setdefault("own", [np.zeros_like(w)] * len(batches))
    mean, totals, new = np.mean(own, 0), [], []
    for held, c in zip(batches, own, strict=True):
        total, steps = plain.walk(w, held, lambda g, y, r, c=c: g + mean - c)
        totals.append(total)
        new.append(total / steps - mean + c)
    memory["own"] = new
    return np.mean(totals, 0)


def mime(plain, w, memory, batches):
    mean = np.mean([plain.full(w, client) for client in range(len(batches))], 0)
    m = memory["m"] = 0.1 * mean + 0.9 * memory.get("m", np.zeros_like(w))
    return np.mean([plain.walk(w, b, lambda g, y, r: 0.1 * (g - plain.gradient(w, r)) + m)[0] for b in batches], 0)


LOOPS = {
    "fedavg": ({}, fedavg),
    "fedprox": ({"prox": 0.5}, fedprox),
    "fednova": ({}, fednova),
    "scaffold": ({}, scaffold),
    "scaffold stored": ({"variates": "stored"}, scaffold_stored),
    "mime": ({"momentum": 0.9}, mime),
}
