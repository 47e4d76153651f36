"""Three quadratic clients with a client optimizer: trials, and their local steps written out with every gradient."""

import numpy as np

from trainers.run import run

HESSIANS = [[[2.0, 0.3], [0.3, 1.0]], [[0.5, 0.0], [0.0, 1.5]], [[1.0, -0.2], [-0.2, 0.7]]]
CENTERS = [[1.0, -1.0], [-2.0, 0.5], [0.5, 2.0]]
LR, SERVER_LR, STEPS, ROUNDS = 0.05, 0.04, 4, 6
WORK = {"client_lr": LR, "server_lr": SERVER_LR, "local_steps": STEPS}


def models(method, rounds=ROUNDS, **client):
    """((rounds + 1, 2) models, the last line)."""
    task = {"name": "quadratic", "hessians": HESSIANS, "centers": CENTERS}
    document = {"task": task, "method": method, "rounds": rounds, "init": [3.0, -2.0], "report": ["params"]}
    lines = list(run({**document, "client": client or None}))
    return np.array([line["params"] for line in lines]), lines[-1]


def gradient(client, at):
    return np.array(HESSIANS[client]) @ (at - np.array(CENTERS[client]))


def momentum(gradients):
    """Heavy-ball directions of a round's gradients so far; the last one."""
    held = 0.0
    for each in gradients:
        held = 0.9 * held + each
    return held


def signs(gradients):
    """Adam's with beta1 = beta2 = 0 and a small epsilon."""
    return gradients[-1] / (np.abs(gradients[-1]) + 1e-8)


OPTIMIZERS = {
    "momentum": (momentum, {"name": "momentum"}),
    "signs": (signs, {"name": "adam", "beta1": 0.0, "beta2": 0.0}),
}


def local(client, start, direction, correction=0.0):
    """(sum of the directions, mean of the gradients)."""
    y, gradients, total = start, [], 0.0
    for _ in range(STEPS):
        gradients.append(gradient(client, y) + correction)
        step = direction(gradients)
        total, y = total + step, y - LR * step
    return total, np.mean(gradients, 0)
