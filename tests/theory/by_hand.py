"""Local work, done step by step."""

import numpy as np

LR = 0.05


def gradients(clients, params):
    return np.einsum("ijk,ik->ij", clients.hessians, np.asarray(params) - clients.centers)


def walk(clients, start, anchor, steps, correction, prox=0.0):
    """Local gradients of every step, (steps, clients, d), and where the clients end."""
    local, seen = np.array(start, float), []
    for _ in range(steps):
        seen.append(gradients(clients, local) + correction + prox * (local - anchor))
        local = local - LR * seen[-1]
    return np.array(seen), local
